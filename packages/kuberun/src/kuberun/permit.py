"""Whether what runs here may still change anything.

A leader that was suspended wakes up in the middle of its reconciles, and their next writes may be on their way before
the election has noticed that the lease is somebody else's. So a controller leaves its permit in the context of each
reconcile, and the transport asks for it before everything but reading. Outside of reconciles everything is permitted:
standbys serve metrics and keep their caches, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Permit = Callable[[], bool]


def always() -> bool:
    return True


_PERMIT: ContextVar[Permit] = ContextVar("permit", default=always)


def work_by(permit: Permit) -> None:
    """From here on, in this task and those it starts."""
    _PERMIT.set(permit)


def permitted() -> bool:
    return _PERMIT.get()()
