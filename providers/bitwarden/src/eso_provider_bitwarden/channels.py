"""The connection to a worker process (`worker.py`): one request at a time; a missed deadline ends the process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from eso_sdk.errors import timed_out, unavailable
from kubebase.clock import Clock
from kubebase.deadline import Deadline

SECONDS = 30.0
MAX_LINE: Final = 16 * 1024 * 1024
COMMAND: Final = (sys.executable, "-m", "eso_provider_bitwarden.worker")


class Channel(Protocol):
    """Sends requests to one session of the SDK."""

    async def send(self, request: Mapping[str, Any]) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Process:
    """A worker process, started with the first request. It receives credentials on its standard input only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = SECONDS
        self._running: asyncio.subprocess.Process | None = None

    async def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with Deadline(self._clock, self._seconds):
                return await self._exchange(request)
        except TimeoutError:
            await self.close()
            raise timed_out(f"Bitwarden did not respond within {self._seconds:g} s") from None
        except (OSError, ValueError):
            await self.close()
            raise unavailable("the process of Bitwarden's SDK ended; the next call starts it again") from None
        except asyncio.CancelledError:
            # The response of an abandoned request must not be taken for that of the next one.
            await self.close()
            raise

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            with suppress(ProcessLookupError):
                running.kill()
            await running.wait()

    async def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._running is None:
            self._running = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=MAX_LINE
            )
        reader, writer = self._running.stdout, self._running.stdin
        if reader is None or writer is None:
            raise OSError("no pipes")
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        response: dict[str, Any] = json.loads(await reader.readline())
        return response
