"""Faults between the controller and the API server: rejected calls, stale caches, other writers."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.contention import BURST
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, StoredClusterExternalSecret
from eso_operator.controllers.fanout.status import ChildBlocked, ChildFailed, ChildGone, ChildPresent
from eso_operator.controllers.fanout.sync import ChildWriter, Desired, desired_of
from kubebase.clock import SystemClock
from kubebase.meta import ObjectKey, ObjectMeta
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, ServerError, Unreachable
from kuberun.testing.rawapi import MERGE_PATCH
from kuberun.transport import AiohttpTransport

live = pytest.mark.live

DENIED = 'admission webhook "policy.example.com" denied the request: no secrets here'


# --- refused calls ----------------------------------------------------------------------------------------------------


@live
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(Forbidden(403, "Forbidden", DENIED), DENIED, id="denied by a webhook, C15"),
        pytest.param(ServerError(500, "InternalError", "etcd is away"), "etcd is away", id="a server in trouble"),
        pytest.param(Unreachable("connection refused"), "connection refused", id="no server"),
    ],
)
async def test_a_refused_write_fails_its_namespace_alone_and_is_tried_again(
    fleet: Any, error: ApiError, reason: str
) -> None:
    await fleet.namespaces("a", "b")
    async with fleet.running() as running:
        running.broken[f"/namespaces/{fleet.ns('a')}/"] = error
        await fleet.create(refreshTime="0s")

        status = await fleet.failed()
        running.broken.clear()

        await fleet.provisioned("a", "b")
    assert status["failedNamespaces"] == [{"namespace": fleet.ns("a"), "reason": reason}]
    assert status["provisionedNamespaces"] == [fleet.ns("b")]


@live
async def test_a_child_that_cannot_be_deleted_is_reported_and_tried_again(fleet: Any) -> None:
    await fleet.namespaces("a", "b")
    async with fleet.running() as running:
        await fleet.create(refreshTime="0s")
        await fleet.provisioned("a", "b")
        running.broken["DELETE"] = Forbidden(403, "Forbidden", "not allowed to delete")

        await fleet.label("a", None)
        status = await fleet.failed()
        running.broken.clear()

        await fleet.provisioned("b")
        await fleet.no_child("a")
    assert status["failedNamespaces"] == [{"namespace": fleet.ns("a"), "reason": "not allowed to delete"}]


@live
async def test_a_deleted_parent_stays_until_its_children_could_be_deleted(fleet: Any) -> None:
    await fleet.namespaces("a")
    async with fleet.running() as running:
        await fleet.create()
        await fleet.provisioned("a")
        running.broken["DELETE"] = Forbidden(403, "Forbidden", "not allowed to delete")

        await fleet.bench.delete(fleet.fan_out.parent.resource, fleet.name)
        status = await fleet.failed()
        await running.looked_again(fleet.name, 1)
        assert await fleet.parent() is not None
        running.broken.clear()

        await fleet.no_child("a")
        await eventually(lambda: _gone(fleet), "the parent is still there")
    assert status["failedNamespaces"] == [{"namespace": fleet.ns("a"), "reason": "not allowed to delete"}]


async def _gone(fleet: Any) -> bool:
    return await fleet.parent() is None


# --- caches that are behind -------------------------------------------------------------------------------------------


@pytest.fixture
async def writer(fleet: Any) -> AsyncIterator[ChildWriter]:
    client = Client(AiohttpTransport(config.load(fleet.bench.kubeconfig)))
    yield ChildWriter(client, SystemClock(), CLUSTER_EXTERNAL_SECRETS)
    await client.close()


async def _owner(fleet: Any) -> tuple[ObjectMeta, Desired]:
    parent = msgspec.convert(await fleet.create(), StoredClusterExternalSecret)
    return parent.metadata, desired_of(CLUSTER_EXTERNAL_SECRETS, parent)


async def _seen(fleet: Any, namespace: str) -> ExternalSecret:
    return msgspec.convert(await fleet.child(namespace), ExternalSecret)


@live
async def test_a_child_the_cache_does_not_know_yet_is_not_made_twice(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    _, desired = await _owner(fleet)
    key = ObjectKey(namespace, fleet.name)
    assert await writer.settle(desired, key, None) == ChildPresent(namespace)
    before = await fleet.child("a")

    assert await writer.settle(desired, key, None) == ChildPresent(namespace)

    assert await fleet.child("a") == before


@live
async def test_a_foreign_object_the_cache_does_not_know_yet_is_not_written(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    _, desired = await _owner(fleet)
    foreign = await fleet.foreign("a")

    result = await writer.settle(desired, ObjectKey(namespace, fleet.name), None)

    assert result == ChildBlocked(namespace, "external secret already exists in namespace")
    assert await fleet.child("a") == foreign


@live
async def test_a_child_that_changed_since_it_was_seen_is_looked_at_again(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    _, desired = await _owner(fleet)
    key = ObjectKey(namespace, fleet.name)
    await writer.settle(desired, key, None)
    await fleet.edit_child("a", {"metadata": {"labels": {"by": "hand"}}})
    stale = await _seen(fleet, "a")
    await fleet.edit_child("a", {"metadata": {"annotations": {"by": "hand"}}})

    assert await writer.settle(desired, key, stale) == ChildPresent(namespace)

    child = await fleet.child("a")
    assert not child["metadata"].keys() & {"labels", "annotations"}


@live
async def test_a_child_that_is_gone_since_it_was_seen_is_made_again(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    _, desired = await _owner(fleet)
    key = ObjectKey(namespace, fleet.name)
    await writer.settle(desired, key, None)
    await fleet.edit_child("a", {"metadata": {"labels": {"by": "hand"}}})
    stale = await _seen(fleet, "a")
    await fleet.bench.api.delete(fleet.path("a"))

    assert await writer.settle(desired, key, stale) == ChildPresent(namespace)

    assert (await _seen(fleet, "a")).metadata.uid != stale.metadata.uid


@live
async def test_a_namespace_that_is_gone_is_no_failure(fleet: Any, writer: ChildWriter) -> None:
    _, desired = await _owner(fleet)

    assert await writer.settle(desired, ObjectKey(fleet.ns("absent"), fleet.name), None) == ChildGone()


@live
async def test_a_child_is_deleted_though_its_status_was_written_meanwhile(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    owner, desired = await _owner(fleet)
    await writer.settle(desired, ObjectKey(namespace, fleet.name), None)
    stale = await _seen(fleet, "a")
    status = {"status": {"syncedResourceVersion": "1"}}
    answer = await fleet.bench.api.patch(f"{fleet.path('a')}/status", status, MERGE_PATCH)
    assert answer.status == 200

    assert await writer.remove(owner, stale.metadata) == ChildGone()

    assert await fleet.child("a") is None


@live
async def test_a_child_that_was_given_away_meanwhile_is_not_deleted(fleet: Any, writer: ChildWriter) -> None:
    (namespace,) = await fleet.namespaces("a")
    owner, desired = await _owner(fleet)
    await writer.settle(desired, ObjectKey(namespace, fleet.name), None)
    stale = await _seen(fleet, "a")
    await fleet.edit_child("a", {"metadata": {"ownerReferences": None}})

    assert await writer.remove(owner, stale.metadata) == ChildGone()

    assert await fleet.child("a") is not None


# --- other writers ----------------------------------------------------------------------------------------------------


@live
async def test_a_child_that_another_writer_keeps_reverting_is_rewritten_at_a_limited_rate(
    fleet: Any, writer: ChildWriter
) -> None:
    (namespace,) = await fleet.namespaces("a")
    _, desired = await _owner(fleet)
    key = ObjectKey(namespace, fleet.name)
    await writer.settle(desired, key, None)
    results = []
    for turn in range(BURST + 1):
        await fleet.edit_child("a", {"metadata": {"labels": {"by": f"policy-{turn}"}}})
        results.append(await writer.settle(desired, key, await _seen(fleet, "a")))

    assert results[:-1] == [ChildPresent(namespace)] * BURST
    assert isinstance(results[-1], ChildFailed)
    assert "managedFields" in results[-1].reason
