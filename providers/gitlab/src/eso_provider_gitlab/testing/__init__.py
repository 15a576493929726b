"""A server with GitLab's protocol, for tests."""
