"""AWS for processes that tests start: a front on a thread of its own, and the environment that leads to it.

with moto_in_thread(folder) as front:
    subprocess.run(..., env=os.environ | environment_of(front.url))
    assert front.count("GetSecretValue") == 1
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from eso_provider_aws.endpoints import VARIABLES
from eso_provider_aws.testing.front import Front
from eso_sdk.testing.moto import Moto

START_SECONDS = 60.0


@contextmanager
def moto_in_thread(folder: Path) -> Iterator[Front]:
    """Start moto behind a front that does not need the event loop of the test."""
    with Moto.started(folder) as moto, front_in_thread(moto.url) as front:
        yield front


@contextmanager
def front_in_thread(behind: str) -> Iterator[Front]:
    """Listen inside the block."""
    ready, done = Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    fronts: list[Front] = []

    async def serve() -> None:
        async with Front.before(behind) as front:
            fronts.append(front)
            ready.set()
            await done.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve()), name="front", daemon=True)
    thread.start()
    if not ready.wait(START_SECONDS):
        raise TimeoutError("the front does not listen")
    try:
        yield fronts[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(START_SECONDS)
        loop.close()


def environment_of(url: str, keys: tuple[str, str] | None = None) -> dict[str, str]:
    """Return the environment that directs every service to one address; with keys, also an identity of the process."""
    found = dict.fromkeys(VARIABLES.values(), url) | {"AWS_EC2_METADATA_DISABLED": "true"}
    if keys is not None:
        found |= {"AWS_ACCESS_KEY_ID": keys[0], "AWS_SECRET_ACCESS_KEY": keys[1]}
    return found
