"""The results of recent generator calls, by idempotency key.

An answer can get lost between provider and operator. The operator then repeats the call, or asks to clean up after it,
and has only the key. States are remembered for longer than that takes, as long as the process lives. They hold no
secret.
"""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock

KEEP_SECONDS: Final = 3600.0
MAX_GENERATIONS: Final = 10_000


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data needed to revoke the result of a call. It contains no secret: the operator stores it in the cluster."""

    lease_id: str = ""
    accessor: str = ""
    namespace: str = ""


class Generations:
    """The recent calls of one process, bounded; the oldest is evicted first."""

    def __init__(self, clock: Clock) -> None:
        self._made: ExpiringDict[str, LeaseState] = ExpiringDict(MAX_GENERATIONS, clock)

    def add(self, key: str, state: LeaseState) -> None:
        if key:
            self._made.put(key, state, KEEP_SECONDS)

    def of(self, key: str) -> LeaseState | None:
        """Return the result of the call with this key; None if it has none or was evicted."""
        return self._made.get(key)

    def forget(self, key: str) -> None:
        self._made.discard(key)


_TABLES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Generations]]] = WeakKeyDictionary()


def shared_generations(clock: Clock) -> Generations:
    """Return the calls of this event loop and clock: in a provider process there is one of each."""
    tables = _TABLES.setdefault(asyncio.get_running_loop(), {})
    return tables.setdefault(id(clock), Generations(clock))
