"""A Kubernetes API server in one process, on SQLite."""
