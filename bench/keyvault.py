"""The Azure provider on its test server: parallel reads, logins, finds, and memory.

Memory and time are those of the provider alone: while they are measured, the server runs in another process.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from apart import apart, resident, until_told
from report import Row

from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_wire.values import Context, FindQuery
from kubebase.clock import Clock, SystemClock
from kubebase.testing.clock import SkippingClock

STORES, KEYS, LATENCY = 50, 10, 0.05
OBJECTS, INTERVALS = 1_000, 4
WARM, MANY, AT_ONCE = 10_000, 100_000, 200
SECONDS, MEBIBYTES = 2.0, 2.0
VAULT = "kv-one"


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder, AzureServer.started(Path(folder)) as azure:
        for number in range(OBJECTS):
            azure.vault(VAULT).contents.put(f"key-{number}", "value")
        with _environment(azure.environment):
            counts = [asyncio.run(_logins(azure)), asyncio.run(_finds(azure)), *asyncio.run(_hour(azure))]
    with apart(partial(_serve, LATENCY)) as environment, _environment(environment):
        parallel = asyncio.run(_parallel())
    with apart(partial(_serve, 0.0)) as environment, _environment(environment):
        return [parallel, *counts, asyncio.run(_memory())]


async def _parallel() -> Row:
    """All stores read all of their keys at once, over connections that are not open yet."""
    clock = SystemClock()
    async with _provider(clock) as provider:
        begun = clock.monotonic()
        await _all_stores(provider)
        seconds = clock.monotonic() - begun
    name = (
        f"{STORES * KEYS} reads through {STORES} stores, each answer after {LATENCY * 1000:g} ms (one at a time: 25 s)"
    )
    return Row(name, f"{seconds:.2f} s", f"< {SECONDS:g} s", met=seconds < SECONDS)


async def _logins(azure: AzureServer) -> Row:
    async with _provider(SystemClock()) as provider:
        await _all_stores(provider)
    logins = len(azure.requests("POST login.*"))
    return Row(f"logins of one identity with {STORES} stores", str(logins), "1", met=logins == 1)


async def _all_stores(provider: InMemory) -> None:
    keys = [f"key-{number}" for number in range(KEYS)]
    await asyncio.gather(*(_values(provider, _store(number), keys) for number in range(STORES)))


async def _finds(azure: AzureServer) -> Row:
    """A vault with 1,000 secrets has 40 pages; the one that is listed here has one."""
    azure.vault("kv-small").contents.put("key", "value")
    async with _provider(SystemClock()) as provider:
        small = store("kv-small")
        await read(provider, small, "key")  # meets the challenge of the vault
        azure.calls.clear()
        for _ in range(INTERVALS):
            await provider.find(small, FindQuery(name_regexp="nothing has this name"))
    calls = len(azure.calls)
    name = f"calls in {INTERVALS} intervals of a find that matches nothing"
    return Row(name, str(calls), str(INTERVALS), met=calls == INTERVALS)


async def _hour(azure: AzureServer) -> list[Row]:
    """Read many objects several times in an hour."""
    clock, keys = SkippingClock(), [f"key-{number}" for number in range(OBJECTS)]
    azure.calls.clear()
    async with _provider(clock) as provider:
        for _ in range(INTERVALS):
            await _values(provider, _store(0), keys)
            clock.skip(3600 / INTERVALS)
    logins, wanted = len(azure.requests("POST login.*")), OBJECTS * INTERVALS
    gets = len([call for call in azure.requests("GET kv-one* *") if "Authorization" in call.headers])
    return [
        Row(f"logins for {OBJECTS:,} objects read {INTERVALS} times in an hour", str(logins), "1", met=logins == 1),
        Row("calls for them", f"{gets:,}", f"{wanted:,}", met=gets == wanted),
    ]


async def _memory() -> Row:
    """Read over and over, after first reads that fill caches."""
    keys = [f"key-{number}" for number in range(AT_ONCE)]
    async with _provider(SystemClock()) as provider:
        await _rounds(provider, keys, WARM)
        before = resident()
        await _rounds(provider, keys, MANY)
        grown = resident() - before
    name = f"growth of the provider over {MANY:,} reads"
    return Row(name, f"{grown:+.1f} MiB", f"within {MEBIBYTES:g} MiB", met=abs(grown) <= MEBIBYTES)


async def _rounds(provider: InMemory, keys: list[str], reads: int) -> None:
    for _ in range(0, reads, len(keys)):
        await _values(provider, _store(0), keys)


async def _values(provider: InMemory, call: Context, keys: list[str]) -> None:
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        assert await read(provider, call, *some) == [b"value"] * len(some)


def _provider(clock: Clock) -> InMemory:
    return InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"]))


def _store(number: int) -> Context:
    return store(VAULT, namespace=f"team-{number}")


def _serve(delay: float, connection: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder, AzureServer.started(Path(folder)) as azure:
        for number in range(AT_ONCE):
            azure.vault(VAULT).contents.put(f"key-{number}", "value")
        azure.delay = delay
        connection.send(azure.environment)
        until_told(connection, azure.calls.clear)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        yield
