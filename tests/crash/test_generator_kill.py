"""kill -9 of the operator before or after any outside call around generated values: generate, keep, write, retire.

A seed chooses the user of the value (an ExternalSecret or a PushSecret) and a call at which the operator is killed in
each phase: the first value, a new one, the deletion. After that one operator keeps running. The value in use is valid
and recorded, every generated value is recorded until it is cleaned up, and a value that reached its target or store
before the kill stays there.

A kill between the generation of a value and the record of its state loses nothing: the call is recorded before it is
made, and the value is cleaned up by its idempotency key.
"""

from __future__ import annotations

import base64
import os
import random
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.values import SecretBytes
from eso_operator.generators.ledger import IDEMPOTENCY_KEY
from eso_operator.targets.metadata import synced_version
from eso_testkit.operator.operators import MAKER
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import StoringProvider
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.paths import short_name
from eso_wire.values import CleanupOutcome, Generated
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS, document

pytestmark = pytest.mark.slow

SEEDS_BY_DEFAULT = 2
"""One for each owner; `make nightly` runs the others."""
LAST_CALL = 8
NAME = "subject"
MAKERS = MAKER.resource()
STATES = GENERATOR_STATE.resource()
REF = {"apiVersion": MAKERS.api_version, "kind": "Maker", "name": "maker"}


@dataclass(slots=True)
class Bookkeeper(StoringProvider):
    """Makes numbered values; `books` are those that are alive, by number."""

    books: dict[int, bytes] = field(default_factory=dict)
    made: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """The number of the value that was generated under each idempotency key."""

    def _respond(self, method: str, request: bytes) -> Message:
        match short_name(method):
            case "Generate":
                _, wanted = codec.from_generate_request(pb.GenerateRequest.FromString(request))
                self.made += 1
                self.numbers[wanted.idempotency_key] = self.made
                self.books[self.made] = value = f"value-{self.made}".encode()
                state = SecretBytes(msgspec.json.encode({"number": self.made}))
                return codec.to_generate_response(Generated({"password": SecretBytes(value)}, state))
            case "Cleanup":
                _, asked = codec.from_cleanup_request(pb.CleanupRequest.FromString(request))
                lost = not asked.state
                number = self.numbers.get(asked.idempotency_key, 0) if lost else _number(asked.state.reveal())
                gone = self.books.pop(number, None)
                return codec.to_cleanup_response(
                    CleanupOutcome.ALREADY_GONE if gone is None else CleanupOutcome.CLEANED
                )
        # Zero-argument super does not find its class here: a dataclass with slots is made twice.
        return StoringProvider._respond(self, method, request)


@pytest.fixture
async def backend(ground: Any) -> AsyncIterator[Bookkeeper]:
    async with ground.hosting(Bookkeeper(SystemClock())) as provider:
        yield provider


@dataclass(slots=True)
class Scene:
    """One owner of made values, in a namespace of its own."""

    api: Any
    nursery: Any
    provider: Bookkeeper
    owner: Resource
    namespace: str
    draw: random.Random

    async def prepare(self) -> None:
        await self._create(NAMESPACES, self.namespace, home="")
        await self._create(MAKERS, "maker", spec={"url": "x"})
        await self._create(SECRET_STORE.resource(), "backend", spec={"provider": {"fake": {"data": []}}})
        await self._create(self.owner, NAME, spec=self._spec())

    async def survive(self, holds: Any) -> None:
        """One operator dies at some call, or comes to an end; the next one gets there."""
        side, number = self.draw.choice(("before", "after")), self.draw.randint(1, LAST_CALL)
        before = await self.visible()
        async with self.nursery.life(self.namespace, f"{side} {number}") as life:
            await life.until(holds)
        new = await self.visible()
        async with self.nursery.life(self.namespace) as survivor:
            assert await survivor.until(holds)
            await survivor.until_quiet()
        if new not in (None, before) and (now := await self.visible()) is not None:
            assert now == new, f"a value that was in use was replaced after a kill {side} call {number}: {life.calls}"

    async def is_ready(self) -> bool:
        found = await self.find(self.owner, NAME) or {}
        status, meta = found.get("status", {}), found["metadata"]
        wanted = synced_version(meta["generation"], meta.get("labels", {}), meta.get("annotations", {}))
        ready = any((each["type"], each["status"]) == ("Ready", "True") for each in status.get("conditions", []))
        return ready and status.get("syncedResourceVersion") == wanted

    async def is_gone(self) -> bool:
        return await self.find(self.owner, NAME) is None and not await self.states()

    async def rotate(self) -> None:
        patch = {"metadata": {"annotations": {"force-sync": "1"}}}
        assert (await self.api.patch(self.owner.path(self.namespace, NAME), patch)).status == 200

    async def states(self) -> list[JsonObject]:
        return list((await self.api.get(STATES.path(self.namespace))).body["items"])

    async def value(self) -> bytes:
        """Return the value in use."""
        if self.owner == PUSH_SECRET.resource():
            return self.provider.values[self.namespace]
        found = await self.find(SECRETS, NAME) or {}
        return base64.b64decode(found["data"]["password"])

    async def visible(self) -> bytes | None:
        """Return the value that users see, if there is one."""
        if self.owner == PUSH_SECRET.resource():
            return self.provider.values.get(self.namespace)
        found = await self.find(SECRETS, NAME)
        return None if found is None else base64.b64decode(found["data"]["password"])

    async def check(self) -> None:
        """Check that the value in use is valid, and that every generated value is recorded by state or by call."""
        states = await self.states()
        calls = [each["metadata"].get("annotations", {}).get(IDEMPOTENCY_KEY, "") for each in states]
        on_record = {each["spec"]["state"].get("number") for each in states} | {
            self.provider.numbers.get(call) for call in calls
        }
        staying = [
            each["spec"]["state"]["number"] for each in states if "garbageCollectionDeadline" not in each["spec"]
        ]
        value = await self.value()
        assert [self.provider.books[number] for number in staying] == [value]
        assert set(self.provider.books) <= on_record

    async def clear(self) -> None:
        """Stores that stay would be validated by every operator to come, and its deaths would fall there."""
        store = SECRET_STORE.resource().path(self.namespace, "backend")
        await self.api.patch(store, {"metadata": {"finalizers": None}})
        await self.api.delete(store)
        await self.api.delete(NAMESPACES.path("", self.namespace))

    async def find(self, resource: Resource, name: str) -> JsonObject | None:
        answer = await self.api.get(resource.path(self.namespace, name))
        return dict(answer.body) if answer.status == 200 else None

    def _spec(self) -> JsonObject:
        if self.owner == PUSH_SECRET.resource():
            return {
                "deletionPolicy": "Delete",
                "secretStoreRefs": [{"name": "backend"}],
                "selector": {"generatorRef": REF},
                "data": [entry("password", self.namespace)],
            }
        return {"refreshInterval": "1h", "dataFrom": [{"sourceRef": {"generatorRef": REF}}]}

    async def _create(self, resource: Resource, name: str, home: str | None = None, **fields: Any) -> None:
        where = self.namespace if home is None else home
        answer = await self.api.post(resource.path(where), document(resource, name, where, **fields))
        assert answer.status == 201, answer.body


def _number(state: bytes) -> int:
    number: int = msgspec.json.decode(state)["number"]
    return number


@pytest.mark.parametrize("seed", range(int(os.environ.get("ESO_CRASH_SEEDS", SEEDS_BY_DEFAULT))))
async def test_generated_values_are_on_record_after_a_kill_at_any_call(
    seed: int, api: Any, ground: Any, backend: Bookkeeper
) -> None:
    owner = (EXTERNAL_SECRET, PUSH_SECRET)[seed % 2].resource()
    namespace = f"made-kill-{seed}-{secrets.token_hex(3)}"
    draw = random.Random(seed)  # noqa: S311 - a test that can be repeated
    scene = Scene(api, ground.nursery, backend, owner, namespace, draw)
    await scene.prepare()

    await scene.survive(scene.is_ready)
    await scene.check()
    await scene.rotate()
    await scene.survive(scene.is_ready)
    await scene.check()
    await api.delete(owner.path(namespace, NAME))
    await scene.survive(scene.is_gone)

    assert backend.books == {}
    assert backend.values == {}
    await scene.clear()
