"""Limits of the bytes of values that reconciles hold: for each object, and for all objects together.

    with limits.of_object("team") as held:    # one reconcile of one object
        held.add(4_000_000)                   # raises ProviderError if that is too much

A Secret holds 1 MiB. An object may read more than that for it, but not by orders of magnitude, because several copies
of the values exist while they are decoded, renamed and rendered. If all objects together hold too much, the namespace
with the most bytes is refused first.

Generators are called for one object each, so their calls wait until there is room for their responses
(`HeldBytes.room`). Namespaces take turns. Nothing that a caller does while it has room waits for more, so waiting
callers always go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairLimit, FairSlots

MIB: Final = 1024 * 1024
OBJECT_BYTES: Final = 8 * MIB
TOTAL_BYTES: Final = 64 * MIB


class ByteLimits:
    """The bytes that all objects hold. The process has one."""

    def __init__(self, *, object_bytes: int = OBJECT_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self.object_bytes = object_bytes
        self.total_bytes = total_bytes
        self.held = FairLimit(total_bytes)
        self.expected = FairSlots(max(total_bytes // MIB, 1))
        """The mebibytes of expected responses, which are not counted in `held` yet."""

    @contextmanager
    def of_object(self, namespace: str) -> Iterator[HeldBytes]:
        """Count reads inside the block for one object; release them at its end."""
        held = HeldBytes(self, namespace)
        try:
            yield held
        finally:
            held.release()


class HeldBytes:
    """The bytes of values that one reconcile of one object holds."""

    def __init__(self, limits: ByteLimits, namespace: str) -> None:
        self._limits = limits
        self._namespace = namespace
        self._ended = False
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count bytes. Raises ProviderError if the object, or all objects together, would hold too much."""
        limits = self._limits
        if self._ended or not size:
            return
        if self.bytes + size > limits.object_bytes:
            raise _too_much(limits.object_bytes)
        if not self._fits(size):
            raise ProviderError(
                ErrorReason.BACKEND_UNAVAILABLE,
                f"the operator holds {limits.total_bytes // MIB} MiB of values at the moment, and most of them for"
                f' namespace "{self._namespace}"; tried again later',
            )
        self.bytes += size
        limits.held.take(self._namespace, size)

    @asynccontextmanager
    async def room(self, size: Callable[[], int], clock: Clock, within: float) -> AsyncIterator[None]:
        """Reserve room for a response of this size during the body. Raises ProviderError if there is none in time.

        `size` is called again after each wait: the responses of other calls may have shown that it is larger.
        """
        expected, reserved = self._limits.expected, 0
        try:
            async with Deadline(clock, within):
                while (wanted := max(-(-size() // MIB), 1)) > reserved:
                    expected.release(self._namespace, reserved)
                    await expected.acquire(self._namespace, wanted)
                    reserved = wanted
        except TimeoutError:
            raise ProviderError(
                ErrorReason.BACKEND_TIMEOUT,
                f"the operator waits for responses of {expected.taken} MiB, and had no room for another one within"
                f" {within:.1f} s; tried again later",
            ) from None
        try:
            yield
        finally:
            expected.release(self._namespace, reserved)

    @contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Release the bytes counted inside if the block fails: the next attempt reads the same bytes again."""
        before = self.bytes
        try:
            yield
        except BaseException:
            self.drop(self.bytes - before)
            raise

    def drop(self, size: int) -> None:
        """Stop counting this many bytes."""
        size = max(min(size, self.bytes), 0)
        self._limits.held.give_back(self._namespace, size)
        self.bytes -= size

    def release(self) -> None:
        """Release everything: the reconcile is over."""
        self._ended = True
        self.drop(self.bytes)

    def _fits(self, size: int) -> bool:
        """Return whether the bytes fit. A namespace below the largest may exceed the limit, up to twice the total."""
        held, mine = self._limits.held, self._limits.held.held(self._namespace)
        if held.may_take(self._namespace, size):
            return True
        return mine < held.held(held.largest) and held.taken + size <= 2 * self._limits.total_bytes


def _too_much(limit: int) -> ProviderError:
    """Return the error for an object that reads more than its limit."""
    return ProviderError(
        ErrorReason.PAYLOAD_TOO_LARGE,
        f"the values that this object reads are larger than {limit // MIB} MiB in all; read fewer keys, or only the"
        " properties that are needed",
    )
