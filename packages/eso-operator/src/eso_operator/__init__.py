"""The operator: the domain in motion."""

import kubebase.plainlogs  # noqa: F401 - before the first import of structlog
