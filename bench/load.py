"""Concurrent writes to an API server: through kuberun's client, and through a bare aiohttp loop."""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from kubebase.meta import JsonObject, Resource, raw
from kubebase.testing.servers import ApiServer
from kuberun.client import Client
from kuberun.config import load
from kuberun.transport import AiohttpTransport

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CONCURRENCY = 32
NAMESPACE = "default"

Write = Callable[[JsonObject], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Measured:
    per_second: float
    cpu_micros: float
    """User and system time of this process for one write."""


def config_map(name: str) -> JsonObject:
    data = {f"key-{number}": "value " * 10 for number in range(8)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "bench"}},
        "data": data,
    }


async def writes(write: Write, prefix: str, count: int) -> Measured:
    names = iter(range(count))

    async def worker() -> None:
        for number in names:
            await write(config_map(f"{prefix}-{number}"))

    before, started = _cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(worker())
    return Measured(count / (time.perf_counter() - started), (_cpu() - before) / count * 1e6)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def through_client(server: ApiServer, prefix: str, count: int) -> Measured:
    client = Client(AiohttpTransport(load(server.kubeconfig)))
    kind = raw(CONFIG_MAPS)
    try:
        await client.create(kind, config_map(f"{prefix}-warm"))
        return await writes(lambda obj: client.create(kind, obj), prefix, count)
    finally:
        await client.close()


async def through_bare_loop(server: ApiServer, prefix: str, count: int) -> Measured:
    tls = ssl.create_default_context(cafile=str(server.ca_file))
    connector = aiohttp.TCPConnector(ssl=tls, limit=CONCURRENCY)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    url = server.url + CONFIG_MAPS.path(NAMESPACE)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def create(obj: JsonObject) -> object:
            async with session.post(url, data=msgspec.json.encode(obj)) as response:
                body = await response.read()
                response.raise_for_status()
                return msgspec.json.decode(body)

        await create(config_map(f"{prefix}-warm"))
        return await writes(create, prefix, count)
