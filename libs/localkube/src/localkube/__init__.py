"""A Kubernetes API server in one process, on SQLite."""

import kubebase.plainlogs  # noqa: F401 - before the first import of structlog
from kubebase.lateauthorities import late_authorities

with late_authorities():
    import aiohttp  # noqa: F401 - before another module imports it
