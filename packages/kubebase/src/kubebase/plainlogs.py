"""Import structlog without the libraries that only its renderers for developers use.

`structlog` imports rich and colorama if they are installed: 14 MB and 80 ms of each process. Our log lines are JSON,
and tracebacks with the values of variables would show secrets. The `__init__` of each package that logs imports this
module, so that it runs before the first `import structlog`. Libraries that are already loaded stay as they are.
"""

from __future__ import annotations

import sys
from typing import Any, Final

_FOR_DEVELOPERS: Final = ("rich", "colorama", "better_exceptions")


def _import_structlog() -> None:
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in _FOR_DEVELOPERS if name not in modules]
    for name in hidden:
        modules[name] = None  # an import of it raises ImportError, as if it were not installed
    try:
        import structlog  # noqa: F401 - loaded here, used elsewhere
    finally:
        for name in hidden:
            del modules[name]


_import_structlog()
