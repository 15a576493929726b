"""Calls of a plan: reads reach the provider, writes never do, and a withheld push is what later reads return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import GENERATORS_GROUP
from eso_api.values import SecretBytes
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.resolved import BoundStore
from eso_testkit.operator.boundstores import bound_store, endpoint, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_tools.plan.withholding import NOT_CALLED, Unread, Withheld, WithholdingTransport, WouldDelete, WouldPush
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CleanupRequest,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GenerateRequest,
    KindId,
    KindInfo,
    KindRole,
    Operation,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    WatchItem,
)
from kubebase.testing.clock import VirtualClock

WRITES = {"PushSecrets", "DeleteSecrets", "Generate", "Cleanup", "Subscribe"}


class Scene:
    """A gateway whose calls are those of a plan, over a provider that counts every call that arrives."""

    def __init__(self, **data: bytes) -> None:
        clock = VirtualClock()
        self.provider = ScriptedProvider(clock, data=data)
        self.withheld = Withheld()
        plan = LoopbackGateway(clock, self.provider, through=lambda plain: WithholdingTransport(plain, self.withheld))
        self.gateway: Gateway = plan.gateway
        self.bound = bound_store()

    async def push(self, key: str, value: bytes, condition: PushPrecondition = PushPrecondition.NONE) -> PushOutcome:
        item = PushItem("0", RemoteRef(key), SecretBytes(value), precondition=condition)
        (result,) = await self.gateway.push(self.bound, PushBatch((item,)))
        assert isinstance(result.outcome, PushOutcome)
        return result.outcome

    def written(self) -> set[str]:
        return WRITES & self.provider.calls.keys()


def generator(kind: KindId) -> BoundStore:
    found = bound_store()
    resolved = replace(found.resolved, role=KindRole.GENERATOR)
    return replace(found, resolved=resolved, config=replace(found.config, kind=kind))


async def test_no_call_with_an_effect_reaches_the_provider() -> None:
    scene = Scene(a=b"old")
    bound, gateway = scene.bound, scene.gateway
    outside = generator(KindId("generators.external-secrets.io", "v1alpha1", "ECRAuthorizationToken"))

    await gateway.handshake(endpoint(), bound.resolved.tls)
    await gateway.validate(bound)
    await gateway.get(bound, wanted("a"))
    await gateway.check(bound, wanted("a"))
    await gateway.find(bound, FindQuery(name_regexp=".*"))
    await scene.push("a", b"new")
    await gateway.delete(bound, DeleteBatch((DeleteItem("0", RemoteRef("a")),)))
    refused: list[Any] = [
        gateway.generate(outside, GenerateRequest()),
        gateway.cleanup(outside, CleanupRequest(SecretBytes(b"state"))),
        gateway.subscribe(bound, [WatchItem("w", RemoteRef("a"))]).__aenter__(),
    ]
    for call in refused:
        with pytest.raises(ProviderError):
            await call

    assert scene.written() == set()
    assert scene.provider.data == {"a": b"old"}
    assert {"Handshake", "Validate", "GetSecrets", "CheckSecrets", "FindSecrets"} <= scene.provider.calls.keys()


@pytest.mark.parametrize(
    ("key", "condition", "outcome"),
    [
        pytest.param("new", PushPrecondition.NONE, PushOutcome.CREATED, id="a new key"),
        pytest.param("a", PushPrecondition.NONE, PushOutcome.UPDATED, id="another value"),
        pytest.param("same", PushPrecondition.NONE, PushOutcome.UNCHANGED, id="the same value"),
        pytest.param("a", PushPrecondition.IF_ABSENT, PushOutcome.SKIPPED_EXISTS, id="an existing key is kept"),
        pytest.param("denied", PushPrecondition.NONE, PushOutcome.UPDATED, id="a value that cannot be read"),
    ],
)
async def test_a_push_is_compared_with_the_current_value(
    key: str, condition: PushPrecondition, outcome: PushOutcome
) -> None:
    scene = Scene(a=b"old", same=b"pushed", denied=b"secret")
    scene.provider.item_errors["denied"] = ProviderError(ErrorReason.PERMISSION_DENIED, "no")

    assert await scene.push(key, b"pushed", condition) is outcome

    (noted,) = scene.withheld.pushes.values()
    assert isinstance(noted, WouldPush)
    assert noted.place.key == key
    assert isinstance(noted.before, Unread) is (key == "denied")
    assert scene.written() == set()


async def test_a_withheld_push_is_read_back_and_exists() -> None:
    scene = Scene(a=b"old")

    await scene.push("b", b"pushed")

    first, second = await scene.gateway.get(scene.bound, wanted("a", "b"))
    assert [each.outcome.reveal() for each in (first, second) if isinstance(each.outcome, SecretBytes)] == [
        b"old",
        b"pushed",
    ]
    assert [check.exists for check in await scene.gateway.check(scene.bound, wanted("a", "b", "c"))] == [
        True,
        True,
        False,
    ]


async def test_a_later_push_is_still_compared_with_the_remote_value() -> None:
    scene = Scene(a=b"old")
    await scene.push("a", b"new")

    assert await scene.push("a", b"old") is PushOutcome.UNCHANGED


async def test_a_withheld_deletion_is_noted() -> None:
    scene = Scene(a=b"old")

    (result,) = await scene.gateway.delete(scene.bound, DeleteBatch((DeleteItem("0", RemoteRef("a")),)))

    assert result.error is None
    (noted,) = scene.withheld.pushes.values()
    assert isinstance(noted, WouldDelete)
    assert noted.place.store.endswith("team/store")


async def test_a_generator_that_only_computes_is_called() -> None:
    scene = Scene()

    made = await scene.gateway.generate(generator(KindId(GENERATORS_GROUP, "v1alpha1", "Password")), GenerateRequest())

    assert set(made.data) == {"password"}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(KindId(GENERATORS_GROUP, "v1alpha1", "VaultDynamicSecret"), id="a generator with a lease"),
        pytest.param(KindId("example.com", "v1", "Password"), id="a kind of another group with a local name"),
    ],
)
async def test_any_other_generator_is_named_and_not_called(kind: KindId) -> None:
    scene = Scene()

    with pytest.raises(ProviderError, match=f"{kind.kind} store: {NOT_CALLED}"):
        await scene.gateway.generate(generator(kind), GenerateRequest())

    assert scene.written() == set()


async def test_a_plan_does_not_learn_that_a_provider_can_stream() -> None:
    scene = Scene()
    operations = frozenset({Operation.GET, Operation.SUBSCRIBE})
    scene.provider.kinds = (KindInfo(KindId("example.com", "v1", "Kind"), KindRole.STORE, operations),)

    handshake = await scene.gateway.handshake(endpoint(), scene.bound.resolved.tls)

    assert handshake.kinds[0].operations == {Operation.GET}
