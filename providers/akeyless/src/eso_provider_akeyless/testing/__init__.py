"""A server that stands in for Akeyless, for tests."""
