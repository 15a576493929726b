"""Time as a parameter. The only module of the runtime that reads a real clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the wall-clock time in UTC, for timestamps in objects."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump, for deadlines and delays."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def rfc3339(moment: datetime) -> str:
    """Format a timestamp as Kubernetes stores it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_rfc3339(text: str) -> datetime:
    return datetime.fromisoformat(text)
