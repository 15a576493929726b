"""AWS Secrets Manager."""
