"""The server as a process: announce it when it serves, stop it when a signal comes.

Commands (`python -m localkube`, `eso up`) parse their options and leave the rest to `run`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from kubebase.meta import JsonObject
from localkube.access.certificates import write_private
from localkube.errors import StatusError
from localkube.manifests import ManifestError, install
from localkube.server import LocalKube
from localkube.storage import StorageError

_GENERATIONS: Final = (50_000, 20, 50)
"""Collector thresholds: the server keeps many small objects alive and makes few cycles."""


class StartError(Exception):
    """The server did not start; the message says why and which file or address."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that tell other processes that the server runs, and how to reach it."""

    kubeconfig: Path
    ready_file: Path | None = None


Prepare = Callable[[], Awaitable[None]]
"""Applies the objects that the server has from the start, then lets it serve."""

Company = Callable[[Path, Prepare], AbstractAsyncContextManager[JsonObject]]
"""Tasks beside the server, given its kubeconfig: entered before the server is announced, left before it stops.

It starts processes, which connect and wait for a response, and calls `Prepare`. It yields its part of the ready file;
`write_ready` writes the file again when that part changes.
"""


@asynccontextmanager
async def alone(_: Path, prepare: Prepare) -> AsyncIterator[JsonObject]:
    """Run nothing beside the server."""
    await prepare()
    yield {}


async def run(
    kube: LocalKube,
    objects: Iterable[JsonObject],
    files: Files,
    *,
    announce: Callable[[str], None],
    company: Company = alone,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve, with these objects applied, until SIGINT or SIGTERM; both set `stop`, also while it starts."""
    gc.freeze()  # the modules
    gc.set_threshold(*_GENERATIONS)
    _forget_readiness(files)
    stop = stop or asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await kube.listen()
    except (OSError, StorageError, StatusError) as problem:
        raise StartError(str(problem)) from problem
    try:
        _write_kubeconfig(kube, files)
        async with company(files.kubeconfig.absolute(), partial(_prepare, kube, objects)) as added:
            if not stop.is_set():
                _announce(kube, files, announce, added)
            await stop.wait()
    finally:
        _forget_readiness(files)
        await kube.__aexit__(None, None, None)


def _write_kubeconfig(kube: LocalKube, files: Files) -> None:
    try:
        write_private(files.kubeconfig.absolute(), kube.kubeconfig_text.encode())
    except OSError as problem:
        raise StartError(str(problem)) from problem


async def _prepare(kube: LocalKube, objects: Iterable[JsonObject]) -> None:
    try:
        await install(kube.cluster, objects)
    except ManifestError as problem:
        raise StartError(str(problem)) from problem
    gc.collect()
    gc.freeze()
    await kube.start_serving()


def write_ready(kube: LocalKube, files: Files, added: JsonObject) -> None:
    """Write the ready file, if requested: the address of the server, and the part of its company."""
    if files.ready_file is not None:
        ready = {"kubeconfig": str(files.kubeconfig.absolute()), "server": kube.url, **added}
        write_private(files.ready_file, json.dumps(ready).encode())


def _announce(kube: LocalKube, files: Files, announce: Callable[[str], None], added: JsonObject) -> None:
    announce(f"ready {files.kubeconfig.absolute()}")
    try:
        write_ready(kube, files, added)
    except OSError as problem:
        raise StartError(str(problem)) from problem


def _forget_readiness(files: Files) -> None:
    if files.ready_file is not None:
        files.ready_file.unlink(missing_ok=True)
