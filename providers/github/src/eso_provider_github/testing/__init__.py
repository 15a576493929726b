"""A server with GitHub's protocol, for tests."""
