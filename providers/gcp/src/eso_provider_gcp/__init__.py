"""Provider for Google Secret Manager."""
