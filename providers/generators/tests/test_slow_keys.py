"""Keys that take longer to make than the call that asked for them lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from eso_provider_generators import generators
from eso_provider_generators.generators import SSHKeyGenerator
from eso_provider_generators.provider import PROVIDER
from eso_sdk.frame import DEFAULT_DEADLINE
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.testing.clock import VirtualClock

SPEC = {"keyType": "rsa", "keySize": 8192}


@dataclass(slots=True)
class SlowKeys:
    """Makes keys, none before it is let."""

    loop: asyncio.AbstractEventLoop
    begun: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    let: threading.Event = field(default_factory=threading.Event)
    count: int = 0

    def make(self, _: Any) -> ed25519.Ed25519PrivateKey:
        self.count += 1
        self.loop.call_soon_threadsafe(self.begun.release)
        self.let.wait()
        return ed25519.Ed25519PrivateKey.generate()


@pytest.fixture
async def keys(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlowKeys]:
    slow = SlowKeys(asyncio.get_running_loop())
    monkeypatch.setattr(generators, "_private_key", slow.make)
    yield slow
    slow.let.set()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def client(clock: VirtualClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock) as made:
        yield made


async def _public(client: InMemory) -> bytes:
    made = await client.generate(call_context(SSHKeyGenerator, SPEC))
    return made.data["publicKey"].reveal()


async def test_a_key_that_outlasts_its_call_is_given_to_the_next_call_only(
    client: InMemory, clock: VirtualClock, keys: SlowKeys
) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_refusal(client))
        await keys.begun.acquire()
        await clock.advance(DEFAULT_DEADLINE)
    keys.let.set()

    second, third = await _public(client), await _public(client)

    assert first.result() is ErrorReason.BACKEND_TIMEOUT
    assert keys.count == 2
    assert second != third


async def test_calls_at_the_same_time_get_keys_of_their_own(client: InMemory, keys: SlowKeys) -> None:
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(_public(client)) for _ in range(2)]
        await keys.begun.acquire()
        await keys.begun.acquire()
        keys.let.set()

    assert calls[0].result() != calls[1].result()


async def _refusal(client: InMemory) -> ErrorReason:
    with pytest.raises(ProviderError) as caught:
        await _public(client)
    return caught.value.reason
