"""The bytes of the calls in progress: bounded for all calls of a process together, and shared between namespaces.

    bytes of a request, of each value, of the response of the call -> CallBytes, until the response was sent
    bytes of a backend's responses                                 -> a part of it, until their item is read

A process with a memory limit must survive many calls with the largest responses at once. While the process holds
too much, calls are refused before author code runs, and large responses of backends are not read on; the operator then
retries. Small ones are always read, because the call may have created something that only this response
names. A value that is already in memory is counted and never refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from eso_sdk.processwide import shared_table
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.fairness import FairLimit

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
    return CallBytes(shared_table("eso_sdk.callbytes", clock, lambda: FairLimit(MAX_BYTES)), namespace)
