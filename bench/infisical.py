"""The Infisical provider on its test server: how many calls lists, logins, refusals and missing keys cost."""

from __future__ import annotations

import asyncio
import os

from report import Row

from eso_provider_infisical.provider import PROVIDER
from eso_provider_infisical.testing.server import CREDENTIALS, InfisicalServer, store
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_sdk.testing.server import read
from eso_wire.errors import ProviderError
from eso_wire.values import Context
from kubebase.testing.clock import VirtualClock

KEYS, STORES, MINUTES, EVERY = 200, 50, 10, 5.0
_LOGINS = "POST /api/v1/auth/*/login"


def measure() -> list[Row]:
    os.environ["NO_PROXY"] = "127.0.0.1"
    with InfisicalServer.started() as server:
        for number in range(KEYS):
            server.project().put(f"/app/KEY_{number}", f"value {number}")
        return asyncio.run(_measured(server))


async def _measured(server: InfisicalServer) -> list[Row]:
    clock = VirtualClock()
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as provider:
        keys = [f"KEY_{number}" for number in range(KEYS)]
        stores = [store(server, namespace=f"team-{number}", secretsPath="/app") for number in range(STORES)]
        _check(await read(provider, stores[0], *keys))
        lists = len(server.lists()) + len(server.singles())
        for each in stores[1:]:
            _check(await read(provider, each, keys[0]))
        logins = len(server.requests(_LOGINS))
        server.calls.clear()
        missing = await _repeated(server, provider, clock, stores[0], "GONE")
        wrong = store(server, CREDENTIALS | {"/auth/universalAuthCredentials/clientSecret": "wrong"}, namespace="other")
        server.calls.clear()
        refused = await _repeated(server, provider, clock, wrong, "KEY_1")
    return [
        Row(f"calls for {KEYS} keys of one folder", f"{lists}", "1", lists == 1),
        Row(f"logins for {STORES} stores of one identity", f"{logins}", "1", logins == 1),
        Row(f"calls for a missing key in {MINUTES} min, read every {EVERY:g} s", *_bound(missing)),
        Row(f"calls with a wrong client secret in {MINUTES} min, tried every {EVERY:g} s", *_bound(refused)),
    ]


async def _repeated(server: InfisicalServer, provider: InMemory, clock: VirtualClock, call: Context, key: str) -> int:
    """Read a key again and again; return how many calls that cost."""
    for _ in range(int(MINUTES * 60 / EVERY)):
        await read(provider, call, key)
        await clock.advance(EVERY)
    return len(server.calls)


def _bound(calls: int) -> tuple[str, str, bool]:
    return f"{calls}", f"<= {MINUTES}", calls <= MINUTES


def _check(values: list[bytes | ProviderError]) -> None:
    if failed := [value for value in values if isinstance(value, ProviderError)]:
        raise failed[0]
