"""Time as a parameter. The only module of the runtime that reads a real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> object:
        """Prevent the call, unless it was made."""
        ...


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time in UTC, for timestamps in objects."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump, for deadlines and delays."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after that many seconds. Costs much less than a task that sleeps."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


def rfc3339(moment: datetime) -> str:
    """Format a timestamp as Kubernetes stores it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def log_time(moment: datetime) -> str:
    """Format the time of a log line, the same in every process: RFC 3339, UTC, milliseconds."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def parse_rfc3339(text: str) -> datetime:
    return datetime.fromisoformat(text)
