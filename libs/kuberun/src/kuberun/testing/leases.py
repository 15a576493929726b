"""Leases in memory, with the optimistic locking of an API server, behind networks that fail on request."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kubebase.clock import Clock, SystemClock
from kubebase.meta import JsonObject, Kind, ObjectKey, Page, key_of, version_of
from kuberun.client import Client
from kuberun.errors import AlreadyExists, Conflict, NotFound, Unreachable
from kuberun.requests import ALL, ANY, DeleteOptions, Selection

T = TypeVar("T")

_LATENCY = 0.01


class LeaseServer:
    """The Leases of a cluster."""

    def __init__(self) -> None:
        self.leases: dict[ObjectKey, JsonObject] = {}
        self._version = 0

    def get(self, key: ObjectKey) -> JsonObject:
        if key not in self.leases:
            raise NotFound(404, "NotFound", f"lease {key} not found")
        return self.leases[key]

    def write(self, obj: JsonObject, *, create: bool) -> JsonObject:
        key = key_of(obj)
        if create and key in self.leases:
            raise AlreadyExists(409, "AlreadyExists", "lease exists")
        if not create and version_of(obj) != version_of(self.get(key)):
            raise Conflict(409, "Conflict", "the object has been modified")
        self._version += 1
        self.leases[key] = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        return self.leases[key]

    def delete(self, key: ObjectKey, version: str = "") -> None:
        if version not in ("", version_of(self.get(key))):
            raise Conflict(409, "Conflict", "the object has been modified")
        del self.leases[key]

    def matching(self, selection: Selection) -> Page[JsonObject]:
        name, _, value = selection.label_selector.partition("=")
        found = (lease for key, lease in self.leases.items() if key.namespace == selection.namespace)
        return Page([lease for lease in found if (lease["metadata"].get("labels") or {}).get(name) == value], "")

    def holder(self, key: ObjectKey) -> str:
        spec: JsonObject = self.get(key)["spec"]
        return str(spec.get("holderIdentity") or "")


class LeaseClient(Client):
    """The Leases as seen by one client whose network can fail."""

    def __init__(self, server: LeaseServer, clock: Clock) -> None:  # has no transport
        self._server = server
        self._clock = clock
        self.reachable = True
        self.hangs = False
        self.loses_responses = False

    async def get(self, kind: Kind[Any], key: ObjectKey, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        return await self._call(lambda: self._server.get(key), lossy=False)

    async def create(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        return await self._call(lambda: self._server.write(obj, create=True), lossy=True)

    async def update(self, kind: Kind[Any], obj: Any, **__: Any) -> Any:  # noqa: ARG002 - as in Client
        return await self._call(lambda: self._server.write(obj, create=False), lossy=True)

    async def list(self, kind: Kind[Any], selection: Selection = ALL, **__: Any) -> Page[Any]:  # noqa: ARG002 - as in Client
        return await self._call(lambda: self._server.matching(selection), lossy=False)

    async def delete(self, kind: Kind[Any], key: ObjectKey, options: DeleteOptions = ANY) -> None:  # noqa: ARG002 - as in Client
        await self._call(lambda: self._server.delete(key, options.resource_version), lossy=True)

    async def _call(self, call: Callable[[], T], *, lossy: bool) -> T:
        await self._clock.sleep(_LATENCY)
        if not self.reachable:
            raise Unreachable("connection refused")
        if self.hangs:
            await asyncio.Event().wait()
        response = call()
        if lossy and self.loses_responses:
            raise Unreachable("the connection broke before the response")
        return response


# --- Operating system processes that compete, and the journal in which all of them write ------------------------------
# The order of lines is the order of the work done. A test file starts itself as a program, once for each process.


_LOOKS = 1200
_PAUSE = 0.05


class Contenders:
    """Processes of one program. Its arguments are the given ones, the journal, and the name of the process."""

    def __init__(self, program: str, arguments: list[str], folder: Path) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        self._command = [sys.executable, program, *arguments, str(self._journal)]
        self._log = folder / "contenders.log"
        self._names = (f"contender-{number}" for number in itertools.count(1))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clock = SystemClock()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def enter(self) -> str:
        """Start a process, and return its name."""
        name = next(self._names)
        with self._log.open("ab") as log:
            self._processes[name] = subprocess.Popen([*self._command, name], stdout=log, stderr=log)  # noqa: S603 - the test itself
        return name

    def send(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    def exit_code(self, name: str) -> int | None:
        return self._processes[name].poll()

    def lines(self) -> list[str]:
        return self._journal.read_text().splitlines()

    def log(self) -> str:
        return self._log.read_text()

    async def until(self, happened: Callable[[], bool], complaint: str) -> None:
        for _ in range(_LOOKS):
            if happened():
                return
            await self._clock.sleep(_PAUSE)
        raise AssertionError(f"{complaint}\n{self.log()[-3000:]}")
