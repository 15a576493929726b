"""Objects that all sessions of one process share: one of each for an event loop and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

T = TypeVar("T")
S = TypeVar("S")

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


# --- The states of recent generator calls, by idempotency key --------------------------------------------------------
#
#     generations = generations_of("gitlab", self.clock)      in `open`
#     generations.add(request.idempotency_key, state)          after the backend has made something
#
# A response can get lost between provider and operator. The operator then repeats the call, or asks to clean up after
# it, and has only the key. States are remembered for longer than that takes, as long as the process lives.


KEEP_SECONDS: Final = 3600.0
MAX_GENERATIONS: Final = 10_000


class Generations(Generic[S]):
    """The recent calls of one process, bounded; the oldest is evicted first."""

    def __init__(self, clock: Clock) -> None:
        self._states: ExpiringDict[str, S] = ExpiringDict(MAX_GENERATIONS, clock)

    def add(self, key: str, state: S) -> None:
        if key:
            self._states.put(key, state, KEEP_SECONDS)

    def of(self, key: str) -> S | None:
        """Return the state of the call with this key; None if it has none or was evicted."""
        return self._states.get(key) if key else None

    def forget(self, key: str) -> None:
        self._states.discard(key)


def generations_of(name: str, clock: Clock) -> Generations[Any]:
    """Return the calls of all sessions of a generator in this process."""
    return shared_table(f"eso_sdk.generations.{name}", clock, lambda: Generations[Any](clock))
