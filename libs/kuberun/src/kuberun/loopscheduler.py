"""Share the time of the event loop among namespaces.

A loop runs every task that is ready before it polls its sockets again. When a hundred reconciles of one namespace are
ready together, each step of any other task waits for all of them. So a namespace that recently used more than its share
of the time runs only a slice of its steps in one round of the loop. A namespace below its share never waits, and
neither does a namespace that is alone.

While urgent work is under way, all other work runs only a slice of its steps in one round. So the next step of urgent
work comes soon, however many other tasks are ready, and the other work goes on.

`bench/scheduling.py` shows what this gives: while one namespace runs steps of 20 ms, an object of another namespace is
done after 0.25 instead of 2.8 s.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

SLICE: Final = 0.004
"""Seconds of steps after which a namespace above its share waits for the next round of the loop."""
EXCESS: Final = 1.5
"""How many times its equal share a namespace may use before its steps wait."""
_FORGOTTEN_AFTER: Final = 0.5
"""When this many seconds have been used in total, all usage is halved, so that old usage counts less."""
_NOTHING: Final = 1e-4
_LATEST_WEIGHT: Final = 0.05
"""Weight of the latest step in the average."""

T = TypeVar("T")
Seconds = Callable[[], float]


class LoopScheduler:
    """Shares the time of one event loop."""

    def __init__(self, seconds: Seconds = time.perf_counter) -> None:
        self.seconds = seconds
        self._used: defaultdict[Hashable, float] = defaultdict(float)
        self._all = 0.0
        self._this_round = 0.0
        self._typical = SLICE
        """Average duration of a step."""
        self._waiting: defaultdict[Hashable, deque[asyncio.Future[None]]] = defaultdict(deque)
        self._round_ends = False
        self._urgent = 0

    async def take(self, share: Hashable, work: Coroutine[Any, Any, T], *, urgent: bool = False) -> T:
        """Run the work, each of its steps when this share has a slot."""
        self._urgent += urgent
        try:
            return await _Steps(self, share, work, urgent=urgent)
        finally:
            self._urgent -= urgent

    def spend(self, share: Hashable, seconds: float) -> None:
        """Record the duration of a step."""
        self._used[share] += seconds
        self._all += seconds
        self._typical += (seconds - self._typical) * _LATEST_WEIGHT
        self._this_round += seconds
        if not self._round_ends:
            self._round_ends = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def wait_for(self, share: Hashable, *, urgent: bool = False) -> asyncio.Future[None] | None:
        """Return the future that the next step of a share must wait for; None if it may continue."""
        if self._this_round < SLICE and not self._waiting:
            return None
        goes_first = urgent or not self._urgent
        if goes_first and self._used.get(share, 0.0) * len(self._used) <= EXCESS * self._all:
            return None
        slot = asyncio.get_running_loop().create_future()
        self._waiting[share].append(slot)
        return slot

    def _next_round(self) -> None:
        self._round_ends = False
        self._this_round = 0.0
        if self._all > _FORGOTTEN_AFTER:
            self._forget_half()
        if self._waiting:
            self._give_slots()
            self._round_ends = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _give_slots(self) -> None:
        """Let one slice of steps continue; the share that used least goes first."""
        given = 0.0
        while self._waiting and given < SLICE:
            share = min(self._waiting, key=lambda each: self._used.get(each, 0.0))
            waiting = self._waiting[share]
            slot = waiting.popleft()
            if not waiting:
                del self._waiting[share]
            if not slot.done():  # a cancelled task waits no longer
                slot.set_result(None)
                given += self._typical

    def _forget_half(self) -> None:
        recent = {share: used / 2 for share, used in self._used.items() if used > _NOTHING}
        self._used = defaultdict(float, recent)
        self._all = sum(self._used.values())


class _Steps(Generic[T]):
    """A coroutine that pauses between its steps until its share has a slot."""

    def __init__(
        self, scheduler: LoopScheduler, share: Hashable, work: Coroutine[Any, Any, T], *, urgent: bool
    ) -> None:
        self._scheduler = scheduler
        self._urgent = urgent
        self._share = share
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        scheduler, share, seconds, work = self._scheduler, self._share, self._scheduler.seconds, self._work
        urgent = self._urgent
        failed: BaseException | None = None
        while True:
            begun = seconds()
            try:
                awaited = work.send(None) if failed is None else work.throw(failed)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                scheduler.spend(share, seconds() - begun)
            failed = None
            try:
                yield awaited
                if (slot := scheduler.wait_for(share, urgent=urgent)) is not None:
                    yield from slot
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the work handles what ends its wait, cancellation included
                failed = error


_SCHEDULERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopScheduler]] = WeakKeyDictionary()


def scheduler_of(loop: asyncio.AbstractEventLoop) -> LoopScheduler:
    """Return the `LoopScheduler` of a loop, which all its controllers share."""
    if (found := _SCHEDULERS.get(loop)) is None:
        found = _SCHEDULERS[loop] = LoopScheduler()  # without a reference to the loop, which would keep it alive
    return found
