"""The 1Password provider on its stand-ins: calls of a refresh, of failures, and through sporadic refusals.

Time is virtual where minutes have to pass. The rows count calls, so that the load of the machine does not matter. The
file is not named `onepassword.py`: that is the module of the vendor's SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from report import Row

from eso_provider_onepassword.provider import PROVIDER
from eso_provider_onepassword.testing.connect import ConnectServer
from eso_provider_onepassword.testing.core import RATE_LIMITED, FakeAccount
from eso_provider_onepassword.testing.sessions import connect, failure, pumped, read, sdk
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory
from eso_wire.values import Context
from kubebase.testing.clock import VirtualClock

ITEMS, FIELDS = 10, 5
VALUES = {f"item-{number}": {f"field-{at}": "value" for at in range(FIELDS)} for number in range(ITEMS)}
MINUTES, STEP, ROUNDS = 10, 5, 20
WRONG = "not-a-token"


def measure() -> list[Row]:
    with (
        ConnectServer.started() as server,
        FakeAccount().installed() as account,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setenv("NO_PROXY", "127.0.0.1")
        for title, values in VALUES.items():
            server.vault("team").put(title, values)
            account.vault("team").put(title, values)
        return asyncio.run(_measured(server, account))


async def _measured(server: ConnectServer, account: FakeAccount) -> list[Row]:
    clock = VirtualClock()
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as provider:
        through = _Counter(provider, clock, server.calls)
        with_account = _Counter(provider, clock, account.calls)
        return [
            *await _refreshes(through, connect(server), "Connect", "#"),
            *await _failures(through, connect(server), connect(server, token=WRONG), "Connect"),
            *await _refreshes(with_account, sdk(), "SDK", "/"),
            *await _failures(with_account, sdk(), sdk(token=WRONG), "SDK"),
            await _limited(with_account, account),
            await _sporadic(through, server),
        ]


class _Counter:
    """Reads, and counts what arrives at the backend."""

    def __init__(self, provider: InMemory, clock: VirtualClock, calls: Sequence[object]) -> None:
        self.provider = provider
        self.clock = clock
        self.calls = calls

    async def refresh(self, call: Context, separator: str) -> tuple[int, int]:
        """Read all keys; return how many values and how many calls there were."""
        before = len(self.calls)
        refs = [f"{title}{separator}{label}" for title, values in VALUES.items() for label in values]
        found = await read(self.provider, call, *refs)
        return sum(isinstance(each, bytes) for each in found), len(self.calls) - before

    async def failing(self, call: Context, key: str) -> float:
        """Read a key that fails every few seconds; return the calls a minute, after the first minute."""
        await self._minutes(1, call, key)
        before = len(self.calls)
        await self._minutes(MINUTES, call, key)
        return (len(self.calls) - before) / MINUTES

    async def _minutes(self, minutes: int, call: Context, key: str) -> None:
        for _ in range(minutes * 60 // STEP):
            await failure(self.provider, call, key)
            await self.clock.advance(STEP)


async def _refreshes(through: _Counter, call: Context, form: str, separator: str) -> list[Row]:
    values, first = await through.refresh(call, separator)
    again, second = await through.refresh(call, separator)
    complete = values == again == ITEMS * FIELDS
    return [
        Row(f"{form}: calls for {values} keys of {ITEMS} items", str(first), "<= 12", complete and first <= 12),
        Row(f"{form}: calls for them if nothing changed", str(second), "1", complete and second == 1),
    ]


async def _failures(through: _Counter, call: Context, wrong: Context, form: str) -> list[Row]:
    missing, refused = await through.failing(call, "no-such-item"), await through.failing(wrong, "item-0")
    every = f"read every {STEP} s"
    return [
        Row(f"{form}: calls a minute for a missing item, {every}", f"{missing:g}", "<= 1", missing <= 1),
        Row(f"{form}: calls a minute with a bad token, {every}", f"{refused:g}", "<= 1", refused <= 1),
    ]


async def _limited(through: _Counter, account: FakeAccount) -> Row:
    """A limit that lasts: each attempt that reaches the service would count against it."""
    account.failures = [RATE_LIMITED] * 1000
    rate = await through.failing(sdk(), "item-0/field-0")
    account.failures = []
    await through.clock.advance(120)
    return Row(f"SDK: calls a minute while it is limited, read every {STEP} s", f"{rate:g}", "<= 1.5", rate <= 1.5)


async def _sporadic(through: _Counter, server: ConnectServer) -> Row:
    """Two of three answers to each request are 403; every round changes an item, so that all kinds of reads happen."""
    server.flaky, failed = True, 0
    for number in range(ROUNDS):
        server.vault("team").put("item-0", {"field-0": f"round {number}"})
        found = await pumped(through.clock, read(through.provider, connect(server), "item-0#field-0", "item-1#field-1"))
        failed += sum(not isinstance(each, bytes) for each in found)
    server.flaky = False
    return Row(f"Connect: failed values of {2 * ROUNDS}, if 2 of 3 answers are 403", str(failed), "0", failed == 0)
