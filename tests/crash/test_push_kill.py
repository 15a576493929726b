"""kill -9 of the operator before or after any outside call of a push, and of the deletion that follows.

A seed chooses policies and two calls at which the operator is killed: one during the push, one during the clean-up.
After that one operator keeps running. No value may be lost, no foreign value overwritten or deleted, and no recorded
value left behind. Values that must be deleted are deleted even if the object was deleted before its status recorded
them.
"""

from __future__ import annotations

import base64
import os
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_testkit.operator.pushsecrets import entry
from eso_testkit.operator.storingprovider import StoringProvider, storing
from kubebase.meta import JsonObject, Resource
from kuberun.testing.builders import NAMESPACES, SECRETS, document

pytestmark = pytest.mark.slow

PUSHES = PUSH_SECRET.resource()
SEEDS = int(os.environ.get("ESO_CRASH_SEEDS", "4"))
"""One for each pair of policies."""
LAST_CALL = 7
POLICIES = [(update, delete) for update in ("Replace", "IfNotExists") for delete in ("Delete", "None")]
NAME = "subject"


@pytest.fixture
async def backend(ground: Any) -> AsyncIterator[StoringProvider]:
    async with ground.hosting(storing()) as provider:
        yield provider


@dataclass(slots=True)
class Scene:
    """One PushSecret in a namespace of its own. `theirs` has an owner, `taken` has none and is pushed over."""

    api: Any
    nursery: Any
    backend: StoringProvider
    namespace: str
    draw: random.Random
    update: str
    delete: str

    @property
    def keys(self) -> tuple[str, str, str]:
        return f"{self.namespace}/ours", f"{self.namespace}/theirs", f"{self.namespace}/taken"

    async def prepare(self) -> None:
        ours, theirs, taken = self.keys
        self.backend.put(theirs, b"theirs", "another")
        self.backend.put(taken, b"before")
        await _create(self.api, NAMESPACES, self.namespace)
        store = {"provider": {"fake": {"data": [{"key": "a", "value": "b"}]}}}
        value = base64.b64encode(b"value").decode()
        await _create(self.api, SECRET_STORE.resource(), "backend", self.namespace, spec=store)
        await _create(self.api, SECRETS, "source", self.namespace, data={"password": value})
        spec = {
            "updatePolicy": self.update,
            "deletionPolicy": self.delete,
            "secretStoreRefs": [{"name": "backend"}],
            "selector": {"secret": {"name": "source"}},
            "data": [entry("password", ours), entry("password", taken)],
        }
        await _create(self.api, PUSHES, NAME, self.namespace, spec=spec)

    async def die(self, holds: Callable[[], Awaitable[bool]]) -> None:
        crash = f"{self.draw.choice(('before', 'after'))} {self.draw.randint(1, LAST_CALL)}"
        async with self.nursery.life(self.namespace, crash) as life:
            await life.until(holds)

    async def survive(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with self.nursery.life(self.namespace) as survivor:
            assert await survivor.until(holds)
            await survivor.until_quiet()

    async def is_ready(self) -> bool:
        conditions = (await self.find() or {}).get("status", {}).get("conditions", [])
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    async def is_gone(self) -> bool:
        return await self.find() is None

    async def remove(self) -> None:
        await self.api.delete(PUSHES.path(self.namespace, NAME))

    async def recorded(self) -> set[str]:
        found = await self.find()
        assert found is not None
        return set(found["status"].get("syncedPushSecrets", {}).get("SecretStore/backend", {}))

    async def clear(self) -> None:
        """Stores that stay would be validated by every operator to come, and its deaths would fall there."""
        store = SECRET_STORE.resource().path(self.namespace, "backend")
        await self.api.patch(store, {"metadata": {"finalizers": None}})
        await self.api.delete(store)
        await self.api.delete(NAMESPACES.path("", self.namespace))

    async def find(self) -> JsonObject | None:
        answer = await self.api.get(PUSHES.path(self.namespace, NAME))
        return dict(answer.body) if answer.status == 200 else None


Scenes = Callable[[str, int], Scene]


@pytest.fixture
def scene(api: Any, ground: Any, backend: StoringProvider) -> Scenes:
    def made(name: str, seed: int) -> Scene:
        draw = random.Random(f"{name} {seed}")  # noqa: S311 - a test that can be repeated
        namespace = f"{name}-{seed}-{secrets.token_hex(3)}"
        return Scene(api, ground.nursery, backend, namespace, draw, *POLICIES[seed % len(POLICIES)])

    return made


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_pushes_survive_kills(seed: int, scene: Scenes, backend: StoringProvider) -> None:
    subject = scene("push-kill", seed)
    ours, theirs, taken = subject.keys
    await subject.prepare()

    await subject.die(subject.is_ready)
    await subject.survive(subject.is_ready)
    recorded = await subject.recorded()
    replaced = b"value" if subject.update == "Replace" else b"before"
    assert backend.values == {ours: b"value", theirs: b"theirs", taken: replaced}
    assert taken not in recorded or subject.update == "Replace"
    await subject.remove()
    await subject.die(subject.is_gone)
    await subject.survive(subject.is_gone)

    kept = {ours: b"value", theirs: b"theirs", taken: replaced}
    removed = recorded if subject.delete == "Delete" else set()
    assert backend.values == {key: value for key, value in kept.items() if key not in removed}
    await subject.clear()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_an_object_that_goes_right_after_a_kill_leaves_nothing_foreign_touched_and_nothing_of_its_own(
    seed: int, scene: Scenes, backend: StoringProvider
) -> None:
    """No operator runs between the push and the deletion, so IfNotExists cannot tell its own values and keeps them."""
    subject = scene("hasty-kill", seed)
    ours, theirs, taken = subject.keys
    await subject.prepare()

    await subject.die(subject.is_ready)
    await subject.remove()
    await subject.die(subject.is_gone)
    await subject.survive(subject.is_gone)

    assert backend.values[theirs] == b"theirs"
    if subject.update == "IfNotExists":
        assert backend.values[taken] == b"before"
    elif subject.delete == "Delete":
        assert ours not in backend.values
    await subject.clear()


async def _create(api: Any, resource: Resource, name: str, namespace: str = "", **fields: Any) -> None:
    answer = await api.post(resource.path(namespace), document(resource, name, namespace, **fields))
    assert answer.status == 201, answer.body
