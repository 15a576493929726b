"""A server that stands in for Doppler, for tests."""
