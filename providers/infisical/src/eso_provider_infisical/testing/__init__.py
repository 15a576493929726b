"""A server that stands in for Infisical in tests."""
