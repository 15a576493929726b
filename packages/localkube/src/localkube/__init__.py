"""A Kubernetes API server in one process, on SQLite."""

import kubebase.plainlogs  # noqa: F401 - before the first import of structlog
