"""Generation in one namespace does not delay another: long passwords and large keys. On a real loop, in real time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eso_provider_generators.generators import PasswordGenerator, SSHKeyGenerator, UUIDGenerator
from eso_provider_generators.provider import PROVIDER
from eso_sdk.provider import Generator
from eso_sdk.testing import InMemory, call_context
from kubebase.clock import SystemClock
from kuberun.testing.heartbeat import heartbeat

LONG = {"length": 65_536, "allowRepeat": True, "secretKeys": [f"key{number}" for number in range(16)]}
CLOCK = SystemClock()


def spec_of(generator: type[Generator[Any]], number: int) -> dict[str, Any]:
    """Each another configuration, and so a session of its own."""
    if generator is SSHKeyGenerator:
        return {"keyType": "rsa", "keySize": 4096, "comment": str(number)}
    return LONG | {"symbolCharacters": "!?" + "#" * number}


@pytest.mark.parametrize(
    ("generator", "neighbour"),
    [
        pytest.param(PasswordGenerator, UUIDGenerator, id="a UUID beside long passwords"),
        pytest.param(PasswordGenerator, PasswordGenerator, id="a short password beside long ones"),
        pytest.param(PasswordGenerator, SSHKeyGenerator, id="a key pair beside long passwords"),
        pytest.param(SSHKeyGenerator, PasswordGenerator, id="a password beside large keys"),
    ],
)
async def test_a_neighbour_gets_values_while_others_make_large_ones(
    generator: type[Generator[Any]], neighbour: type[Generator[Any]]
) -> None:
    async with InMemory(PROVIDER, CLOCK) as client:
        busy = [
            asyncio.create_task(
                client.generate(call_context(generator, spec_of(generator, number), namespace="greedy"))
            )
            for number in range(8)
        ]
        async with heartbeat() as heart:
            for _ in range(5):
                await CLOCK.sleep(0.05)
                spec = {"keyType": "ed25519"} if neighbour is SSHKeyGenerator else {}
                await client.generate(call_context(neighbour, spec, namespace="neighbour"))
            waiting = [task for task in busy if not task.done()]
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    assert heart.worst_lag < 1.0
    assert waiting, "the neighbour did not wait for all of them"


async def test_symbols_are_bounded() -> None:
    async with InMemory(PROVIDER, CLOCK) as client:
        with pytest.raises(Exception, match="symbolCharacters: at most 4096 characters"):
            await client.generate(call_context(PasswordGenerator, {"symbolCharacters": "x" * 5000}))
