"""The calls to the API server and to providers for one GeneratorState."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.controllers.base import EventPublisher, TerminatingNamespaces
from eso_operator.controllers.generatorstate.checks import CleanupLimits, Trouble
from eso_operator.controllers.generatorstate.controller import GeneratorStateReconciler, StateDeps
from eso_operator.controllers.generatorstate.sync import Cleaner, RecordDependencies
from eso_operator.controllers.refresh import RetryLimit
from eso_operator.dependencies import Dependencies
from eso_operator.generators.ledger import FINALIZER
from eso_operator.stores.resolved import Connection, Reason, ResolutionError
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.clusters import caller
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import rfc3339
from kubebase.meta import Object, ObjectKey, ObjectMeta, Resource
from kubebase.testing.clock import VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Requeue, Result
from kuberun.events import EventRecorder, EventType
from kuberun.requests import Request
from kuberun.watch import Listed

KEY = ObjectKey("team-a", "state")
PATH = "/apis/generators.external-secrets.io/v1alpha1/namespaces/team-a/generatorstates/state"
MAKER = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "Grafana", "metadata": {"name": "gen"}}
CANARY = "state-of-the-backend"
DOWN = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "no answer", retry_after=7.0)
GONE = ResolutionError(Reason.NOT_FOUND, "there is no such generator", subject=caller())
NO_CLEANUP = ResolutionError(Reason.NOT_IMPLEMENTED, "it cannot CLEANUP", subject=caller())
OTHERS = ResolutionError(Reason.UNMANAGED, "another owner's", subject=caller())


class Agreeable:
    """A server that takes everything."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def request(self, request: Request) -> bytes:
        assert request.path == PATH
        self.asked.append((request.method, None if request.body is None else msgspec.json.decode(request.body)))
        written = {"name": "state", "namespace": "team-a", "uid": "u", "resourceVersion": "4"}
        return msgspec.json.encode({"metadata": written, "spec": {"resource": {}, "state": {}}})

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None:
        return None


class NotedEvents(EventRecorder):
    def __init__(self, client: Client, clock: VirtualClock) -> None:
        super().__init__(client, clock, component="test")
        self.noted: list[tuple[str, str, str]] = []

    def record(
        self,
        resource: Resource,
        about: ObjectMeta,
        kind: EventType,
        reason: str,
        message: str,
        *,
        component: str = "",  # noqa: ARG002  the signature of the base class
    ) -> None:
        assert kind is EventType.WARNING
        self.noted.append((f"{resource.kind}/{about.name}", reason, message))


class ScriptedCleaner(Cleaner):
    def __init__(self, trouble: Trouble | None = None) -> None:
        self.trouble = trouble
        self.calls = 0

    async def clean(self, state: GeneratorState, record: RecordDependencies) -> None:
        del state, record
        self.calls += 1
        if self.trouble is not None:
            raise self.trouble


@dataclass
class Desk:
    """A reconciler, with everything around it in memory."""

    trouble: Trouble | None = None
    off: bool = False
    server: Agreeable = field(default_factory=Agreeable)
    clock: VirtualClock = field(default_factory=VirtualClock)

    def __post_init__(self) -> None:
        client = Client(self.server)
        self.cleaner = ScriptedCleaner(self.trouble)
        self.events = NotedEvents(client, self.clock)
        self.states: Cache[GeneratorState] = Cache()
        self.namespaces: Cache[Object] = Cache()
        memories = Memories()
        self.dependencies = Dependencies(memories.by_controller)
        terminating = TerminatingNamespaces(self.namespaces)
        self.forgotten: list[Connection] = []
        self.dependencies.listen(self.forgotten.append)
        deps = StateDeps(
            client,
            self.cleaner,
            self.dependencies,
            memories.generator_states,
            EventPublisher(self.events, terminating),
            terminating,
            CleanupLimits(hopeless=RetryLimit(2, 10.0), failing=RetryLimit(3, 100.0)),
            is_off=lambda _: self.off,
        )
        self.reconciler = GeneratorStateReconciler(self.states, deps)

    def at(self, seconds: float) -> str:
        return rfc3339(self.clock.now() + timedelta(seconds=seconds))

    def has(self, deadline: str | None = None, **metadata: Any) -> None:
        meta = {"name": "state", "namespace": "team-a", "uid": "u", "resourceVersion": "3", **metadata}
        spec = {"resource": MAKER, "state": {"id": CANARY}, "garbageCollectionDeadline": deadline}
        self.states.apply(Listed((msgspec.convert({"metadata": meta, "spec": spec}, GeneratorState),)))

    async def reconcile(self) -> Result:
        return await self.reconciler.run(KEY, ReconcileContext(self.clock.now()))


def patch(*finalizers: str) -> tuple[str, Any]:
    return "PATCH", {"metadata": {"finalizers": list(finalizers) or None, "resourceVersion": "3", "uid": "u"}}


HELD: dict[str, Any] = {"finalizers": [FINALIZER]}


def delete(version: str) -> tuple[str, Any]:
    """Of the version that was seen: a deadline that was moved since means that the state is in use."""
    preconditions = {"uid": "u", "resourceVersion": version}
    return "DELETE", {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}


@pytest.mark.parametrize(
    ("deadline", "metadata", "asked", "outcome"),
    [
        pytest.param(None, {}, [patch(FINALIZER)], Done(), id="it is held"),
        pytest.param(None, HELD, [], Done(), id="once"),
        pytest.param(None, {"finalizers": ["x/y"]}, [patch("x/y", FINALIZER)], Done(), id="besides others"),
        pytest.param(60.0, HELD, [], Requeue(60.0, "deadline"), id="an exact timer"),
        pytest.param(-1.0, HELD, [delete("3")], Done(), id="deleted at its deadline"),
        pytest.param(-1.0, {}, [patch(FINALIZER), delete("4")], Done(), id="never without being held"),
    ],
)
async def test_a_state_is_held_and_deleted_at_its_deadline(
    deadline: float | None, metadata: dict[str, Any], asked: list[Any], outcome: Result
) -> None:
    desk = Desk()
    desk.has(None if deadline is None else desk.at(deadline), **metadata)

    result = await desk.reconcile()

    assert (desk.server.asked, result, desk.cleaner.calls) == (asked, outcome, 0)


async def test_a_state_of_a_kind_that_is_off_outlives_its_deadline() -> None:
    """R153: its values are still cleaned up when the kind is on again."""
    desk = Desk(off=True)
    desk.has(desk.at(-1.0), **HELD)

    result = await desk.reconcile()

    assert (desk.server.asked, result, desk.cleaner.calls) == ([], Done(), 0)


@pytest.mark.parametrize("others", [(), ("x/y",)], ids=["alone", "besides others"])
async def test_it_goes_after_the_clean_up(others: tuple[str, ...]) -> None:
    desk = Desk()
    desk.has(deletionTimestamp=desk.at(0), finalizers=[FINALIZER, *others])

    result = await desk.reconcile()

    assert (desk.server.asked, result, desk.cleaner.calls) == ([patch(*others)], Done(), 1)
    assert (desk.events.noted, len(desk.dependencies)) == ([], 0)


async def test_a_state_without_our_finalizer_is_left_unchanged() -> None:
    desk = Desk()
    desk.has(deletionTimestamp=desk.at(0), finalizers=["x/y"])

    result = await desk.reconcile()

    assert (desk.server.asked, result, desk.cleaner.calls) == ([], Done(), 0)


@pytest.mark.parametrize(
    ("trouble", "seconds", "attempts", "wait"),
    [
        pytest.param(DOWN, 100.0, 3, 7.0, id="an answer that does not come"),
        pytest.param(GONE, 10.0, 2, 0.0, id="a generator that is gone"),
    ],
)
async def test_a_failed_clean_up_is_reported_retried_and_finally_abandoned(
    trouble: Trouble, seconds: float, attempts: int, wait: float
) -> None:
    desk = Desk(trouble)
    desk.has(deletionTimestamp=desk.at(0), **HELD)
    tried = [await desk.reconcile() for _ in range(attempts)]
    assert tried == [Backoff(f"not cleaned up: {trouble.reason}", wait)] * attempts
    assert (desk.server.asked, {reason for _, reason, _ in desk.events.noted}) == ([], {"CleanupFailed"})

    await desk.clock.advance(seconds)
    result = await desk.reconcile()

    assert (desk.server.asked, result) == ([patch()], Done())
    about, reason, message = desk.events.noted[-1]
    assert (about, reason) == ("GeneratorState/state", "Orphaned")
    assert "Grafana gen" in message
    assert trouble.message in message
    assert len(desk.dependencies) == 0


async def test_time_before_this_process_does_not_make_the_first_attempt_the_last() -> None:
    desk = Desk(DOWN)
    desk.has(deletionTimestamp=desk.at(-100_000), **HELD)

    result = await desk.reconcile()

    assert isinstance(result, Backoff)
    assert desk.server.asked == []


async def test_a_namespace_that_is_being_deleted_does_not_wait_for_what_is_gone() -> None:
    desk = Desk(GONE)
    desk.has(deletionTimestamp=desk.at(0), **HELD)
    ending = {"name": "team-a", "uid": "n", "deletionTimestamp": desk.at(0)}
    desk.namespaces.apply(Listed((msgspec.convert({"metadata": ending}, Object),)))

    result = await desk.reconcile()

    assert (desk.server.asked, result) == ([patch()], Done())
    assert [(about, reason) for about, reason, _ in desk.events.noted] == [("Namespace/team-a", "Orphaned")]


async def test_a_state_of_a_generator_without_clean_up_is_let_go_at_once() -> None:
    """Nothing stays behind that could be cleaned up, so there is nothing to warn of."""
    desk = Desk(NO_CLEANUP)
    desk.has(deletionTimestamp=desk.at(0), **HELD)

    result = await desk.reconcile()

    assert (desk.server.asked, result, desk.events.noted) == ([patch()], Done(), [])


async def test_states_of_another_operator_are_left_to_it() -> None:
    desk = Desk(OTHERS)
    desk.has(deletionTimestamp=desk.at(-100_000), **HELD)

    results = [await desk.reconcile() for _ in range(5)]

    assert (results, desk.server.asked, desk.events.noted) == ([Done()] * 5, [], [])


async def test_nothing_is_kept_of_a_state_that_is_gone() -> None:
    desk = Desk(GONE)
    desk.has(deletionTimestamp=desk.at(0), **HELD)
    await desk.reconcile()
    assert len(desk.dependencies) == 1

    desk.states.apply(Listed(()))
    result = await desk.reconcile()

    assert (result, len(desk.dependencies)) == (Done(), 0)


@pytest.mark.parametrize("trouble", [DOWN, GONE], ids=["failing", "gone"])
async def test_no_event_and_no_log_contains_a_generated_value(trouble: Trouble, capsys: Any) -> None:
    desk = Desk(trouble)
    desk.has(deletionTimestamp=desk.at(-200), **HELD)

    for _ in range(3):
        await desk.reconcile()

    told = repr(desk.events.noted) + "".join(capsys.readouterr())
    assert "Grafana gen" in told
    assert CANARY not in told
