"""A Connect server, and the core of the vendor's SDK, for tests."""
