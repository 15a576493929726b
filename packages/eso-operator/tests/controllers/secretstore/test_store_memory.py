"""A store that was deleted and created again, and that the controller has not seen in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from eso_api.secretstore import SecretStore
from eso_operator.controllers.base import Channels, EventPublisher, Reporter
from eso_operator.controllers.secretstore.controller import StoreDeps, StoreReconciler, StoreSettings
from eso_operator.controllers.secretstore.kinds import STORE
from eso_operator.controllers.secretstore.status import Broken, subject_of
from eso_operator.controllers.secretstore.sync import Validated
from eso_operator.dependencies import Dependant, Dependencies, OnObject
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.wiring_controllers import Memories
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START, VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import ReconcileContext
from kuberun.events import EventRecorder
from kuberun.requests import Request
from kuberun.watch import Applied

KEY = ObjectKey("team", "store")
TOKEN = OnObject("", "Secret", ObjectKey("team", "token"))


def store(uid: str, version: str = "1") -> SecretStore:
    metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": uid, "resourceVersion": version, "generation": 1}
    return msgspec.convert({"metadata": metadata, "spec": {"provider": {"fake": {"data": []}}}}, SecretStore)


class Agreeable:
    """An API server that accepts every write."""

    async def request(self, request: Request) -> bytes:
        del request
        return json.dumps(msgspec.to_builtins(store("second"))).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


class MissesToken:
    """Validates every store by a Secret that does not exist."""

    async def validate(self, kind: object, metadata: object) -> Validated:
        del kind, metadata
        return Validated(Broken("CredentialsNotFound", "no token", 0.0), frozenset({TOKEN}))


async def test_a_store_that_replaced_another_of_its_name_is_woken_by_what_it_depends_on() -> None:
    clock, client, memories = VirtualClock(), Client(Agreeable()), Memories()
    stores: Cache[Any] = Cache()
    dependencies, memory = Dependencies(memories.by_controller), memories.by_controller[Subsystem.SECRET_STORE]
    publisher = EventPublisher(EventRecorder(client, clock, component="test"))
    validator: Any = MissesToken()
    reconciler = StoreReconciler(
        STORE,
        stores,
        StoreDeps(clock, validator, dependencies),
        reporter=Reporter(subject_of(STORE), Channels(client, clock, ObjectSeries(), publisher), memory),
        memory=memory,
        settings=StoreSettings("", 300.0),
    )

    for uid, version in (("first", "1"), ("second", "9")):
        stores.apply(Applied(store(uid, version)))
        await reconciler.run(KEY, ReconcileContext(START))

    assert dependencies.dependants(TOKEN) == [Dependant(Subsystem.SECRET_STORE, KEY)]
