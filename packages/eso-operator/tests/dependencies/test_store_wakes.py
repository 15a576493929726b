"""The objects that a change wakes, and those that it does not wake; kinds that are watched on demand."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from eso_api.pushsecret import PushSecret
from eso_operator.controllers.secretstore.controller import STORES_INDEX, held_stores, holders, stores_of
from eso_operator.controllers.secretstore.kinds import CLUSTER_STORE, STORE
from eso_operator.dependencies import (
    ANY_PROVIDER,
    Dependant,
    Dependencies,
    Dependency,
    OnLabel,
    OnObject,
    Wakes,
    on_connection,
)
from eso_operator.providers.directory import Change as ProviderChange
from eso_operator.stores.resolved import (
    CLASS,
    SERVICE,
    Connection,
    Endpoint,
    EndpointSource,
    ManagedTls,
    Scope,
    ServiceKey,
)
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.watches import WatchedKinds
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.operators import BACKEND, BACKEND_ID, Bench
from eso_wire.values import KindId
from kubebase.clock import SystemClock
from kubebase.meta import Object, ObjectKey
from kubebase.testing.clock import VirtualClock
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.cache import Cache, Change
from kuberun.client import Client
from kuberun.testing.builders import metadata
from kuberun.transport import AiohttpTransport
from kuberun.watch import Applied, Listed
from kuberun.workqueue import ReconcileRequest, WorkQueue

AWS = Connection(
    Endpoint("dns:///aws.eso.svc:8080", "aws.eso.svc", EndpointSource.CLASS, "aws"),
    ManagedTls(ServiceKey("eso", "aws")),
)
USER, WAITER, BYSTANDER = (ObjectKey("team", name) for name in ("user", "waiter", "bystander"))
SECRET = OnObject("", "Secret", ObjectKey("team", "token"))


class Woken:
    """Three stores: one uses the provider, one waits for any, one has nothing to do with it."""

    def __init__(self) -> None:
        self.dependencies = Dependencies(Memories().by_controller)
        self.queue = WorkQueue(VirtualClock())
        self.wakes = Wakes(self.dependencies, VirtualClock(), shared=("eso",))
        self.wakes.add(Subsystem.SECRET_STORE, self.queue)
        self._depend(USER, on_connection(AWS), OnLabel("aws"), OnLabel("eso/aws"), SECRET)
        self._depend(WAITER, ANY_PROVIDER)
        self._depend(BYSTANDER, OnLabel("vault"))

    def _depend(self, key: ObjectKey, *on: Dependency) -> None:
        self.dependencies.record(Dependant(Subsystem.SECRET_STORE, key), on)

    @property
    def keys(self) -> set[ObjectKey]:
        return set(self.queue.waiting())


@pytest.fixture
def woken() -> Woken:
    return Woken()


def changed(name: str, namespace: str = "eso", *, spec: int = 2) -> Change[Object]:
    old = Object(metadata=metadata(name, namespace, generation=1))
    return Change(ObjectKey(namespace, name), old, Object(metadata=metadata(name, namespace, generation=spec)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(ProviderChange.CONNECTED, {USER, WAITER}, id="a provider appears"),
        pytest.param(ProviderChange.DIFFERENT, {USER, WAITER}, id="it serves something else"),
        pytest.param(ProviderChange.NEW_INSTANCE, {USER}, id="it was restarted"),
        pytest.param(ProviderChange.FAILED, {USER}, id="it is lost"),
        pytest.param(ProviderChange.FORGOTTEN, {USER}, id="it was forgotten"),
    ],
)
def test_a_change_of_a_provider_wakes_its_users_and_an_arrival_those_who_wait(
    woken: Woken, change: ProviderChange, expected: set[ObjectKey]
) -> None:
    woken.wakes.provider_changed(AWS, change)

    assert woken.keys == expected


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        pytest.param(CLASS, "aws", {USER, WAITER}, id="its class"),
        pytest.param(SERVICE, "aws", {USER, WAITER}, id="its Service"),
        pytest.param(CLASS, "other", {WAITER}, id="another class"),
    ],
)
def test_a_changed_place_wakes_its_users_and_those_who_wait(
    woken: Woken, kind: KindId, name: str, expected: set[ObjectKey]
) -> None:
    woken.wakes.place_changed(kind, changed(name))

    assert woken.keys == expected


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        pytest.param("other", set(), id="of another tenant"),
        pytest.param("team", {USER, WAITER}, id="of their own namespace"),
        pytest.param("", {USER, WAITER}, id="of the cluster"),
    ],
)
def test_a_class_of_the_same_name_wakes_only_those_whom_it_concerns(
    woken: Woken, namespace: str, expected: set[ObjectKey]
) -> None:
    woken.wakes.place_changed(CLASS, changed("aws", namespace))

    assert woken.keys == expected


def test_a_provider_of_another_tenant_wakes_no_object(woken: Woken) -> None:
    theirs = replace(AWS, tls=ManagedTls(ServiceKey("other", "aws")))

    woken.wakes.provider_changed(theirs, ProviderChange.CONNECTED)

    assert woken.keys == set()


def test_a_class_whose_status_alone_changed_wakes_no_object(woken: Woken) -> None:
    woken.wakes.place_changed(CLASS, changed("aws", spec=1))

    assert woken.keys == set()


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        pytest.param(8081, {USER, WAITER}, id="its port"),
        pytest.param(8080, set(), id="nothing that concerns a provider"),
    ],
)
def test_a_service_whose_port_changed_wakes_its_users_although_services_have_no_generation(
    woken: Woken, port: int, expected: set[ObjectKey]
) -> None:
    old, new = (
        {
            "metadata": {"name": "aws", "namespace": "eso", "resourceVersion": str(each)},
            "spec": {"ports": [{"port": each}]},
        }
        for each in (8080, port)
    )

    woken.wakes.place_changed(SERVICE, Change(ObjectKey("eso", "aws"), old, {**new, "status": {"loadBalancer": {}}}))

    assert woken.keys == expected


def test_a_secret_wakes_those_who_read_it(woken: Woken) -> None:
    woken.wakes.object_changed(KindId("", "v1", "Secret"), changed("token", "team"))

    assert woken.keys == {USER}


# --- PushSecrets -----------------------------------------------------------------------------------------------------


def push(name: str, *refs: dict[str, object]) -> PushSecret:
    spec = {"secretStoreRefs": list(refs), "selector": {"secret": {"name": "a"}}, "deletionPolicy": "Delete"}
    return msgspec.convert({"metadata": {"name": name, "namespace": "team"}, "spec": spec}, PushSecret)


BY_LABEL: dict[str, object] = {"labelSelector": {}}


class Crowd:
    """Many stores that read one Secret, while another task counts its turns."""

    def __init__(self, number: int) -> None:
        self.clock = VirtualClock()
        self.dependencies = Dependencies(Memories().by_controller)
        self.queue = WorkQueue(self.clock, draw=lambda: 0.0)
        self.wakes = Wakes(self.dependencies, self.clock)
        self.wakes.add(Subsystem.SECRET_STORE, self.queue)
        self.keys = [ObjectKey("team", f"store-{each}") for each in range(number)]
        for key in self.keys:
            self.dependencies.record(Dependant(Subsystem.SECRET_STORE, key), [SECRET])

    @property
    def queued(self) -> int:
        stats = self.queue.stats()
        return stats.delayed + sum(stats.depth.values())


async def test_other_tasks_run_while_many_objects_are_woken() -> None:
    crowd = Crowd(5000)
    running = asyncio.ensure_future(crowd.wakes.run())

    crowd.wakes.wake(SECRET, "it changed")
    seen: list[int] = []
    while not seen or seen[-1] < 5000:
        seen.append(crowd.queued)
        await asyncio.sleep(0)
    running.cancel()

    assert max(after - before for before, after in pairwise(seen)) <= 500
    assert seen[-1] == 5000


async def test_each_change_that_concerns_many_wakes_them_once_more() -> None:
    crowd = Crowd(600)
    running = asyncio.ensure_future(crowd.wakes.run())

    for _ in range(2):
        crowd.wakes.wake(SECRET, "it changed")
        await crowd.clock.advance(60)
        woken = [crowd.queue.take_now() for _ in crowd.keys]
        assert {request.key for request in woken if request} == set(crowd.keys)
        for request in woken:
            crowd.queue.done(request.key if request else USER)
    running.cancel()


async def test_objects_that_failed_are_woken_before_the_spread_of_the_others() -> None:
    crowd = Crowd(4000)
    running = asyncio.ensure_future(crowd.wakes.run())
    failed = crowd.keys[::1000]
    for key in failed:
        crowd.queue.add(ReconcileRequest(key))
        assert crowd.queue.take_now() is not None
        crowd.queue.retry(ReconcileRequest(key), at_least=300)
        crowd.queue.done(key)

    crowd.wakes.wake(SECRET, "it changed")
    await crowd.clock.settle()

    assert set(crowd.queue.waiting()) == set(failed)
    await crowd.clock.advance(15)
    assert set(crowd.queue.waiting()) == set(crowd.keys)
    running.cancel()


def test_the_push_secrets_that_may_hold_a_store_are_found_through_an_index() -> None:
    store: Cache[PushSecret] = Cache({STORES_INDEX: stores_of})
    store.apply(Listed([push("named", {"name": "fake"}), push("selecting", BY_LABEL), push("other", {"name": "x"})]))

    found = holders(store)(STORE, ObjectKey("team", "fake"))

    assert [holder.metadata.name for holder in found] == ["named", "selecting"]
    assert holders(store)(CLUSTER_STORE, ObjectKey("", "fake")) == []


def test_a_changed_push_secret_concerns_the_stores_it_named_names_and_selects() -> None:
    stores: Cache[Object] = Cache()
    for name, namespace in (("old", "team"), ("new", "team"), ("other", "team"), ("new", "elsewhere")):
        stores.apply(Applied(Object(metadata=metadata(name, namespace))))
    mapping = held_stores(STORE, stores)
    key = ObjectKey("team", "push")

    renamed = mapping(Change(key, push("push", {"name": "old"}), push("push", {"name": "new"})))
    selecting = mapping(Change(key, None, push("push", BY_LABEL)))

    assert [request.key.name for request in renamed] == ["new", "old"]
    assert [str(request.key) for request in selecting] == ["team/new", "team/old", "team/other"]


@pytest.mark.parametrize(
    ("old", "new", "woken"),
    [
        pytest.param({}, {"status": {"syncedPushSecrets": {"SecretStore/old": {}}}}, True, id="it has pushed there"),
        pytest.param({}, {"spec": {"deletionPolicy": "None"}}, True, id="it deletes nothing any more"),
        pytest.param({}, {"metadata": {"uid": "another"}}, True, id="another one of the same name"),
        pytest.param({}, {"status": {"refreshTime": "2030-01-02T03:04:05Z"}}, False, id="it has pushed once more"),
        pytest.param(
            {"spec": {"deletionPolicy": "None"}},
            {"spec": {"deletionPolicy": "None", "refreshInterval": "5m"}},
            False,
            id="it never deletes",
        ),
    ],
)
def test_a_push_secret_wakes_stores_only_when_what_it_holds_changes(
    old: dict[str, Any], new: dict[str, Any], *, woken: bool
) -> None:
    """Each look at a store is a call to its backend."""
    stores: Cache[Object] = Cache()
    stores.apply(Applied(Object(metadata=metadata("old", "team"))))

    found = held_stores(STORE, stores)(Change(ObjectKey("team", "push"), pushing(old), pushing(new)))

    assert bool(list(found)) is woken


def pushing(changes: dict[str, Any]) -> PushSecret:
    document = msgspec.to_builtins(push("push", {"name": "old"}))
    return msgspec.convert({key: part | changes.get(key, {}) for key, part in document.items()}, PushSecret)


# --- kinds on demand -------------------------------------------------------------------------------------------------


@pytest.mark.live
async def test_a_providers_kind_is_watched_from_the_first_request(bench: Bench) -> None:
    client = Client(AiohttpTransport(config.load(bench.kubeconfig)))
    watched = WatchedKinds(client, SystemClock())
    heard: list[ObjectKey] = []
    watched.listen(lambda _, change: heard.append(change.key))
    one, two = (ObjectKey(bench.namespace, name) for name in ("one", "two"))
    await bench.create(BACKEND.resource(), "one", spec={"url": "https://backend"})

    async with asyncio.TaskGroup() as group:
        running = group.create_task(watched.run())
        await asyncio.sleep(0)
        before = watched.scope(BACKEND_ID)
        included = [await watched.include(BACKEND_ID), await watched.include(BACKEND_ID)]
        unknown = await watched.include(KindId("absent.example.com", "v1", "Nothing"))
        first = watched.get(BACKEND_ID, one)
        await bench.create(BACKEND.resource(), "two", spec={})

        async def told() -> bool:
            return {one, two} <= set(heard)

        await eventually(told, "the second object was not heard of")
        listed = [document["metadata"]["name"] for document in watched.list(BACKEND_ID, bench.namespace)]
        running.cancel()
    await client.close()

    assert (before, watched.scope(BACKEND_ID)) == (None, Scope.NAMESPACED)
    assert included == [True, True]
    assert unknown is False
    assert first is not None
    assert first["spec"] == {"url": "https://backend"}
    assert sorted(listed) == ["one", "two"]
