"""The fake provider: secrets from its own configuration, pushed values in memory, and faults on request."""

import kubebase.plainlogs  # noqa: F401 - before the first import of structlog
