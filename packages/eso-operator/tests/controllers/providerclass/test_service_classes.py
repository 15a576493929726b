"""The requests to the API server when a Service is no longer a provider."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import msgspec

from eso_api.v2.providerclass import ProviderClass
from eso_operator.controllers.providerclass.services import ServiceClasses
from eso_operator.stores.resolved import ResolverSettings
from kubebase.meta import JsonObject, ObjectKey
from kubebase.testing.clock import START
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext
from kuberun.errors import Conflict
from kuberun.requests import Request
from kuberun.watch import Listed

KEY = ObjectKey("team", "provider")


class Newer:
    """A server on which the class has another version by now: it refuses what was decided by an older one."""

    def __init__(self) -> None:
        self.asked: list[JsonObject] = []

    async def request(self, request: Request) -> bytes:
        preconditions: JsonObject = msgspec.json.decode(request.body or b"{}").get("preconditions", {})
        self.asked.append(preconditions)
        if preconditions.get("resourceVersion", "6") != "6":
            raise Conflict(409, "Conflict", "the precondition does not hold")
        return b"{}"

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def followed(version: str) -> ProviderClass:
    """A class that was made from the Service of its name."""
    owner = {"apiVersion": "v1", "kind": "Service", "name": KEY.name, "uid": "s", "controller": True}
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": "c", "resourceVersion": version}
    document = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"address": "grpc://provider.team.svc:1"}}
    return msgspec.convert(document, ProviderClass)


async def test_a_class_that_another_owner_took_over_is_not_deleted() -> None:
    server, classes = Newer(), Cache[ProviderClass]()
    reconciler = ServiceClasses(Cache(), classes, client=Client(server), settings=ResolverSettings("eso"))

    classes.apply(Listed((followed("5"),)))
    behind = await reconciler.reconcile(KEY, ReconcileContext(START))
    classes.apply(Listed((followed("6"),)))
    up_to_date = await reconciler.reconcile(KEY, ReconcileContext(START))

    assert (type(behind), up_to_date) == (Backoff, Done())
    assert server.asked == [{"uid": "c", "resourceVersion": "5"}, {"uid": "c", "resourceVersion": "6"}]
