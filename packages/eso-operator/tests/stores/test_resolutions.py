"""A resolution is given again while all it went by is as it was, and not a moment longer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.stores import resolve as module
from eso_operator.stores.resolve import Providers, ResolutionCache, Resolver
from eso_operator.stores.resolved import Connection, ResolutionError, ResolvedStore, Scope
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    ObjectsInMemory,
    caller,
    namespace_object,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import Handshake, KindId, ObjectRef
from kubebase.meta import JsonObject, ObjectKey

FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
STORE = StoreRef(kind="ClusterSecretStore", name="store")
SERVICE = provider_service("provider-fake", CORE, kinds=str(FAKE), v1_keys="fake")
ADMITTED = [{"namespaceSelector": {"matchLabels": {"team": "yes"}}}]


def cluster_store(value: str = "v", generation: int = 1) -> JsonObject:
    spec = {"provider": {"fake": {"data": [{"key": "k", "value": value}]}}, "conditions": ADMITTED}
    made = obj("external-secrets.io/v1", "ClusterSecretStore", "store", spec=spec, status=ready())
    made["metadata"]["generation"] = generation
    return made


class World(ObjectsInMemory, Providers):
    """Objects that count requests, and providers whose responses can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = 0
        self._handshakes: dict[str, Handshake | str] = {}
        self.answer = serving(FAKE, v1_key="fake")
        self._revisions: Counter[tuple[str, str]] = Counter()
        for document in (
            SERVICE,
            cluster_store(),
            namespace_object("a", team="yes"),
            namespace_object("b", team="yes"),
        ):
            self.add(document)

    def add(self, document: JsonObject) -> None:
        super().add(document)
        self._revisions[document["apiVersion"].rpartition("/")[0], document["kind"]] += 1

    def revision(self, kind: KindId) -> int:
        return -1 if self.scope(kind) is None else self._revisions[kind.group, kind.kind]

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        self.requested += 1
        return super().get(kind, key)

    async def include(self, kind: KindId) -> bool:
        self._scopes[kind.group, kind.kind] = Scope.NAMESPACED
        return True

    @property
    def handshakes(self) -> dict[str, Handshake | str]:
        return self._handshakes

    async def ensure(self, connection: Connection) -> Handshake:
        self.handshakes[connection.key] = self.answer
        return self.answer

    def starting(self, connection: Connection) -> float:
        return 0.0 if connection.key in self.handshakes else 1.0

    def unreachable(self, connection: Connection) -> None:
        del connection

    def returned(self, connection: Connection) -> float:
        return 0.0 if connection.key in self.handshakes else 1.0

    def expecting(self, wanted: str) -> float:
        return 0.0 if wanted else 1.0

    def resolver(self) -> Resolver:
        return Resolver(self, self, SETTINGS, ResolutionCache(self, self.handshakes))


async def resolved(resolver: Resolver, who: ObjectRef) -> ResolvedStore:
    return await resolver.resolve(STORE, who, ANYTHING)


async def test_callers_of_one_namespace_share_a_resolution_under_their_own_names() -> None:
    world = World()
    resolver = world.resolver()
    first = await resolved(resolver, caller("a"))
    requested = world.requested

    other = replace(caller("a"), name="other", uid="other")
    second = await resolved(resolver, other)

    assert world.requested == requested
    assert second == replace(first, caller=other)


async def test_callers_of_other_namespaces_are_judged_on_their_own() -> None:
    world = World()
    resolver = world.resolver()
    await resolved(resolver, caller("a"))

    with pytest.raises(ResolutionError, match="limited to some namespaces"):
        await resolved(resolver, caller("outsider"))


@pytest.mark.parametrize(
    ("change", "cached"),
    [
        pytest.param(lambda _: None, True, id="nothing"),
        pytest.param(lambda world: world.add(obj("v1", "Pod", "p", "a")), True, id="what it did not look at"),
        pytest.param(lambda world: world.add(cluster_store("w", 2)), False, id="the store"),
        pytest.param(lambda world: world.add(namespace_object("a", team="yes", more="x")), False, id="the namespace"),
        pytest.param(lambda world: world.add(SERVICE), False, id="the Service"),
        pytest.param(
            lambda world: world.handshakes.update(dict.fromkeys(world.handshakes, serving(FAKE, v1_key="fake"))),
            False,
            id="what the provider says",
        ),
        pytest.param(lambda world: world.handshakes.clear(), False, id="the provider is gone"),
    ],
)
async def test_a_resolution_is_repeated_only_after_a_change_of_its_inputs(change: Any, cached: bool) -> None:
    world = World()
    resolver = world.resolver()
    await resolved(resolver, caller("a"))
    change(world)
    requested = world.requested

    again = await resolved(resolver, caller("a"))

    assert (world.requested == requested) is cached
    assert again == await Resolver(world, world, SETTINGS).resolve(STORE, caller("a"), ANYTHING)


async def test_a_namespace_that_loses_its_admission_is_refused_at_once() -> None:
    world = World()
    resolver = world.resolver()
    await resolved(resolver, caller("a"))

    world.add(namespace_object("a"))

    with pytest.raises(ResolutionError, match="conditions"):
        await resolved(resolver, caller("a"))


async def test_the_longest_unused_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 1)
    world = World()
    resolver = world.resolver()
    await resolved(resolver, caller("a"))
    await resolved(resolver, caller("b"))
    requested = world.requested

    await resolved(resolver, caller("a"))

    assert world.requested > requested
