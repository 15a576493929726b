"""A fake provider in memory with a world of its own, and the little that its tests say again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from eso_api.values import SecretBytes
from eso_provider_fake.provider import fake_provider
from eso_provider_fake.store import World
from eso_sdk.testing import InMemory, call_context
from eso_wire.values import Context, DeleteBatch, DeleteItem, ObjectRef, PushBatch, PushItem, RemoteRef
from kubebase.testing.clock import VirtualClock

SPEC = {
    "data": [
        {"key": "plain", "value": "hello"},
        {"key": "doc", "value": '{"user":"jane","n":1.50,"deep":{"x":[1,2]},"null":null}'},
        {"key": "db/a", "value": "old", "version": "v1"},
        {"key": "db/a", "value": "new", "version": "v2"},
        {"key": "db/b", "value": "only", "version": "v10"},
    ]
}


class Fake:
    """A fake provider, the world behind it, and its clock."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = VirtualClock()
        self.provider = fake_provider(self.world)
        self.client = InMemory(self.provider, self.clock)

    def context(
        self,
        spec: Mapping[str, Any] | None = None,
        *,
        store: str = "store",
        namespace: str = "team",
        uid: str = "uid-3",
    ) -> Context:
        return call_context(
            self.provider.kinds[0],
            SPEC if spec is None else spec,
            namespace=namespace,
            store=ObjectRef("external-secrets.io/v1", "SecretStore", namespace, store, uid),
        )

    async def push(self, key: str, value: str | Mapping[str, str], context: Context | None = None, **item: Any) -> Any:
        payload = (
            SecretBytes(value.encode())
            if isinstance(value, str)
            else {name: SecretBytes(text.encode()) for name, text in value.items()}
        )
        pushed = PushItem("only", RemoteRef(key, property=item.pop("property", "")), payload, **item)
        return (await self.client.push(context or self.context(), PushBatch((pushed,))))[0]

    async def delete(self, key: str, context: Context | None = None, **item: Any) -> Any:
        batch = DeleteBatch((DeleteItem("only", RemoteRef(key), **item),))
        return (await self.client.delete(context or self.context(), batch))[0]

    async def read(self, key: str, context: Context | None = None, **ref: Any) -> Any:
        """The text of a value, or the reason why there is none."""
        outcome = (await self.client.get_one(context or self.context(), key, **ref)).outcome
        return outcome.reveal().decode() if isinstance(outcome, SecretBytes) else getattr(outcome, "reason", outcome)


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    made = Fake()
    async with made.client:
        yield made


@pytest.fixture
def no_exit() -> Callable[[int], None]:
    """Stands in for the end of the process."""

    def leave(code: int) -> None:
        raise RuntimeError(f"left with {code}")

    return leave
