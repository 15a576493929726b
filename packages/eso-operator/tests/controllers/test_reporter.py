"""The end of every reconcile: written status, recorded events, metrics, and errors of the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from eso_api.common import StoreStatus
from eso_api.secretstore import SECRET_STORE, SecretStore
from eso_operator.controllers.base import Channels, Event, EventPublisher, Report, Reporter, Subject
from eso_operator.memory import Memory, Record
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.telemetry.subsystems import Subsystem
from eso_testkit.operator.samples import samples_of
from kubebase.meta import Condition, ObjectKey
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.errors import ApiError, Conflict, Forbidden, NotFound
from kuberun.events import EventRecorder, EventType
from kuberun.requests import Request

SUBJECT = Subject(SECRET_STORE.kind(), Subsystem.SECRET_STORE, log="looked at", log_key="store")
KEY = ObjectKey("team", "vault")
THEN = Requeue(60.0, "look again")
NEWS = Event(EventType.WARNING, "Broken", "it does not answer")


def store(version: int, *, ready: str = "True", generation: int = 1, uid: str = "u") -> SecretStore:
    metadata = {
        "name": KEY.name,
        "namespace": KEY.namespace,
        "uid": uid,
        "resourceVersion": str(version),
        "generation": generation,
    }
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": metadata, "spec": {"provider": {}}, "status": status}, SecretStore)


def says(ready: str) -> StoreStatus:
    return StoreStatus(conditions=[Condition(type="Ready", status=ready)])


@dataclass
class Server:
    """Answers with one object, or refuses."""

    live: SecretStore
    refusal: ApiError | None = None
    asked: list[str] = field(default_factory=list)

    async def request(self, request: Request) -> bytes:
        self.asked.append(request.method)
        if self.refusal is not None:
            raise self.refusal
        return msgspec.json.encode(self.live)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched: {request.path}")

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Touching(Server):
    """Users touch the object as often as it is written."""

    touches: int = 0
    edits: bool = False
    """Whether the last touch edits the spec."""
    written: list[str] = field(default_factory=list)
    """The version that each accepted status was compared with."""

    async def request(self, request: Request) -> bytes:
        self.asked.append(request.method)
        if request.method == "GET":
            return msgspec.json.encode(self.live)
        if self.touches:
            self.touches -= 1
            generation = 2 if self.edits and not self.touches else 1
            self.live = store(int(self.live.metadata.resource_version) + 1, generation=generation)
            raise Conflict(409, "Conflict", "the object has been modified")
        self.written.append(msgspec.json.decode(request.body or b"")["metadata"]["resourceVersion"])
        return msgspec.json.encode(self.live)


class NotedEvents(EventRecorder):
    def __init__(self, client: Client, clock: VirtualClock) -> None:
        super().__init__(client, clock, component="test")
        self.reasons: list[str] = []

    def record(self, *about: Any, **_: object) -> None:
        self.reasons.append(about[3])


@dataclass
class Desk:
    """A reporter, with everything around it in memory."""

    live: SecretStore = field(default_factory=lambda: store(2))
    subject: Subject = SUBJECT
    given: Server | None = None

    def __post_init__(self) -> None:
        self.clock, self.series = VirtualClock(), ObjectSeries()
        self.server = self.given or Server(self.live)
        client = Client(self.server)
        self.events = NotedEvents(client, self.clock)
        self.memory = Memory(Record)
        channels = Channels(client, self.clock, self.series, EventPublisher(self.events))
        self.reporter: Reporter[SecretStore] = Reporter(self.subject, channels, self.memory)

    def shown(self) -> dict[str, float]:
        """The values of the Ready condition that metrics show."""
        found = [each for each in samples_of(self.series.pages()) if each.name == "secretstore_status_condition"]
        return {each.labels["status"]: each.value for each in found}


async def test_a_status_that_is_as_it_was_is_not_written() -> None:
    desk = Desk()

    told = await desk.reporter.publish(store(1), lambda _: Report(says("True"), THEN))

    assert desk.server.asked == []
    assert (told.result, told.problem) == (THEN, None)


async def test_a_status_that_differs_is_written_once_announced_and_shown() -> None:
    desk = Desk(live=store(2, ready="False"))

    told = await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN, (NEWS,)))

    assert desk.server.asked == ["PATCH"]
    assert told.obj.metadata.resource_version == "2"
    assert desk.events.reasons == ["Broken"]
    assert desk.shown() == {"True": 0.0, "False": 1.0}


async def test_a_status_that_can_wait_is_not_written_but_shown() -> None:
    desk = Desk()

    await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN, flush=False))

    assert desk.server.asked == []
    assert desk.shown() == {"True": 0.0, "False": 1.0}


async def test_metrics_stay_unchanged_without_a_new_report() -> None:
    desk = Desk()
    await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN, flush=False))
    cached = store(1)

    await desk.reporter.publish(cached, lambda store: Report(store.status, THEN, shown=False))

    assert desk.shown() == {"True": 0.0, "False": 1.0}


async def test_an_object_older_than_our_last_write_is_read_again_before_it_is_reported_on() -> None:
    """The new status equals the cached one, but differs from our last write."""
    desk, cached = Desk(live=store(2, ready="False")), store(1)
    await desk.reporter.publish(cached, lambda _: Report(says("False"), THEN))
    desk.server.asked.clear()

    await desk.reporter.publish(cached, lambda _: Report(says("True"), THEN))

    assert desk.server.asked == ["GET", "PATCH"]


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(store(3, ready="False", generation=2), id="its spec was edited"),
        pytest.param(store(3, ready="False", uid="another"), id="another object has its name"),
    ],
)
async def test_a_report_about_an_object_is_not_written_to_its_successor(live: SecretStore) -> None:
    desk, cached = Desk(live=live), store(1)
    await desk.reporter.write(cached, says("False"))

    assert await desk.reporter.refresh_if_stale(cached) is cached
    assert (await desk.reporter.latest(cached)).metadata == live.metadata


REFUSALS = [
    pytest.param(NotFound(404, "NotFound", "gone"), Done(), id="the object is gone"),
    pytest.param(Conflict(409, "Conflict", "v"), Backoff("the object changed meanwhile"), id="another writer wrote"),
    pytest.param(
        Forbidden(403, "Forbidden", "no"),
        Backoff("status not written: the API server answered Forbidden"),
        id="it may not be written",
    ),
]


@pytest.mark.parametrize(("refusal", "then"), REFUSALS)
async def test_a_refused_report_says_nothing_elsewhere(refusal: ApiError, then: Result) -> None:
    desk = Desk()
    desk.server.refusal = refusal

    told = await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN, (NEWS,)))

    assert (told.result, told.problem) == (then, refusal)
    assert desk.events.reasons == []
    assert desk.shown() == {}


async def test_events_of_what_was_done_are_recorded_even_if_the_status_is_refused() -> None:
    desk = Desk(subject=replace(SUBJECT, events_first=True))
    desk.server.refusal = Conflict(409, "Conflict", "v")

    await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN, (NEWS,)))

    assert desk.events.reasons == ["Broken"]


async def test_nothing_of_a_forgotten_object_stays() -> None:
    desk, cached = Desk(live=store(2, ready="False")), store(1)
    await desk.reporter.publish(cached, lambda _: Report(says("False"), THEN))

    desk.memory.forget(KEY)

    assert desk.shown() == {}
    assert not desk.reporter.is_stale(cached)


async def test_the_status_of_an_object_that_is_touched_meanwhile_is_written_to_its_new_state() -> None:
    server = Touching(store(1), touches=3)
    desk = Desk(given=server)
    versions: list[str] = []

    def report_of(live: SecretStore) -> Report:
        versions.append(live.metadata.resource_version)
        return Report(says("False"), THEN)

    told = await desk.reporter.publish(store(1), report_of)

    assert (told.problem, told.result) == (None, THEN)
    assert server.written == ["4"]
    assert versions[-1] == "4"


@pytest.mark.parametrize(
    ("touches", "edits"),
    [
        pytest.param(2, True, id="an edit of the spec needs another reconcile"),
        pytest.param(50, False, id="an object that is always touched gets another reconcile"),
    ],
)
async def test_a_status_that_keeps_colliding_is_left_to_the_next_reconcile(touches: int, *, edits: bool) -> None:
    server = Touching(store(1), touches=touches, edits=edits)
    desk = Desk(given=server)

    told = await desk.reporter.publish(store(1), lambda _: Report(says("False"), THEN))

    assert isinstance(told.problem, Conflict)
    assert isinstance(told.result, Backoff)
    assert server.written == []
    assert len(server.asked) <= 10


async def test_a_status_that_another_writer_changed_is_not_overwritten() -> None:
    server = Touching(store(2, ready="Unknown"), touches=1)
    desk = Desk(given=server)
    server.live = store(3, ready="Unknown")

    told = await desk.reporter.publish(store(1, ready="False"), lambda _: Report(says("True"), THEN))

    assert isinstance(told.problem, Conflict)
    assert server.written == []
