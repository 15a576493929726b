"""A malformed object is reported, even if the API server has to be called repeatedly."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.pushsecret import PUSH_SECRET
from eso_operator.controllers.base import EventPublisher
from eso_operator.controllers.malformed import MalformedObjects, TypedKind
from kubebase.meta import Malformed, ObjectKey, ObjectMeta
from kubebase.testing.clock import START, VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext
from kuberun.errors import ServiceUnavailable
from kuberun.requests import Request
from kuberun.watch import Applied

KEY = ObjectKey("team", "odd")


class Server:
    """Has any object that it is asked for, unless it is away."""

    def __init__(self) -> None:
        self.away = True

    async def request(self, request: Request) -> bytes:
        if self.away:
            raise ServiceUnavailable(503, "ServiceUnavailable", request.path)
        return json.dumps({"metadata": {"name": "odd", "namespace": "team", "resourceVersion": "7"}}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


class Recorder:
    """The kinds that an event was recorded for."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()

    def record(self, resource: Any, *_: object, **__: object) -> None:
        self.kinds.add(resource.kind)


async def test_an_outage_forgets_neither_of_two_objects_of_one_name() -> None:
    server, recorder = Server(), Recorder()
    malformed = MalformedObjects(Client(server), VirtualClock(), EventPublisher(recorder))  # type: ignore[arg-type]  # only records
    for resource in (EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()):
        store: Cache[Any] = Cache()
        [change] = store.apply(
            Applied(Malformed(ObjectMeta(name=KEY.name, namespace=KEY.namespace), "$.spec: no object"))
        )
        list(malformed.changes(TypedKind(resource, store, "Errored"))(change))

    during = await malformed.reconcile(KEY, ReconcileContext(START))
    server.away = False
    after = await malformed.reconcile(KEY, ReconcileContext(START))

    assert isinstance(during, Backoff)
    assert after == Done()
    assert recorder.kinds == {"ExternalSecret", "PushSecret"}
