"""structlog, imported without the libraries that only its renderers for developers use.

`structlog` imports rich and colorama if they are installed: 14 MB and 80 ms of each process. Our log lines are JSON,
and tracebacks with the values of variables would show secrets. Whoever imports structlog first decides, so modules that
log do it here; a package whose processes always log may do it in its `__init__` for all its modules. Libraries that are
already loaded stay as they are.

    from kubebase.plainlogs import structlog
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_FOR_DEVELOPERS: Final = ("rich", "colorama", "better_exceptions")


@contextmanager
def _without(libraries: tuple[str, ...]) -> Iterator[None]:
    """Let imports of these libraries raise ImportError inside the block, as if they were not installed."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in libraries if name not in modules]
    for name in hidden:
        modules[name] = None
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


with _without(_FOR_DEVELOPERS):
    import structlog

__all__ = ["structlog"]
