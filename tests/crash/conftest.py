"""Operators that can be killed at any of their calls, and the cluster and the provider that outlive them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eso_api.values import SecretBytes
from eso_testkit.operator.crashing import CRASH_AT, CRASH_IN
from eso_testkit.operator.operators import LABEL, PORT, SERVICE, SERVICES, Bench, free_port, install_crds, scripted
from eso_testkit.operator.providerhost import ProviderHost
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire.tls import TlsMaterial
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kubebase.testing.servers import ApiServer
from kuberun.testing.builders import NAMESPACES, document
from kuberun.testing.rawapi import RawApi, raw_api

CORE = "crash-core"
LIFE_SECONDS = 60.0

P = TypeVar("P", bound=ScriptedProvider)


class Nursery:
    """Starts operators, one at a time, without a new Python process for each."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self.log = folder / "operators.log"
        self._folder = folder
        self._flags = list(flags)
        self._lives = 0
        command = [sys.executable, "-m", "eso_testkit.operator.crashing"]
        environment = {**os.environ, "GRPC_VERBOSITY": "ERROR", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @asynccontextmanager
    async def life(self, namespace: str, crash_at: str = "", flags: Sequence[str] = ()) -> AsyncIterator[Life]:
        """An operator; killed at the end of the block, if nothing killed it before. `flags` are further ones."""
        self._lives += 1
        journal = self._folder / f"journal-{self._lives}"
        journal.touch()
        environment = {CRASH_IN: namespace, CRASH_AT: crash_at}
        order = {
            "flags": [*self._flags, *flags],
            "environment": environment,
            "journal": str(journal),
            "log": str(self.log),
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        life = Life(await self._line(), journal)
        ending = asyncio.ensure_future(self._line())
        ending.add_done_callback(lambda done: life.ended(done.result()))
        try:
            yield life
        finally:
            life.kill()
            await ending

    def another(self) -> Nursery:
        """Return a nursery with the same flags, for operators that run at the same time."""
        folder = self._folder / "another"
        folder.mkdir(exist_ok=True)
        return Nursery(folder, self._flags)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    async def _line(self) -> int:
        assert self._process.stdout is not None
        return int(await asyncio.to_thread(self._process.stdout.readline))


class Life:
    """One operator process."""

    def __init__(self, pid: int, journal: Path) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        self._journal = journal

    @property
    def calls(self) -> list[str]:
        """Every outside call that it began, in order."""
        return self._journal.read_text().splitlines()

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call.partition(" ")[0] not in ("GET", "CALL")]

    def ended(self, code: int) -> None:
        self.exit_code = code

    def kill(self) -> None:
        if self.exit_code is None:
            with suppress(ProcessLookupError):  # it exited by itself, and we have not been notified yet
                os.kill(self.pid, signal.SIGKILL)

    async def until(self, holds: Callable[[], Awaitable[object]]) -> bool:
        """Return whether the operator lived until then; fail if neither happens."""
        clock = SystemClock()
        deadline = clock.monotonic() + LIFE_SECONDS
        while self.exit_code is None:
            if await holds():
                return True
            assert clock.monotonic() < deadline, f"neither done nor dead after {self.calls}"
            await clock.sleep(0.02)
        assert self.exit_code == -signal.SIGKILL, f"the operator ended with {self.exit_code}; see its log"
        return False

    async def until_quiet(self, seconds: float = 0.3) -> None:
        """Until it has made no call for so long."""
        clock = SystemClock()
        deadline = clock.monotonic() + LIFE_SECONDS
        seen, since = self.calls, clock.monotonic()
        while clock.monotonic() - since < seconds:
            assert clock.monotonic() < deadline, f"it never rests: {self.calls}"
            await clock.sleep(0.02)
            if (now := self.calls) != seen:
                seen, since = now, clock.monotonic()


@dataclass(slots=True)
class Arena:
    """A cluster with a provider, and a nursery of operators for it."""

    api: RawApi
    provider: ScriptedProvider
    nursery: Nursery

    async def create(self, resource: Resource, name: str, namespace: str, **fields: Any) -> JsonObject:
        home = namespace if resource.namespaced else ""
        answer = await self.api.post(resource.path(home), document(resource, name, namespace, **fields))
        assert answer.status == 201, answer.body
        return dict(answer.body)

    async def find(self, resource: Resource, name: str, namespace: str) -> JsonObject | None:
        answer = await self.api.get(resource.path(namespace, name))
        return dict(answer.body) if answer.status == 200 else None

    async def patch(self, resource: Resource, name: str, namespace: str, patch: JsonObject) -> None:
        answer = await self.api.patch(resource.path(namespace, name), patch)
        assert answer.status == 200, answer.body

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        answer = await self.api.delete(resource.path(namespace, name))
        assert answer.status in (200, 202), answer.body


@dataclass(frozen=True, slots=True)
class Ground:
    """The state shared by tests: the nursery, and the provider's address and certificates."""

    nursery: Nursery
    port: int
    files: dict[str, bytes]

    @asynccontextmanager
    async def hosting(self, provider: P) -> AsyncIterator[P]:
        """A provider that outlives every operator."""
        files = self.files
        material = TlsMaterial(files["ca.crt"], files["tls.crt"], SecretBytes(files["tls.key"]))
        host = ProviderHost(provider, material, port=self.port)
        await host.start()
        try:
            yield provider
        finally:
            await host.stop()


@pytest.fixture(scope="session")
def ground(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("crash")
    port = free_port()
    flags = ["--kubeconfig", str(api_server.kubeconfig), "--core-namespace", CORE, "--concurrent", "4"]
    flags += ["--live-addr", "127.0.0.1:0", "--metrics-addr", "0"]
    flags += [f"--trusted-provider={CORE}/{SERVICE}=127.0.0.1:{port}"]
    nursery = Nursery(folder, flags)
    try:
        yield Ground(nursery, port, asyncio.run(_issued(api_server, nursery)))
    finally:
        nursery.close()


@pytest.fixture
async def arena(api: RawApi, ground: Ground) -> AsyncIterator[Arena]:
    async with ground.hosting(scripted()) as provider:
        yield Arena(api, provider, ground.nursery)


async def _issued(server: ApiServer, nursery: Nursery) -> dict[str, bytes]:
    """Install everything; the first operator issues the provider's certificates."""
    await install_crds(server.kubeconfig)
    async with raw_api(server.url, server.token, str(server.ca_file)) as api:
        bench = Bench(api, server.kubeconfig, CORE, 0)
        await api.post(NAMESPACES.path(), {"metadata": {"name": CORE}})
        await bench.create(
            SERVICES, SERVICE, metadata={"labels": LABEL}, spec={"ports": [{"name": "grpc", "port": PORT}]}
        )
        async with nursery.life(CORE) as life:
            assert await life.until(bench.server_material)
        found = await bench.find(Resource("", "v1", "secrets", "Secret"), f"{SERVICE}-provider-tls")
        assert found is not None
        return {name: base64.b64decode(value) for name, value in found["data"].items()}
