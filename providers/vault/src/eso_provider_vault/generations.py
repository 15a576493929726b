"""Remember what recent calls of a generator made, by their idempotency keys.

An answer can get lost between provider and operator. The operator then repeats the call, or asks to clean up after it,
and has only the key. States are remembered for longer than that takes, as long as the process lives. They hold no
secret.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from kuberun.clock import Clock

KEEP_SECONDS: Final = 3600.0
MAX_GENERATIONS: Final = 10_000


class LeaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is needed to take back what a call made. It holds no secret: the operator stores it in the cluster."""

    lease_id: str = ""
    accessor: str = ""
    namespace: str = ""


class Generations:
    """The recent calls of one process. Bounded: the oldest is forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: OrderedDict[str, tuple[float, LeaseState]] = OrderedDict()

    def add(self, key: str, state: LeaseState) -> None:
        if not key:
            return
        now = self._clock.monotonic()
        self._made[key] = (now + KEEP_SECONDS, state)
        self._made.move_to_end(key)
        while self._made and (len(self._made) > MAX_GENERATIONS or next(iter(self._made.values()))[0] <= now):
            self._made.popitem(last=False)

    def of(self, key: str) -> LeaseState | None:
        """Return what the call with this key made; None if it made nothing, or is forgotten."""
        ends_at, state = self._made.get(key, (0.0, None))
        return state if ends_at > self._clock.monotonic() else None

    def forget(self, key: str) -> None:
        self._made.pop(key, None)


_TABLES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Generations]]] = WeakKeyDictionary()


def shared_generations(clock: Clock) -> Generations:
    """Return the calls of this event loop and clock: in a provider process there is one of each."""
    tables = _TABLES.setdefault(asyncio.get_running_loop(), {})
    return tables.setdefault(id(clock), Generations(clock))
