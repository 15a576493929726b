"""The Google provider on its test server: reads side by side, tokens, listings, and memory over many reads."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from report import Row

from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.testing.google import Google
from eso_provider_gcp.testing.sessions import context
from eso_sdk.testing import InMemory
from eso_wire.errors import ProviderError
from eso_wire.values import Context, FindQuery, GetItem, RemoteRef

STORES, READS, LATENCY = 50, 500, 0.05
WARM, MANY, AT_ONCE = 4_000, 20_000, 200
SECONDS, MEBIBYTES = 2.0, 2.0


def measure() -> list[Row]:
    with Google.started() as google, pytest.MonkeyPatch.context() as patched:
        for name, value in google.environment.items():
            patched.setenv(name, value)
        for number in range(READS):
            google.store(f"s{number}", b"value")
        return asyncio.run(_measured(google))


async def _measured(google: Google) -> list[Row]:
    async with InMemory(PROVIDER) as provider:
        stores = [context(google, namespace=f"team-{number}") for number in range(STORES)]
        await asyncio.gather(*(_read(provider, store, ["s0"]) for store in stores))
        google.secrets.latency = LATENCY
        begun = time.monotonic()
        each = READS // STORES
        await asyncio.gather(
            *(
                _read(provider, store, [f"s{number * each + at}" for at in range(each)])
                for number, store in enumerate(stores)
            )
        )
        seconds = time.monotonic() - begun
        google.secrets.reset()
        await provider.find(stores[0], FindQuery(name_regexp="^nothing$"))
        listings = google.secrets.calls["ListSecrets"]
        grown = await _growth(google, provider, stores[0])
    tokens, connections = len(google.tokens.requests("/token")), len(google.secrets.peers)
    return [
        Row(
            f"seconds for {READS} reads of {LATENCY * 1000:.0f} ms through {STORES} stores (one at a time: 25)",
            f"{seconds:.2f} s",
            f"< {SECONDS:g} s",
            seconds < SECONDS,
        ),
        Row(f"tokens for {STORES} stores of one identity", f"{tokens}", "1", tokens == 1),
        Row("connections for them", f"{connections}", "1", connections == 1),
        Row("calls of a find that matches nothing", f"{listings}", "1", listings == 1),
        Row(
            f"growth over {MANY:,} reads, with the test server",
            f"{grown:.1f} MiB",
            f"<= {MEBIBYTES:g} MiB",
            grown <= MEBIBYTES,
        ),
    ]


async def _read(provider: InMemory, store: Context, keys: list[str]) -> None:
    results = await provider.get(store, [GetItem(key, RemoteRef(key)) for key in keys])
    assert not any(isinstance(result.outcome, ProviderError) for result in results)


async def _growth(google: Google, provider: InMemory, store: Context) -> float:
    keys = [f"s{number}" for number in range(AT_ONCE)]
    before = 0.0
    for done in range(0, WARM + MANY, AT_ONCE):
        if done == WARM:
            before = _resident()
        google.secrets.asked.clear()
        google.secrets.tokens.clear()
        await _read(provider, store, keys)
    return _resident() - before


def _resident() -> float:
    """Return the memory of this process in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
