"""The permission of the running code to write.

A suspended leader wakes up in the middle of its reconciles, and their next writes may be sent before the election
notices that another process holds the lease. So a controller stores its permit in the context of each reconcile, and
the transport checks it before every request except reads. Outside of reconciles everything is permitted: standbys serve
metrics and keep their caches, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

Permit = Callable[[], bool]


def always() -> bool:
    return True


_PERMIT: ContextVar[Permit] = ContextVar("permit", default=always)


def work_by(permit: Permit) -> None:
    """Set the permit for this task and the tasks it starts."""
    _PERMIT.set(permit)


def permitted() -> bool:
    return _PERMIT.get()()
