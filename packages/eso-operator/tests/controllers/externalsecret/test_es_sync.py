"""The order of the work of a reconcile: what holds after a crash at each of its effects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_api.externalsecret import ExternalSecret
from eso_api.values import SecretBytes
from eso_operator.changes.followers import ReadState, WatchedKey
from eso_operator.controllers.base import Channels, EventPublisher, Reporter
from eso_operator.controllers.externalsecret.controller import ExternalSecretReconciler, target_of
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.externalsecret.snapshot import Rules, SnapshotGatherer
from eso_operator.controllers.externalsecret.status import SUBJECT
from eso_operator.controllers.externalsecret.sync import ExternalSecretDeps, repair_allowance
from eso_operator.controllers.refresh import current_version
from eso_operator.dependencies import Dependencies, OnObject
from eso_operator.generators.ledger import GeneratedValues, GeneratorLedger, RecordedStates, StateOwner
from eso_operator.providers.bytelimits import ByteLimits
from eso_operator.sources.fetch import Fetched
from eso_operator.sources.templates import TemplateReader
from eso_operator.targets.metadata import TARGET_INDEX, GeneratedMark, controller_reference_of, marked
from eso_operator.targets.target import (
    Absent,
    Applied,
    CreateTarget,
    RemovedTargets,
    TargetChange,
    TargetState,
    UpdateTarget,
    WriteKind,
)
from eso_operator.telemetry.metrics import ObjectSeries
from eso_operator.wiring_controllers import Memories
from eso_render.secret import Values
from eso_render.templates import TemplateObjects
from eso_testkit.operator.externalsecrets import external_secret, intact, synced
from kubebase.clock import rfc3339
from kubebase.meta import ObjectKey
from kubebase.testing.clock import START, VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, ReconcileContext, Result
from kuberun.events import EventRecorder
from kuberun.requests import Request
from kuberun.watch import Applied as ObservedTarget

MANIFEST = {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}


class Crash(BaseException):
    """The process is stopped."""


@dataclass
class World(GeneratorLedger):
    """Everything around the reconciler. Records the calls to it, in order."""

    es: ExternalSecret
    cached: TargetState
    live: TargetState | None = None
    """The target as the API server has it, if the cache is older."""
    former: bool = False
    behind: bool = False
    """Whether the cache holds the object as it was before the last write of its status."""
    crash_after: int | None = None
    """The number of effects after which the process is stopped."""
    then: Result | None = None
    done: list[str] = field(default_factory=list)

    # the API server
    async def request(self, request: Request) -> bytes:
        patch = json.loads(request.body or b"{}")
        if "manifests" in patch.get("status", {}):
            self._do("record target")
        if "conditions" in patch.get("status", {}):
            self._do("report")
        return json.dumps({"metadata": {"name": "db", "namespace": "default", "uid": "uid-db"}, "spec": {}}).encode()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""

    # the target
    async def read(self, es: ExternalSecret, *, live: bool = False) -> TargetState:
        del es
        return self.live if live and self.live is not None else self.cached

    async def plan(
        self, es: ExternalSecret, values: Values, objects: TemplateObjects, mark: GeneratedMark | None = None
    ) -> TargetChange:
        del es, values, objects, mark
        return CreateTarget({}, "")

    async def apply(self, es: ExternalSecret, change: CreateTarget | UpdateTarget) -> Applied:
        del es, change
        self._do("write target")
        return Applied(WriteKind.CREATED, "db")

    async def delete(self, es: ExternalSecret) -> bool:
        raise NotImplementedError

    # former targets
    def exist(self, es: ExternalSecret) -> bool:
        del es
        return self.former

    async def remove(self, es: ExternalSecret) -> RemovedTargets:
        del es
        self._do("remove former target")
        return RemovedTargets(("Deleted",), ())

    # the backend
    async def fetch(self, es: ExternalSecret, *, fresh_since: float | None = None, **_: object) -> Fetched:
        del es, fresh_since
        self._do("read backend")
        return Fetched({"password": SecretBytes(b"v1")})

    async def watched_keys(self, es: ExternalSecret) -> tuple[WatchedKey, ...]:
        del es
        return ()

    def watchable_stores(self, es: ExternalSecret) -> frozenset[OnObject]:
        del es
        return frozenset()

    # generated states
    async def record(self, owner: StateOwner, generated: Sequence[GeneratedValues]) -> RecordedStates:
        del owner, generated
        self._do("record generated")
        return RecordedStates()

    async def retire(self, states: RecordedStates) -> None:
        del states
        self._do("retire older states")

    async def retire_all_but(self, owner: StateOwner, in_use: Collection[str]) -> None:
        del owner, in_use
        self._do("retire unused states")

    async def discard(self, states: RecordedStates) -> None:
        del states
        self._do("discard new states")

    async def roll_back(self, generated: Sequence[GeneratedValues]) -> None:
        raise NotImplementedError

    # changes at the backend
    def subscribe(
        self, key: ObjectKey, watched_keys: Sequence[WatchedKey], read_state: ReadState = ReadState.PART
    ) -> None:
        del key, watched_keys
        if read_state is not ReadState.UNREAD:
            self._do("follow")

    def unsubscribe(self, key: ObjectKey) -> None:
        """Nothing is followed."""

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        del key
        return frozenset()

    def mark_read(self, key: ObjectKey, at: float | None) -> None:
        """Nothing was told."""

    async def run(self) -> list[str]:
        """Reconcile; return what was done, up to the crash if there is one."""
        clock, client, memories = VirtualClock(), Client(self), Memories()
        objects: Cache[ExternalSecret] = Cache({TARGET_INDEX: target_of})
        objects.apply(ObservedTarget(self.es))
        memory = memories.external_secrets
        publisher = EventPublisher(EventRecorder(client, clock, component="test"))
        this: Any = self
        deps = ExternalSecretDeps(
            client=client,
            gatherer=SnapshotGatherer(
                objects,
                lambda _ref, _namespace: None,
                memory,
                version_of=lambda _kind, _key: "",
                notified_at=lambda _: None,
                rules=Rules(generic_targets=True),
            ),
            fetcher=this,
            ledger=self,
            templates=TemplateReader(client, lambda _kind, _key: ""),
            former=this,
            memory=memory,
            repairs=repair_allowance(clock),
            loops=Loops(objects, Cache(), memory, pushed_from=lambda *_: (), next_order=lambda: 0),
            dependencies=Dependencies(memories.by_controller),
            reporter=Reporter(SUBJECT, Channels(client, clock, ObjectSeries(), publisher), memory),
            target_of=lambda _: this,
            changes=this,
            byte_limits=ByteLimits(),
        )
        if self.behind:
            memory.of(self.es.key, self.es.metadata.uid).written_on = self.es.metadata.resource_version
        with suppress(Crash):
            self.result = await ExternalSecretReconciler(deps).run(self.es.key, ReconcileContext(clock.now()))
        return self.done

    def _do(self, effect: str) -> None:
        if len(self.done) == self.crash_after:
            raise Crash
        self.done.append(effect)


def new(**target: Any) -> World:
    """One that was never synced."""
    return World(external_secret(target=target), Absent())


def fresh() -> World:
    """One that is not due; a former target was left."""
    es = synced(external_secret())
    return World(es, intact(owner_references=(controller_reference_of(es),)), former=True)


def generated(es: ExternalSecret) -> TargetState:
    """A target that says that its values were generated."""
    mark = GeneratedMark(time=rfc3339(START), version=current_version(es), states=())
    annotations = marked(es, {}, mark, unchanged=False)
    return intact(owner_references=(controller_reference_of(es),), annotations=annotations)


def unread() -> World:
    """One whose generated values are neither in the status nor in the cache."""
    ref = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "Password", "name": "strong"}
    es = external_secret(data=[], dataFrom=[{"sourceRef": {"generatorRef": ref}}], refreshInterval="0")
    return World(es, Absent(), live=generated(es))


def renamed() -> World:
    """One that is not due and has generated values; a former target was left, with older ones."""
    es = synced(external_secret())
    return World(es, generated(es), former=True)


async def test_an_object_from_before_the_last_report_is_reconciled_again() -> None:
    """That report may have promised a retry, which a reconcile that finds nothing to do would drop."""
    world = fresh()
    world.behind = True

    done = await world.run()

    assert isinstance(world.result, Backoff)
    assert done == []


RECORDED, FOLLOWED, WRITTEN = "record target", "follow", "write target"
STATED, REMOVED, REPORTED = "record generated", "remove former target", "report"
WORLDS = [
    pytest.param(new, ["read backend", FOLLOWED, STATED, WRITTEN, REMOVED, "retire older states", REPORTED], id="new"),
    pytest.param(
        lambda: new(**MANIFEST),
        [RECORDED, "read backend", FOLLOWED, STATED, WRITTEN, REMOVED, "retire older states", REPORTED],
        id="new, of another kind",
    ),
    pytest.param(fresh, [REMOVED, REPORTED], id="fresh, with a former target"),
    pytest.param(
        unread, ["retire unused states", REPORTED], id="generated, and neither in the status nor in the cache"
    ),
    pytest.param(renamed, [REMOVED, "retire unused states", REPORTED], id="generated, with a former target"),
]
RULES = [
    pytest.param(WRITTEN, FOLLOWED, id="a change during the write is announced"),
    pytest.param(WRITTEN, STATED, id="generated values are on record before they are written"),
    pytest.param("retire older states", WRITTEN, id="states in use are not retired before their successors are in use"),
    pytest.param("retire unused states", REMOVED, id="states end after the former target that may hold their values"),
    pytest.param(REPORTED, WRITTEN, id="a status is written when its work is done"),
    pytest.param(REPORTED, REMOVED, id="the removal of a former target is reported"),
    pytest.param(WRITTEN, RECORDED, id="a target of another kind is on record before it is written"),
]


@pytest.mark.parametrize(("world", "effects"), WORLDS)
async def test_a_reconcile_has_these_effects_in_this_order(world: Callable[[], World], effects: list[str]) -> None:
    assert await world().run() == effects


@pytest.mark.parametrize(("later", "earlier"), RULES)
@pytest.mark.parametrize(("world", "effects"), WORLDS)
async def test_after_a_crash_at_any_effect_nothing_is_done_whose_condition_is_not(
    world: Callable[[], World], effects: list[str], later: str, earlier: str
) -> None:
    if not {later, earlier} <= set(effects):
        return
    for number in range(len(effects) + 1):
        crashing = world()
        crashing.crash_after = number

        done = await crashing.run()

        assert earlier in done or later not in done
