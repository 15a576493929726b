"""The Akeyless provider on its test server: how many calls refreshes, logins, refusals and missing keys cost."""

from __future__ import annotations

import asyncio
import os

from report import Row

from eso_provider_akeyless.provider import PROVIDER
from eso_provider_akeyless.testing.server import AkeylessServer
from eso_provider_akeyless.testing.sessions import store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_wire.errors import ProviderError
from eso_wire.values import Context
from kubebase.clock import SystemClock
from kubebase.testing.clock import VirtualClock

KEYS, STORES, MINUTES, EVERY = 200, 50, 10, 5.0


def measure() -> list[Row]:
    os.environ["NO_PROXY"] = "127.0.0.1"
    with AkeylessServer.started() as server:
        for number in range(KEYS):
            server.put(f"/app/key-{number}", f"value {number}")
        return asyncio.run(_measured(server))


async def _measured(server: AkeylessServer) -> list[Row]:
    clock = VirtualClock()
    server.skew = clock.now().timestamp() - SystemClock().now().timestamp()
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as provider:
        keys = [f"/app/key-{number}" for number in range(KEYS)]
        stores = [store(server.url, namespace=f"team-{number}") for number in range(STORES)]
        _check(await read(provider, stores[0], *keys))
        first = len(server.commands())
        _check(await read(provider, stores[0], *keys))
        refresh = len(server.commands()) - first
        for each in stores[1:]:
            _check(await read(provider, each, keys[0]))
        logins = len(server.commands("auth"))
        missing = await _repeated(server, provider, clock, stores[0], "/app/gone")
        refused = await _repeated(server, provider, clock, store(server.url, "wrong"), keys[0])
    return [
        Row(f"calls for the first read of {KEYS} static keys", f"{first}", f"{KEYS + 1}", first == KEYS + 1),
        Row(f"calls for a refresh of {KEYS} static keys", f"{refresh}", "1", refresh == 1),
        Row(f"logins for {STORES} stores of one identity", f"{logins}", "1", logins == 1),
        Row(f"calls for a missing key in {MINUTES} min, read every {EVERY:g} s", *_bound(missing)),
        Row(f"calls with a wrong access key in {MINUTES} min, tried every {EVERY:g} s", *_bound(refused)),
    ]


async def _repeated(server: AkeylessServer, provider: InMemory, clock: VirtualClock, call: Context, key: str) -> int:
    """Read a key again and again; return how many calls that cost."""
    server.calls.clear()
    for _ in range(int(MINUTES * 60 / EVERY)):
        await read(provider, call, key)
        await clock.advance(EVERY)
    return len(server.calls)


def _bound(calls: int) -> tuple[str, str, bool]:
    return f"{calls}", f"<= {MINUTES}", calls <= MINUTES


def _check(values: list[bytes | ProviderError]) -> None:
    if failed := [value for value in values if isinstance(value, ProviderError)]:
        raise failed[0]
