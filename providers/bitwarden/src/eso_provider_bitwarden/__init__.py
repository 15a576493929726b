"""The provider for Bitwarden Secrets Manager."""
