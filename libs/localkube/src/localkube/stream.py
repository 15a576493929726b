"""Watches over HTTP: one JSON frame per line, sent immediately, ended cleanly by timeout or shutdown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from localkube.cluster import Watch
from localkube.errors import StatusError
from localkube.forms import FrameOf
from localkube.model import WatchEvent
from localkube.wire.http import Stream

MIN_SECONDS: Final = 1800
"""Minimum seconds of a watch without a timeout; each ends at random after one to two times this."""
FAREWELL_SECONDS: Final = 2
"""Seconds before its end at which a watch gets a bookmark to resume from."""
MAX_GATHERED: Final = 64 << 10
"""Bytes of frames after which they are sent, even if more are queued."""
_NO_CACHE: Final = ("Cache-Control", "no-cache, private")


class Streams:
    """The watches that are open over HTTP."""

    def __init__(self) -> None:
        self._open: set[Watch] = set()
        self._closing = False

    def open(self, watch: Watch, frame: FrameOf, seconds: int | None) -> Stream:
        """Stream a watch for the given seconds, each event through `frame`."""
        limit = seconds or MIN_SECONDS * (1 + random.random())  # noqa: S311 -- spreads load, no secret
        return Stream(self._frames(watch, frame, limit), headers=[_NO_CACHE])

    def close(self) -> None:
        """End every watch; clients see a complete reply and reconnect."""
        self._closing = True
        for watch in list(self._open):
            watch.close()

    async def _frames(self, watch: Watch, frame: FrameOf, seconds: float) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        timers = [loop.call_later(seconds, watch.close)]
        if seconds > FAREWELL_SECONDS:
            timers.append(loop.call_later(seconds - FAREWELL_SECONDS, watch.bookmark))
        self._open.add(watch)
        if self._closing:
            watch.close()
        try:
            async for event in watch:
                yield _gathered(event, watch, frame)
        except StatusError as error:
            yield error_frame(error)
        finally:
            for timer in timers:
                timer.cancel()
            watch.close()
            self._open.discard(watch)


def _gathered(first: WatchEvent, watch: Watch, frame: FrameOf) -> bytes:
    """Join the frames of all queued events, so that a burst costs one write."""
    frames = bytearray(frame(first))
    while len(frames) < MAX_GATHERED and (event := watch.ready()) is not None:
        frames += frame(event)
    return bytes(frames)


def error_frame(error: StatusError) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": error.to_json()}) + b"\n"
