"""Waiting in tests for what happens elsewhere: in another process, in a thread, or in the background of a server."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, overload

from kubebase.clock import SystemClock

T = TypeVar("T")

WITHIN_SECONDS: Final = 60.0


@overload
async def eventually(
    read: Callable[[], Awaitable[T | None]], complaint: str = ..., *, within: float = ..., every: float = ...
) -> T: ...


@overload
async def eventually(
    read: Callable[[], T | None], complaint: str = ..., *, within: float = ..., every: float = ...
) -> T: ...


async def eventually(
    read: Callable[[], Any],
    complaint: str = "it did not happen",
    *,
    within: float = WITHIN_SECONDS,
    every: float = 0.05,
) -> Any:
    """Return the first truthy result of `read`; fail with the complaint at the deadline."""
    clock = SystemClock()
    end = clock.monotonic() + within
    while True:
        found = read()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if clock.monotonic() > end:
            raise AssertionError(complaint)
        await clock.sleep(every)
