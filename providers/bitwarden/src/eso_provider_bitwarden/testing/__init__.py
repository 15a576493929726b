"""A server that stands in for Bitwarden Secrets Manager in tests."""
