"""The Azure provider on its test server: parallel reads, logins, finds, and memory.

The stores are of 50 namespaces with one vault and one identity. The server runs in this process too, so that times are
those of both.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from report import Row

from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import read, store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_wire.values import Context, FindQuery
from kubebase.clock import SystemClock

STORES, KEYS, LATENCY = 50, 10, 0.05
READS, BATCH = 20_000, 400
MEBIBYTES = 8
"""A higher value would mean that reads leave something behind."""


def measure() -> list[Row]:
    before = dict(os.environ)
    try:
        with tempfile.TemporaryDirectory() as folder, AzureServer.started(Path(folder)) as azure:
            os.environ.update(azure.environment)
            return asyncio.run(_measured(azure))
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _measured(azure: AzureServer) -> list[Row]:
    keys = [f"key-{number}" for number in range(KEYS)]
    for key in keys:
        azure.vault("kv-one").contents.put(key, f"value of {key}")
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as provider:
        return [
            *await _parallel(azure, provider, keys),
            await _finds(azure, provider),
            await _memory(azure, provider, keys),
        ]


async def _parallel(azure: AzureServer, provider: InMemory, keys: list[str]) -> list[Row]:
    """All stores read all of their keys at once."""
    azure.delay = LATENCY
    clock = SystemClock()
    begun = clock.monotonic()
    found = await asyncio.gather(*(read(provider, _store(number), *keys) for number in range(STORES)))
    seconds = clock.monotonic() - begun
    azure.delay = 0.0
    count = sum(isinstance(value, bytes) for values in found for value in values)
    logins = len(azure.asked("POST login.*"))
    name = f"{count} reads through {STORES} stores, each answer after {LATENCY * 1000:g} ms"
    return [
        Row(name, f"{seconds:.2f} s", "< 2 s", met=count == STORES * KEYS and seconds < 2),
        Row(f"logins of one identity with {STORES} stores", str(logins), "1", met=logins == 1),
    ]


async def _finds(azure: AzureServer, provider: InMemory) -> Row:
    azure.calls.clear()
    await provider.find(_store(0), FindQuery(name_regexp="nothing has this name"))
    calls = len(azure.calls)
    return Row("calls of a find that matches nothing", str(calls), "1", met=calls == 1)


async def _memory(azure: AzureServer, provider: InMemory, keys: list[str]) -> Row:
    """Read over and over, after a first round that fills caches."""
    await _rounds(azure, provider, keys, BATCH)
    before = _resident()
    await _rounds(azure, provider, keys, READS)
    grown = _resident() - before
    return Row(f"memory after {READS:,} reads", f"{grown:+.1f} MiB", f"< {MEBIBYTES} MiB", met=grown < MEBIBYTES)


async def _rounds(azure: AzureServer, provider: InMemory, keys: list[str], reads: int) -> None:
    for _ in range(reads // BATCH):
        await asyncio.gather(*(read(provider, _store(number), *keys) for number in range(BATCH // len(keys))))
        azure.calls.clear()


def _store(number: int) -> Context:
    return store(namespace=f"team-{number}")


def _resident() -> float:
    """Return the memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
