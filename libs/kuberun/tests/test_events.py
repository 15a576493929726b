"""Recorded events: counted up, filtered, bounded, and never blocking."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from kubebase.meta import ObjectMeta
from kubebase.testing.clock import VirtualClock
from kuberun.client import Client
from kuberun.connection import Connection, Credential, FixedCredentials
from kuberun.errors import AlreadyExists, ApiError, ServiceUnavailable, Throttled, Unreachable
from kuberun.events import MAX_MESSAGE_BYTES, Counts, EventLimits, EventRecorder, EventType
from kuberun.requests import Request
from kuberun.testing import scriptedserver as script
from kuberun.testing.builders import NAMESPACES, WIDGETS, metadata
from kuberun.testing.scriptedserver import ScriptedServer, scripted_server
from kuberun.transport import AiohttpTransport

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        running.will(script.json({"metadata": {"name": "e"}}))
        yield running


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    made = Client(AiohttpTransport(Connection(server.url, FixedCredentials(Credential()))))
    yield made
    await made.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


Recorder = Callable[..., EventRecorder]


@pytest.fixture
def recorder(client: Client, clock: VirtualClock) -> Recorder:
    def make(**limits: float) -> EventRecorder:
        return EventRecorder(client, clock, component="tester", instance="pod-1", limits=EventLimits(**limits))  # type: ignore[arg-type]  # numbers only

    return make


def synced(recorder: EventRecorder, about: ObjectMeta | None = None, message: str = "secret updated") -> None:
    recorder.record(WIDGETS, about or metadata(), EventType.NORMAL, "Updated", message)


async def written(recorder: EventRecorder) -> Counts:
    """Write the queued events and return the counts."""
    recorder.stop()
    await recorder.run()
    return recorder.counts


async def test_an_event_names_its_object_and_its_source(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder()

    events.record(WIDGETS, metadata("one", "team"), EventType.WARNING, "UpdateFailed", "no such key")
    await written(events)

    (received,) = server.received
    event = received.json
    assert (received.method, received.target) == ("POST", "/api/v1/namespaces/team/events")
    assert event["metadata"]["name"].startswith("one.")
    assert event["involvedObject"] == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "namespace": "team",
        "name": "one",
        "uid": "uid-one",
        "resourceVersion": "1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "UpdateFailed", "no such key")
    assert (event["source"], event["count"]) == ({"component": "tester", "host": "pod-1"}, 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:00Z"


async def test_events_about_cluster_objects_live_in_the_default_namespace(
    server: ScriptedServer, recorder: Recorder
) -> None:
    events = recorder()

    events.record(NAMESPACES, metadata("team", ""), EventType.NORMAL, "Seen", "hello")
    await written(events)

    assert server.received[0].target == EVENTS
    assert "namespace" not in server.received[0].json["involvedObject"]


async def test_the_same_event_again_is_counted_up(
    server: ScriptedServer, recorder: Recorder, clock: VirtualClock
) -> None:
    events = recorder()

    for _ in range(3):
        synced(events)
        await written(events)
        await clock.advance(60)

    created, second, third = server.received
    name = created.json["metadata"]["name"]
    assert created.method == "POST"
    assert (second.method, second.target) == ("PATCH", f"{EVENTS}/{name}")
    assert second.json == {"count": 2, "lastTimestamp": "2030-01-01T00:01:00Z"}
    assert third.json == {"count": 3, "lastTimestamp": "2030-01-01T00:02:00Z"}


async def test_an_event_that_is_repeated_before_it_is_written_is_one_request(
    server: ScriptedServer, recorder: Recorder, clock: VirtualClock
) -> None:
    events = recorder(burst=2)

    for _ in range(30):
        synced(events)
        await clock.advance(1)
    await written(events)

    (created,) = server.received
    assert created.json["count"] == 30
    assert (created.json["firstTimestamp"], created.json["lastTimestamp"]) == (
        "2030-01-01T00:00:00Z",
        "2030-01-01T00:00:29Z",
    )
    assert events.counts == Counts(written=30)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(lambda r: r.record(WIDGETS, metadata("x"), EventType.NORMAL, "A", "m"), id="another object"),
        pytest.param(
            lambda r: r.record(WIDGETS, metadata(uid="y"), EventType.NORMAL, "A", "m"), id="a recreated object"
        ),
        pytest.param(lambda r: r.record(WIDGETS, metadata(), EventType.WARNING, "A", "m"), id="another type"),
        pytest.param(lambda r: r.record(WIDGETS, metadata(), EventType.NORMAL, "B", "m"), id="another reason"),
        pytest.param(lambda r: r.record(WIDGETS, metadata(), EventType.NORMAL, "A", "n"), id="another message"),
    ],
)
async def test_anything_else_is_another_event(
    server: ScriptedServer, recorder: Recorder, record: Callable[[EventRecorder], None]
) -> None:
    events = recorder()

    events.record(WIDGETS, metadata(), EventType.NORMAL, "A", "m")
    record(events)
    await written(events)

    first, second = (received.json["metadata"]["name"] for received in server.received)
    assert first != second


async def test_an_expired_event_is_created_again(server: ScriptedServer, recorder: Recorder) -> None:
    server.responses.clear()
    server.will(script.json({}), script.failure(404, "NotFound"), script.json({}))
    events = recorder()

    for _ in range(3):
        synced(events)
        await written(events)

    assert [received.method for received in server.received] == ["POST", "PATCH", "POST", "PATCH"]
    assert server.received[3].json["count"] == 2
    assert events.counts == Counts(written=3)


async def test_one_noisy_object_is_filtered_and_the_others_are_not(
    server: ScriptedServer, recorder: Recorder, clock: VirtualClock
) -> None:
    events = recorder(burst=3, refill_seconds=60)

    for number in range(10):
        synced(events, message=f"message {number}")
    synced(events, metadata("quiet"))
    await written(events)
    assert events.counts == Counts(written=4, filtered=7)

    await clock.advance(60)
    synced(events, message="one more")
    synced(events, message="and another")
    await written(events)
    assert events.counts == Counts(written=5, filtered=8)
    assert len(server.received) == 5


async def test_a_full_queue_drops_and_never_waits(recorder: Recorder) -> None:
    events = recorder(queued=2)

    for name in ("a", "b", "c", "d", "e"):
        synced(events, metadata(name))

    assert events.counts == Counts(dropped=3)
    assert await written(events) == Counts(written=2, dropped=3)


async def test_a_full_queue_keeps_the_first_event_of_each_object(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder(queued=6)

    for number in range(10):
        synced(events, metadata("noisy"), message=f"message {number}")
    for name in ("a", "b", "c"):
        synced(events, metadata(name))
    await written(events)

    named = [received.json["involvedObject"]["name"] for received in server.received]
    assert sorted(named) == ["a", "b", "c", "noisy", "noisy", "noisy"]
    assert events.counts == Counts(written=6, dropped=7)


async def test_a_warning_takes_the_place_of_another_event(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder(queued=3)

    for name in ("a", "b", "c"):
        synced(events, metadata(name))
    for number in range(4):
        events.record(WIDGETS, metadata(f"failing-{number}"), EventType.WARNING, "Failed", "it failed")
    await written(events)

    assert [received.json["type"] for received in server.received] == ["Warning"] * 3
    assert events.counts == Counts(written=3, dropped=4)


async def test_a_full_queue_drops_repeated_events_first_and_the_only_event_of_an_object_last(
    server: ScriptedServer, recorder: Recorder
) -> None:
    events = recorder(queued=8)
    for message in ("one", "two"):
        synced(events, metadata("known"), message=message)
    await written(events)
    server.received.clear()

    synced(events, metadata("known"), message="one")  # repeated
    synced(events, metadata("known"), message="three")  # further
    for name in ("a", "b", "c", "d", "e", "f"):
        synced(events, metadata(name))
    for number in range(2):
        events.record(WIDGETS, metadata(f"failing-{number}"), EventType.WARNING, "Failed", "it failed")
    await written(events)

    named = sorted(received.json["involvedObject"]["name"] for received in server.received)
    assert named == ["a", "b", "c", "d", "e", "f", "failing-0", "failing-1"]
    assert events.counts == Counts(written=10, dropped=2)


async def test_the_number_of_remembered_events_is_bounded(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder(remembered=2)

    for name in ("a", "b", "c", "a"):
        synced(events, metadata(name))
        await written(events)

    assert [received.method for received in server.received] == ["POST"] * 4
    assert (len(events._series), len(events._buckets)) == (2, 2)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(script.failure(403, "Forbidden"), id="not allowed"),
        pytest.param(script.failure(500, "InternalError"), id="broken server"),
        pytest.param(script.closed(), id="no response"),
        pytest.param(script.text(b"nonsense"), id="nonsense"),
    ],
)
async def test_a_failure_costs_the_event_and_nothing_else(
    server: ScriptedServer, recorder: Recorder, response: script.ScriptedResponse
) -> None:
    server.responses.clear()
    server.will(response, script.json({}))
    events = recorder()

    synced(events, metadata("lost"))
    synced(events, metadata("kept"))

    assert await written(events) == Counts(written=1, failed=1)


async def test_an_object_without_a_usable_name_costs_the_event_and_nothing_else(recorder: Recorder) -> None:
    events = recorder()

    synced(events, metadata("one", "../x"))
    synced(events)

    assert await written(events) == Counts(written=1, failed=1)


async def test_messages_reasons_and_names_are_cut_to_what_the_api_takes(
    server: ScriptedServer, recorder: Recorder
) -> None:
    events = recorder()

    events.record(WIDGETS, metadata("n" * 253), EventType.NORMAL, "R" * 500, "ü" * 5000)
    await written(events)

    event = server.received[0].json
    assert len(event["message"].encode()) <= MAX_MESSAGE_BYTES
    assert len(event["reason"]) <= 128
    assert len(event["metadata"]["name"]) <= 253


async def test_the_recorder_lives_in_the_callers_task_group(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(events.run())
        synced(events)
        await server.first.wait()
        running.cancel()

    assert running.cancelled()


class SlowServer:
    """A `Transport` to an API server that needs the same time for each response. It refuses the first requests."""

    def __init__(self, clock: VirtualClock, seconds: float, *, refusals: Sequence[ApiError] = ()) -> None:
        self._clock = clock
        self._seconds = seconds
        self.refusals = list(refusals)
        self.requests: list[Request] = []
        self.requested_at: list[float] = []

    async def request(self, request: Request) -> bytes:
        self.requested_at.append(self._clock.monotonic())
        self.requests.append(request)
        await self._clock.sleep(self._seconds)
        if self.refusals:
            raise self.refusals.pop(0)
        return b'{"metadata": {"name": "e"}}'

    def stream(self, _: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_events_go_out_several_at_a_time(clock: VirtualClock) -> None:
    server = SlowServer(clock, 1.0)
    events = EventRecorder(Client(server), clock, component="tester", limits=EventLimits(at_once=2, rate=1000))
    running = asyncio.ensure_future(events.run())

    for name in ("one", "two", "three"):
        synced(events, metadata(name))
    await clock.advance(60)

    assert server.requested_at == pytest.approx([0, 0.001, 1])
    running.cancel()


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        pytest.param(True, [0, 0.5, 1.0], id="while reconciles wait for workers"),
        pytest.param(False, [0, 0.01, 0.02], id="while none waits"),
    ],
)
async def test_events_yield_to_reconciles(clock: VirtualClock, behind: bool, expected: list[float]) -> None:
    server, limits = SlowServer(clock, 0.0), EventLimits(rate=100, busy_rate=2)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits, busy=lambda: behind)
    running = asyncio.ensure_future(events.run())

    for name in ("one", "two", "three"):
        synced(events, metadata(name))
    await clock.advance(60)

    assert server.requested_at == pytest.approx(expected)
    running.cancel()


async def test_while_reconciles_wait_normal_events_go_out_one_at_a_time(clock: VirtualClock) -> None:
    """A slow API server answers many requests of reconciles meanwhile, and the share of events stays small."""
    server, behind = SlowServer(clock, 1.0), True
    limits = EventLimits(yield_seconds=60)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits, busy=lambda: behind)
    running = asyncio.ensure_future(events.run())

    for name in ("one", "two", "three", "four", "five"):
        synced(events, metadata(name))
    await clock.advance(0.5)
    events.record(WIDGETS, metadata("failing"), EventType.WARNING, "Failed", "it failed")
    await clock.advance(1.2)
    behind = False
    await clock.advance(10)

    assert server.requested_at == pytest.approx([0, 0.5, 1.5, 2.5, 2.5025, 2.505])
    assert msgspec.json.decode(server.requests[1].body or b"")["type"] == "Warning"
    running.cancel()


async def test_normal_events_that_have_waited_for_seconds_yield_no_longer(clock: VirtualClock) -> None:
    server, limits = SlowServer(clock, 2.0), EventLimits(yield_seconds=3, busy_rate=10)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits, busy=lambda: True)
    running = asyncio.ensure_future(events.run())

    for name in ("one", "two", "three", "four", "five"):
        synced(events, metadata(name))
    await clock.advance(20)

    assert server.requested_at == pytest.approx([0, 2, 4, 4.1, 4.2])
    running.cancel()


async def test_warnings_do_not_wait(clock: VirtualClock) -> None:
    server, limits = SlowServer(clock, 0.0), EventLimits(busy_rate=0.1)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits, busy=lambda: True)
    running = asyncio.ensure_future(events.run())
    for name in ("one", "two", "three"):
        synced(events, metadata(name))
    await clock.advance(1)

    for name in ("four", "five"):
        events.record(WIDGETS, metadata(name), EventType.WARNING, "Failed", "it failed")
    await clock.advance(1)

    assert server.requested_at == pytest.approx([0, 1, 1])
    running.cancel()


async def test_what_is_repeated_meanwhile_is_counted_up_after_a_while(clock: VirtualClock) -> None:
    server, limits = SlowServer(clock, 1.0), EventLimits(count_up_seconds=10)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits)
    running = asyncio.ensure_future(events.run())

    for _ in range(5):
        synced(events)
        await clock.advance(0.5)
    await clock.advance(60)

    assert server.requested_at == pytest.approx([0, 10.5])
    assert events.counts == Counts(written=5)
    running.cancel()


async def test_a_namespace_that_is_gone_gets_no_events(server: ScriptedServer, client: Client) -> None:
    events = EventRecorder(client, VirtualClock(), component="tester", accepts=lambda namespace: namespace == "team")

    synced(events, metadata("one", "gone"))
    synced(events, metadata("two", "team"))
    events.record(NAMESPACES, metadata("gone", ""), EventType.NORMAL, "Seen", "hello")
    await written(events)

    assert [received.target for received in server.received] == ["/api/v1/namespaces/team/events", EVENTS]
    assert events.counts == Counts(written=2, namespace_gone=1)


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(script.failure(404, "NotFound"), id="it is gone"),
        pytest.param(
            script.json(
                {
                    "kind": "Status",
                    "status": "Failure",
                    "reason": "Forbidden",
                    "code": 403,
                    "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
                },
                code=403,
            ),
            id="it is terminating",
        ),
    ],
)
async def test_a_refusal_because_of_the_namespace_is_no_failure(
    server: ScriptedServer, recorder: Recorder, response: script.ScriptedResponse
) -> None:
    server.responses.clear()
    server.will(response)
    events = recorder()

    synced(events)

    assert await written(events) == Counts(namespace_gone=1)


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(Unreachable("connection refused"), id="no response"),
        pytest.param(ServiceUnavailable(503, "ServiceUnavailable", "starting"), id="it starts"),
        pytest.param(Throttled(429, "TooManyRequests", "storage is initializing"), id="its storage is initializing"),
    ],
)
async def test_events_wait_for_an_api_server_that_is_away(clock: VirtualClock, refusal: ApiError) -> None:
    """Warnings are first after the outage too, and an attempt whose response was lost creates no second Event."""
    server = SlowServer(clock, 0.0, refusals=[refusal] * 20)
    events = EventRecorder(Client(server), clock, component="tester")
    running = asyncio.ensure_future(events.run())
    synced(events, metadata("normal"))
    await clock.advance(5)
    events.record(WIDGETS, metadata("failing"), EventType.WARNING, "Failed", "it failed")
    synced(events, metadata("normal"))
    await clock.advance(5)
    requested, server.refusals = len(server.requests), []
    await clock.advance(5)

    assert requested < 20
    names = [msgspec.json.decode(request.body or b"")["metadata"]["name"] for request in server.requests]
    assert [name.partition(".")[0] for name in names[requested:]] == ["failing", "normal"]
    assert len(set(names)) == 2
    assert events.counts == Counts(written=3)
    running.cancel()


async def test_an_api_server_that_stays_away_costs_the_event(clock: VirtualClock) -> None:
    server = SlowServer(clock, 0.0, refusals=[Unreachable("connection refused")] * 1000)
    events = EventRecorder(Client(server), clock, component="tester", limits=EventLimits(keep_seconds=30))
    running = asyncio.ensure_future(events.run())

    synced(events)
    await clock.advance(29)
    assert events.counts == Counts()
    await clock.advance(3)

    assert events.counts == Counts(failed=1)
    running.cancel()


async def test_an_event_created_by_an_attempt_without_an_answer_is_counted_up_later(clock: VirtualClock) -> None:
    created = AlreadyExists(409, "AlreadyExists", "it exists")
    server = SlowServer(clock, 0.0, refusals=[Unreachable("cut off"), created])
    events = EventRecorder(Client(server), clock, component="tester")
    running = asyncio.ensure_future(events.run())

    synced(events)
    await clock.advance(2)
    synced(events)
    await clock.advance(20)

    assert [request.method for request in server.requests] == ["POST", "POST", "PATCH"]
    assert events.counts == Counts(written=2)
    running.cancel()


async def test_a_recorder_that_stops_writes_the_rest_without_pauses(clock: VirtualClock) -> None:
    server, limits = SlowServer(clock, 0.2), EventLimits(at_once=1, rate=0.1)
    events = EventRecorder(Client(server), clock, component="tester", limits=limits)
    running = asyncio.ensure_future(events.run())
    for name in ("one", "two", "three"):
        synced(events, metadata(name))
    await clock.advance(0.3)

    events.stop()
    await clock.advance(10)

    assert server.requested_at == pytest.approx([0, 0.3, 0.5])
    assert running.done()


async def test_an_event_names_the_component_that_recorded_it(server: ScriptedServer, recorder: Recorder) -> None:
    events = recorder()

    events.record(WIDGETS, metadata(), EventType.NORMAL, "Seen", "hello", component="other")
    await written(events)

    assert server.received[0].json["source"]["component"] == server.received[0].json["reportingComponent"] == "other"
