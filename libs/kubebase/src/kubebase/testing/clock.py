"""Virtual time for asyncio tests: hours pass in microseconds, in the same order on every run.

Time stands still until a test calls `advance`. Only sleeps on this clock are virtual: real sockets and
`asyncio.timeout` still use the loop's own time, so give such code a long deadline.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from kubebase.clock import SystemClock, Timer

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Start of virtual wall-clock time, so that tests can write timestamps as literals."""

_SETTLE_TURNS = 50
_SETTLE_LIMIT = 10_000


class VirtualClock:
    """A `Clock` whose time moves only when the test says so."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await _turn()
            return
        await self._wake_up_after(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        if seconds <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        due = self._wake_up_after(seconds)
        due.add_done_callback(lambda due: None if due.cancelled() else callback())
        return due

    def _wake_up_after(self, seconds: float) -> asyncio.Future[None]:
        self._order += 1
        wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, self._order, wake_up))
        return wake_up

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: wake each sleeper at its own time, in order, and let the loop settle after each.

        A sleep started by a woken task counts from the time of its wake-up. If it ends within `seconds`, it is woken
        too.
        """
        end = self._elapsed + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, wake_up = heapq.heappop(self._sleepers)
            if wake_up.done():  # its task was cancelled
                continue
            self._elapsed = max(self._elapsed, due)
            wake_up.set_result(None)
            await self.settle()
        self._elapsed = end

    async def settle(self) -> None:
        """Let every task run until all wait for time to pass (or for input from outside)."""
        loop = asyncio.get_running_loop()
        ready = getattr(loop, "_ready", None)
        if ready is None:  # this loop does not expose its queue: many turns are enough for code without sockets
            for _ in range(_SETTLE_TURNS):
                await _turn()
            return
        for _ in range(_SETTLE_LIMIT):
            await _turn()
            if not ready:
                return
        raise RuntimeError("the loop does not settle: some task spins without sleeping on the clock")

    async def run_until_idle(self) -> None:
        """Advance time until no task sleeps on this clock; for code that ends by itself."""
        await self.settle()
        while (delay := self.next_wake_up()) is not None:
            await self.advance(delay)

    def next_wake_up(self) -> float | None:
        """Return the seconds until the earliest sleeper wakes; None if no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return max(self._sleepers[0][0] - self._elapsed, 0.0) if self._sleepers else None

    @property
    def sleepers(self) -> int:
        """Return the number of sleeps and timers that wait for time to pass; a leak check at the end of a test."""
        return sum(1 for _, _, wake_up in self._sleepers if not wake_up.done())


async def _turn() -> None:
    """Run every ready callback of the loop once."""
    turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turned.set_result, None)
    await turned


class SkippingClock(SystemClock):
    """The clock of the system, plus the time that was skipped: for tests with real servers."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def skip(self, seconds: float) -> None:
        self._skipped += seconds

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._skipped)

    def monotonic(self) -> float:
        return super().monotonic() + self._skipped
