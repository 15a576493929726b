"""The requests to the API server when a parent is deleted. No garbage collector runs here."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.base import Channels, EventPublisher, Reporter
from eso_operator.controllers.fanout.controller import PARENT_INDEX, Caches, FanOutDeps, FanOutReconciler, by_parent
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, StoredClusterExternalSecret
from eso_operator.controllers.fanout.status import subject_of
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.wiring_controllers import Memories
from kubebase.meta import JsonObject, Object, ObjectKey
from kubebase.testing.clock import START, VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Done, ReconcileContext
from kuberun.events import EventRecorder
from kuberun.requests import Request
from kuberun.watch import Listed

CLEANUP = CLUSTER_EXTERNAL_SECRETS.finalizer
LEFT = f"{CLUSTER_EXTERNAL_SECRETS.left_on_namespaces}everywhere"
OWNER = {
    "apiVersion": "external-secrets.io/v1",
    "kind": "ClusterExternalSecret",
    "name": "everywhere",
    "uid": "u",
    "controller": True,
}
CHILD = "/apis/external-secrets.io/v1/namespaces/team-a/externalsecrets/everywhere"
PARENT = "/apis/external-secrets.io/v1/clusterexternalsecrets/everywhere"


class Agreeable:
    """A server that takes everything and answers with what the request was about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    async def request(self, request: Request) -> bytes:
        body = None if request.body is None else msgspec.json.decode(request.body)
        self.asked.append((request.method, request.path, body))
        return b'{"metadata": {}, "spec": {"externalSecretSpec": {}}}'

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def reconciler(server: Agreeable, parent: JsonObject | None) -> FanOutReconciler:
    parents: Cache[StoredClusterExternalSecret] = Cache()
    children: Cache[ExternalSecret] = Cache({PARENT_INDEX: by_parent})
    namespaces: Cache[Object] = Cache()
    if parent is not None:
        document = {"metadata": parent, "spec": {"externalSecretSpec": {}}}
        parents.apply(Listed((msgspec.convert(document, StoredClusterExternalSecret),)))
    owned = {
        "name": "everywhere",
        "namespace": "team-a",
        "uid": "c",
        "resourceVersion": "7",
        "ownerReferences": [OWNER],
    }
    children.apply(Listed((msgspec.convert({"metadata": owned}, ExternalSecret),)))
    marked = {"name": "team-a", "uid": "n", "resourceVersion": "3", "finalizers": [LEFT, "example.com/other"]}
    namespaces.apply(Listed((msgspec.convert({"metadata": marked}, Object),)))
    client, clock = Client(server), VirtualClock()
    publisher = EventPublisher(EventRecorder(client, clock, component="external-secrets"))
    memory = Memories().cluster_external_secrets
    channels = Channels(client, clock, ObjectSeries(), publisher)
    return FanOutReconciler(
        CLUSTER_EXTERNAL_SECRETS,
        Caches(parents, children, namespaces),
        FanOutDeps(client, clock, Reporter(subject_of(CLUSTER_EXTERNAL_SECRETS), channels, memory), memory),
    )


def going(*finalizers: str) -> JsonObject:
    return {
        "name": "everywhere",
        "uid": "u",
        "resourceVersion": "9",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [*finalizers],
    }


async def asked(parent: JsonObject | None) -> list[tuple[str, str, Any]]:
    server = Agreeable()

    assert await reconciler(server, parent).run(ObjectKey("", "everywhere"), ReconcileContext(START)) == Done()

    return server.asked


def finalizers_in(asked: tuple[str, str, Any]) -> Any:
    method, path, body = asked
    return method, path, body["metadata"]["finalizers"]


async def test_children_are_deleted_then_namespaces_freed_then_the_parent_let_go() -> None:
    """C12. Only the very object that was seen is deleted."""
    first, second, third = await asked(going(CLEANUP))

    assert first[:2] == ("DELETE", CHILD)
    assert first[2]["preconditions"] == {"uid": "c", "resourceVersion": "7"}
    assert finalizers_in(second) == ("PATCH", "/api/v1/namespaces/team-a", ["example.com/other"])
    assert finalizers_in(third) == ("PATCH", PARENT, None)


async def test_children_that_were_told_to_stay_lose_their_owner_instead() -> None:
    first, second, third = await asked(going(CLEANUP, "orphan"))

    assert first[:2] == ("PATCH", CHILD)
    assert first[2] == [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/ownerReferences", "value": []},
    ]
    assert finalizers_in(second) == ("PATCH", "/api/v1/namespaces/team-a", ["example.com/other"])
    assert finalizers_in(third) == ("PATCH", PARENT, ["orphan"])


@pytest.mark.parametrize("finalizers", [(), ("orphan",), ("example.com/other",)])
async def test_a_parent_that_does_not_wait_for_us_is_left_to_the_garbage_collector(finalizers: tuple[str, ...]) -> None:
    assert await asked(going(*finalizers)) == []


async def test_a_parent_that_is_gone_holds_no_namespace() -> None:
    (only,) = await asked(None)

    assert finalizers_in(only) == ("PATCH", "/api/v1/namespaces/team-a", ["example.com/other"])
