"""The operator: controllers, what a reconcile needs, and the process that runs them."""
