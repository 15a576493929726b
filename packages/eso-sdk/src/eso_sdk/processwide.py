"""Objects that all sessions of one process share: one of each for an event loop and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from kubebase.clock import Clock

T = TypeVar("T")

_TABLES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], tuple[Clock, Any]]]] = (
    WeakKeyDictionary()
)


def shared_table(name: str, clock: Clock, make: Callable[[], T]) -> T:
    """Return the object with this name, made at first use. In a provider process there is one loop and one clock."""
    tables = _TABLES.setdefault(asyncio.get_running_loop(), {})
    # The clock is kept with its object, so that no other clock can get the same id.
    _, shared = tables.setdefault((name, id(clock)), (clock, None))
    if shared is None:
        shared = make()
        tables[name, id(clock)] = (clock, shared)
    found: T = shared
    return found
