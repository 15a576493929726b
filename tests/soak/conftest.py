"""An operator with parts that a test can break, and a population of ExternalSecrets."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import aiohttp
import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_operator.targets.metadata import MANAGED_LABEL
from eso_operator.wiring import Operator, wire
from eso_testkit.operator.operators import Bench, free_port, install_crds, scripted
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kubebase.testing.servers import ApiServer
from kuberun import config
from kuberun.client import Client
from kuberun.testing.builders import SECRETS, document
from kuberun.testing.proxy import Proxy
from kuberun.testing.rawapi import RawApi
from kuberun.transport import AiohttpTransport

EXTERNAL_SECRETS = EXTERNAL_SECRET.resource()
STORES = SECRET_STORE.resource()
REMOTE_KEYS = 10


class JumpingClock(SystemClock):
    """A clock whose wall time the test can shift; elapsed time is real."""

    offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


@dataclass(slots=True)
class World:
    """One test's cluster, provider and operator. The operator reaches the API server through the proxy."""

    bench: Bench
    server: ApiServer
    proxy: Proxy
    chance: random.Random
    clock: JumpingClock = field(default_factory=JumpingClock)
    names: set[str] = field(default_factory=set)
    """ExternalSecrets that people know of."""

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Operator]:
        """Until the block ends; with a provider that is installed and a store that uses it."""
        connection = replace(config.load(self.bench.kubeconfig), server=f"https://127.0.0.1:{self.proxy.port}")
        client = Client(AiohttpTransport(connection))
        operator = wire(self.bench.settings, client, self.clock)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(operator.manager.run())
                try:
                    data = {f"remote-{number}": b"first" for number in range(REMOTE_KEYS)}
                    await self.bench.install(scripted(data=data))
                    fake: JsonObject = {"provider": {"fake": {"data": []}}}
                    await self.bench.create(STORES, "backend", spec=fake)
                    yield operator
                finally:
                    operator.manager.stop()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the test's own complaint reads better without the group
        finally:
            await client.close()

    # --- what people do -----------------------------------------------------------------------------------------------

    async def add(self, name: str) -> None:
        remote = f"remote-{self.chance.randrange(REMOTE_KEYS)}"
        spec = {
            "refreshInterval": "1s",
            "secretStoreRef": {"name": "backend"},
            "data": [{"secretKey": "password", "remoteRef": {"key": remote}}],
        }
        body = document(EXTERNAL_SECRETS, name, self.bench.namespace, spec=spec)
        if await self._tried("POST", EXTERNAL_SECRETS.path(self.bench.namespace), body):
            self.names.add(name)

    async def remove(self, name: str) -> None:
        if await self._tried("DELETE", self._path(EXTERNAL_SECRETS, name)):
            self.names.discard(name)

    async def repoint(self, name: str) -> None:
        remote = f"remote-{self.chance.randrange(REMOTE_KEYS)}"
        patch = {"spec": {"data": [{"secretKey": "password", "remoteRef": {"key": remote}}]}}
        await self._tried("PATCH", self._path(EXTERNAL_SECRETS, name), patch)

    async def meddle(self, name: str) -> None:
        """Edit or delete a target."""
        if self.chance.random() < 0.5:
            await self._tried("PATCH", self._path(SECRETS, name), {"data": {"password": "bWVkZGxlZA=="}})
        else:
            await self._tried("DELETE", self._path(SECRETS, name))

    def rotate(self) -> None:
        assert self.bench.host is not None
        key = f"remote-{self.chance.randrange(REMOTE_KEYS)}"
        self.bench.host.provider.data[key] = f"value-{self.chance.randrange(10**9)}".encode()

    def one(self) -> str:
        return self.chance.choice(sorted(self.names))

    async def _tried(self, method: str, path: str, body: object = None) -> bool:
        """Return whether the server did it; it may be down."""
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        with suppress(aiohttp.ClientError, OSError):
            return (await self.bench.api.send(method, path, body, headers=headers)).status < 300
        return False

    # --- what becomes of it -------------------------------------------------------------------------------------------

    async def differences(self) -> list[str]:
        """Return the differences from the ExternalSecrets.

        They are read from the API: a request without a response may have succeeded.
        """
        assert self.bench.host is not None
        data = self.bench.host.provider.data
        try:
            objects, secrets = await self._listed(EXTERNAL_SECRETS), await self._listed(SECRETS)
        except (aiohttp.ClientError, OSError):
            return ["the API server does not answer"]
        ours = {name for name, one in secrets.items() if MANAGED_LABEL in one["metadata"].get("labels", {})}
        wrong = [f"Secret {name} is left over" for name in sorted(ours - set(objects))]
        for name, found in objects.items():
            (entry,) = found["spec"]["data"]
            stored = base64.b64decode(secrets.get(name, {}).get("data", {}).get("password", ""))
            if stored != data[entry["remoteRef"]["key"]]:
                wrong.append(f"Secret {name} is {'not right' if name in secrets else 'missing'}")
            conditions = found.get("status", {}).get("conditions", [])
            if not any((one["type"], one["status"]) == ("Ready", "True") for one in conditions):
                wrong.append(f"{name} is not ready: {conditions}")
        return wrong

    async def settles(self, within: float = 60.0) -> list[str]:
        """Return the differences that are left after a fair time."""
        clock = SystemClock()
        end = clock.monotonic() + within
        while (wrong := await self.differences()) and clock.monotonic() < end:
            await clock.sleep(0.1)
        return wrong

    async def _listed(self, resource: Resource) -> dict[str, JsonObject]:
        answer = await self.bench.api.get(resource.path(self.bench.namespace))
        items: list[JsonObject] = answer.body["items"]
        return {one["metadata"]["name"]: one for one in items}

    def _path(self, resource: Resource, name: str) -> str:
        return resource.path(self.bench.namespace, name)


@pytest.fixture
async def world(api_server: ApiServer, api: RawApi, namespace: str) -> AsyncIterator[World]:
    await install_crds(api_server.kubeconfig)
    chance = random.Random(20301231)  # noqa: S311 - the same trouble in every run
    proxy = Proxy(int(api_server.url.rpartition(":")[2]), chance)
    bench = Bench(api, api_server.kubeconfig, namespace, free_port())
    async with proxy.serving():
        yield World(bench, api_server, proxy, chance)
    if bench.host is not None:
        await bench.host.stop()
