"""Where results depend on the caller's namespace, nothing is shared between namespaces (a security matter)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from eso_api.references import StoreRef
from eso_api.values import SecretBytes
from eso_operator.changes.subscriptions import stream_key, stream_name
from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.settings import BatchSettings
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import BoundStore
from eso_testkit.operator.boundstores import wanted
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
)
from eso_wire.values import (
    CallerDependence,
    GetItem,
    GetResult,
    Handshake,
    KindId,
    KindInfo,
    KindRole,
    Operation,
    SpecCondition,
)
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.testing.clock import VirtualClock

KIND = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Aws")
TAGS = CallerDependence("/sessionTagsPolicy", ("", "None"))


def served(*infos: KindInfo) -> Handshake:
    return Handshake(CURRENT, SUPPORTED, "aws", "1", "instance-1", infos)


def kind(name: str = "Aws", **changes: Any) -> KindInfo:
    operations = frozenset({Operation.GET})
    return KindInfo(KIND._replace(kind=name), KindRole.STORE, operations, v1_provider_key="aws", **changes)


async def bound_in(namespace: str, block: dict[str, Any], handshake: Handshake) -> BoundStore:
    spec = {"provider": {"aws": block}}
    store = obj("external-secrets.io/v1", "ClusterSecretStore", "shared", "", spec=spec, status=ready())
    view = cluster(store, provider_service("p", CORE), handshakes=EveryConnection(handshake))
    ref = StoreRef(kind="ClusterSecretStore", name="shared")
    resolved = resolve(ref, caller(namespace), need=ANYTHING, view=view, settings=SETTINGS)
    return await bind(resolved, NotedReads())


@pytest.mark.parametrize(
    ("dependences", "block", "shared"),
    [
        pytest.param((), {}, True, id="a kind that does not depend: one read for all"),
        pytest.param((CallerDependence(),), {}, False, id="a kind that always depends"),
        pytest.param((TAGS,), {"sessionTagsPolicy": "Simple"}, False, id="a configuration that depends"),
        pytest.param((TAGS,), {"sessionTagsPolicy": "None"}, True, id="a configuration that does not"),
        pytest.param((TAGS,), {}, True, id="a configuration that says nothing"),
    ],
)
async def test_reads_and_streams_of_two_namespaces(
    dependences: tuple[CallerDependence, ...], block: dict[str, Any], shared: bool
) -> None:
    handshake = served(kind(caller_dependences=dependences))
    one, other = [await bound_in(namespace, block, handshake) for namespace in ("red", "blue")]
    again = await bound_in("red", block, handshake)

    assert (one.identity == other.identity) is shared
    assert (stream_key(one) == stream_key(other)) is shared
    assert (stream_name(one) == stream_name(other)) is shared
    assert one.identity == again.identity
    assert one.resolved.caller.namespace == "red"


async def test_several_kinds_of_one_v1_key_are_told_apart_by_the_block() -> None:
    handshake = served(
        kind("SecretsManager", v1_when=SpecCondition("/service", ("SecretsManager",))),
        kind("ParameterStore", v1_when=SpecCondition("/service", ("ParameterStore",))),
    )

    chosen = [
        (await bound_in("red", {"service": service}, handshake)).config.kind.kind
        for service in ("ParameterStore", "SecretsManager")
    ]

    assert chosen == ["ParameterStore", "SecretsManager"]


class Callers(Gateway):
    """A gateway that notes on whose behalf reads are made."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def get(self, bound: BoundStore, items: Sequence[GetItem], **_: object) -> tuple[GetResult, ...]:
        self.seen.append(bound.resolved.caller.namespace)
        return tuple(GetResult(item.item_id, SecretBytes(b"value")) for item in items)


@pytest.mark.parametrize(
    ("dependences", "seen"),
    [
        pytest.param((), ["red"], id="merged: the provider hears of the first caller only"),
        pytest.param((CallerDependence(),), ["red", "blue"], id="kept apart: each caller's own namespace"),
    ],
)
async def test_whom_a_provider_hears_of_when_two_namespaces_read_the_same(
    dependences: tuple[CallerDependence, ...], seen: list[str]
) -> None:
    gateway, clock = Callers(), VirtualClock()
    metrics = ProviderMetrics(CollectorRegistry())
    batcher = ReadBatcher(gateway, clock, settings=BatchSettings(), metrics=metrics)
    handshake = served(kind(caller_dependences=dependences))
    bounds = [await bound_in(namespace, {}, handshake) for namespace in ("red", "blue")]

    reads = [asyncio.create_task(batcher.read(bound, wanted("a"))) for bound in bounds]
    await clock.run_until_idle()

    assert gateway.seen == seen
    assert all(read.result() for read in reads)
