"""Change events of Secret Manager, from a subscription of Pub/Sub."""
