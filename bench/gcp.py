"""The Google provider on its test server: reads side by side, tokens, listings, and memory over many reads.

Memory is that of the provider alone: while it is measured, the server runs in another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest
from apart import apart, resident, until_told
from report import Row

from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.store import SecretManagerStore
from eso_provider_gcp.testing.sessions import AUTH, KEY, PROJECT, Google
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.server import read
from eso_wire.values import Context, FindQuery
from kubebase.clock import SystemClock
from kubebase.testing.clock import SkippingClock

STORES, READS, LATENCY = 50, 500, 0.05
OBJECTS, INTERVALS = 1_000, 4
WARM, MANY, AT_ONCE = 10_000, 100_000, 200
SECONDS, MEBIBYTES = 2.0, 2.0


def measure() -> list[Row]:
    with Google.started() as google, _environment(google.environment):
        for number in range(OBJECTS):
            google.store(f"s{number}", b"value")
        rows = [*asyncio.run(_parallel(google)), asyncio.run(_finds(google)), *asyncio.run(_hour(google))]
    with apart(_serve) as (environment, key), _environment(environment):
        return [*rows, asyncio.run(_memory(key))]


async def _parallel(google: Google) -> list[Row]:
    """All stores read all of their keys at once."""
    clock, each = SystemClock(), READS // STORES
    async with InMemory(PROVIDER) as provider:
        stores = [_store(google.key(), number) for number in range(STORES)]
        await asyncio.gather(*(_values(provider, store, ["s0"]) for store in stores))
        google.secrets.latency = LATENCY
        begun = clock.monotonic()
        keys = [[f"s{number * each + at}" for at in range(each)] for number in range(STORES)]
        await asyncio.gather(*(_values(provider, *pair) for pair in zip(stores, keys, strict=True)))
        seconds = clock.monotonic() - begun
    tokens, connections = len(google.tokens.requests("/token")), len(google.secrets.peers)
    name = f"{READS} reads through {STORES} stores, each answer after {LATENCY * 1000:g} ms (one at a time: 25 s)"
    return [
        Row(name, f"{seconds:.2f} s", f"< {SECONDS:g} s", met=seconds < SECONDS),
        Row(f"tokens for {STORES} stores of one identity", str(tokens), "1", met=tokens == 1),
        Row("connections for them", str(connections), "1", met=connections == 1),
    ]


async def _finds(google: Google) -> Row:
    google.reset()
    async with InMemory(PROVIDER) as provider:
        for _ in range(INTERVALS):
            await provider.find(_store(google.key()), FindQuery(name_regexp="^nothing has this name$"))
    calls = sum(google.secrets.calls.values())
    name = f"calls in {INTERVALS} intervals of a find that matches nothing"
    return Row(name, str(calls), str(INTERVALS), met=calls == INTERVALS)


async def _hour(google: Google) -> list[Row]:
    """Read many objects several times in an hour."""
    google.reset()
    clock = SkippingClock()
    async with InMemory(PROVIDER, clock) as provider:
        for _ in range(INTERVALS):
            await _values(provider, _store(google.key()), [f"s{number}" for number in range(OBJECTS)])
            clock.skip(3600 / INTERVALS)
    tokens, calls = len(google.tokens.requests("/token")), sum(google.secrets.calls.values())
    wanted = OBJECTS * INTERVALS
    return [
        Row(f"tokens for {OBJECTS:,} objects read {INTERVALS} times in an hour", str(tokens), "1", met=tokens == 1),
        Row("calls for them", f"{calls:,}", f"{wanted:,}", met=calls == wanted),
    ]


async def _memory(key: str) -> Row:
    """Read over and over, after first reads that fill caches."""
    keys = [f"s{number}" for number in range(AT_ONCE)]
    async with InMemory(PROVIDER) as provider:
        await _rounds(provider, key, keys, WARM)
        before = resident()
        await _rounds(provider, key, keys, MANY)
        grown = resident() - before
    name = f"growth of the provider over {MANY:,} reads"
    return Row(name, f"{grown:+.1f} MiB", f"within {MEBIBYTES:g} MiB", met=abs(grown) <= MEBIBYTES)


async def _rounds(provider: InMemory, key: str, keys: list[str], reads: int) -> None:
    for _ in range(0, reads, len(keys)):
        await _values(provider, _store(key), keys)


async def _values(provider: InMemory, store: Context, keys: list[str]) -> None:
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        assert await read(provider, store, *some) == [b"value"] * len(some)


def _store(key: str, number: int = 0) -> Context:
    config = {"projectID": PROJECT, "auth": AUTH}
    return call_context(SecretManagerStore, config, {KEY: key}, namespace=f"team-{number}")


def _serve(connection: Connection) -> None:
    with Google.started() as google:
        for number in range(AT_ONCE):
            google.store(f"s{number}", b"value")
        connection.send((dict(google.environment), google.key()))

        def tidy() -> None:
            google.secrets.recorded.clear()
            google.secrets.tokens.clear()

        until_told(connection, tidy)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        yield
