"""Objects that all sessions of one process share: one of each for an event loop and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import ExpiringDict
from kubebase.clock import Clock
from kubebase.fairness import FairLimit

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


# ---------------------------------------------------------------------------------------------------------------------
# The bytes of the calls in progress: bounded for all calls of a process together, and shared between namespaces.
#
#     bytes of a request, of each value, of the response of the call -> CallBytes, until the response was sent
#     bytes of a backend's responses                                 -> a part of it, until their item is read
#
# A process with a memory limit must survive many calls with the largest responses at once. While the process holds too
# much, calls are refused before author code runs, and large responses of backends are not read on; the operator then
# retries. Small ones are always read, because the call may have created something that only this response names. A
# value that is already in memory is counted and never refused.


MAX_BYTES: Final = 32 * 1024 * 1024
"""For a memory limit of 256 MiB: of each byte, several copies exist while it is decoded, encoded and sent."""
SMALL: Final = 256 * 1024
"""The part of a backend's response that is always read."""
LARGEST_RESPONSE: Final = 24 * 1024 * 1024
"""The largest answer of a backend. It is less than one namespace may hold: a refused answer can be retried."""
RETRY_SECONDS: Final = 1.0


class CallBytes:
    """The bytes of one call, or of one item of a call."""

    def __init__(self, total: FairLimit, namespace: str) -> None:
        self._total = total
        self._namespace = namespace
        self._ended = False
        self.bytes = 0

    def take(self, size: int) -> None:
        """Count bytes. Raises ProviderError if all calls together would hold too much."""
        if not self._ended and not self._total.may_take(self._namespace, size):
            raise ProviderError(
                ErrorReason.RATE_LIMITED,
                f"the provider already holds {self._total.taken // 1024} KiB of values for calls in progress",
                retry_after=RETRY_SECONDS,
            )
        self.count(size)

    def count(self, size: int) -> None:
        """Count bytes that are already in memory. Work that outlives its call is not counted."""
        if not self._ended:
            self._total.take(self._namespace, size)
            self.bytes += size

    def release(self) -> None:
        """Stop counting the bytes so far."""
        self._total.give_back(self._namespace, self.bytes)
        self.bytes = 0

    def end(self, _: object = None) -> None:
        """Release everything: the call or the item is over."""
        self.release()
        self._ended = True

    def part(self) -> CallBytes:
        """Return a count of its own for one item of the call."""
        return CallBytes(self._total, self._namespace)


CURRENT_BYTES: ContextVar[CallBytes | None] = ContextVar("current_bytes", default=None)
"""The count of the call in progress, or of its item; None in a subscription, and outside of a call.

A context variable, because the HTTP client counts here below author code, which passes nothing on.
"""


@contextmanager
def counted_apart() -> Iterator[CallBytes | None]:
    """Release the backend responses that one item needed at the end of the block. Yield the count of the call."""
    call = CURRENT_BYTES.get()
    if call is None:
        yield None
        return
    part = call.part()
    before = CURRENT_BYTES.set(part)
    try:
        yield call
    finally:
        CURRENT_BYTES.reset(before)
        part.end()


def bytes_of_call(clock: Clock, namespace: str) -> CallBytes:
    """Return the count of a new call. All providers of a process share the limit."""
    return CallBytes(shared_table("eso_sdk.processwide", clock, lambda: FairLimit(MAX_BYTES)), namespace)
