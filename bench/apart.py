"""What benchmarks of providers share: a test server in another process, and the memory of this one."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@contextmanager
def apart(serve: Callable[[Connection], None]) -> Iterator[Any]:
    """Run a server in a process of its own, so that its memory does not count; yield what it sends first."""
    spawning = get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def until_told(connection: Connection, tidy: Callable[[], object]) -> None:
    """Serve until the other process says so; forget recorded calls meanwhile."""
    while not connection.poll(0.2):
        tidy()


def resident() -> float:
    """Return the memory of this process in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
