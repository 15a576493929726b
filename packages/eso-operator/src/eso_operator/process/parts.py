"""The objects that controllers share. `wiring.py` makes them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eso_operator.changes.feed import ChangeFeed
from eso_operator.controllers.contention import PushedKey
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.pushsecret.controller import pushing
from eso_operator.controllers.pushsecret.ownership import Pushes
from eso_operator.dependencies.dependencies import Dependencies
from eso_operator.generators.ledger import NoLedger, StateLedger
from eso_operator.generators.seals import KeptSeals, Seals
from eso_operator.generators.values import HasIntents
from eso_operator.memory import Memory
from eso_operator.process.informers import Informers
from eso_operator.process.memory import Memories
from eso_operator.process.partsettings import workers
from eso_operator.process.settings import Settings
from eso_operator.process.watched import WatchedKinds
from eso_operator.providers.directory import Directory
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.planner import ReadPlanner
from eso_operator.providers.protection.weights import Weights
from eso_operator.report.reporter import Channels, EventPublisher, Reporter, Subject, TerminatingNamespaces
from eso_operator.sources.templates import TemplateReader
from eso_operator.stores.credentials import Followed, KubeCredentials, bind, follow_metadata
from eso_operator.stores.resolved import BoundStore, ResolvedStore
from eso_operator.stores.resolver import Resolver
from eso_operator.telemetry.metrics import Metrics
from eso_render.workers import Workers
from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.controller import Controller, Reconcile, parked
from kuberun.events import EventRecorder
from kuberun.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that more than one controller uses."""

    settings: Settings
    client: Client
    clock: Clock
    metrics: Metrics
    watched: WatchedKinds
    informers: Informers
    resolver: Resolver
    directory: Directory
    dependencies: Dependencies
    memories: Memories
    gateway: Gateway
    planner: ReadPlanner
    changes: ChangeFeed
    credentials: KubeCredentials = field(init=False)
    events: EventRecorder = field(init=False)
    queues: list[WorkQueue] = field(default_factory=list)
    """The queues of all controllers."""
    seals: Seals = field(init=False)
    templates: TemplateReader = field(init=False)
    weights: Weights = field(init=False)
    workers: Workers = field(init=False)
    pushes: Pushes = field(init=False)
    loops: Loops = field(init=False)

    def __post_init__(self) -> None:
        limits, pushes = self.settings.limits, Pushes(self.memories.push_secrets)
        terminating = TerminatingNamespaces(self.informers.namespaces.cache)
        made = {
            "events": EventRecorder(
                self.client,
                self.clock,
                component="external-secrets",
                busy=lambda: any(queue.has_backlog for queue in self.queues),
                accepts=terminating.accepts_events,
            ),
            "pushes": pushes,
            "loops": Loops(
                self.informers.external_secrets.cache,
                self.informers.secrets.cache,
                self.memories.external_secrets,
                pushed_from=self._pushed_from,
                next_order=pushes.rivals.next_order,
            ),
            "credentials": KubeCredentials(self.client, self.clock, self.informers.version_of),
            "templates": TemplateReader(self.client, self.informers.version_of),
            "seals": KeptSeals(self.client, self.settings.core_namespace),
            "weights": Weights(object_bytes=limits.object_bytes, total_bytes=limits.total_bytes),
            "workers": Workers(self.settings.sync.workers, waiting=parked),
        }
        for name, part in made.items():
            object.__setattr__(self, name, part)

    async def bind(self, target: ResolvedStore) -> BoundStore:
        """Read the credentials of a store."""
        return await bind(target, self.credentials)

    async def follow(self, target: ResolvedStore, metadata: Mapping[str, Any] | None) -> Followed:
        """Read the objects that the metadata of a push refers to."""
        return await follow_metadata(target, metadata, self.credentials)

    def _pushed_from(self, secret: ObjectKey, labels: dict[str, str]) -> Iterator[PushedKey]:
        for push in pushing(self.informers.push_secrets.cache, secret, labels):
            yield from self.pushes.remote_keys(push)

    def ledger(self, memory: Memory[HasIntents]) -> StateLedger | NoLedger:
        """Return a ledger of generated state; one that records nothing if GeneratorStates are not reconciled."""
        if not self.settings.reconcilers.generator_state:
            return NoLedger()
        states, grace = self.informers.generator_states.cache, self.settings.sync.generator_grace
        return StateLedger(
            self.client, states, self.gateway, clock=self.clock, grace=grace, seals=self.seals, memory=memory
        )

    def publisher(self, component: str, terminating: TerminatingNamespaces | None = None) -> EventPublisher:
        """Make what records events in the name of a component."""
        return EventPublisher(self.events, terminating, component=component)

    def reporter(
        self, component: str, subject: Subject, terminating: TerminatingNamespaces | None = None
    ) -> Reporter[Any]:
        """Build the reporter of a controller; `component` is the source of its events."""
        publisher = self.publisher(component, terminating)
        channels = Channels(self.client, self.clock, self.metrics.objects, publisher)
        return Reporter(subject, channels, self.memories.by_controller[subject.subsystem])

    def controller(self, name: str, reconcile: Reconcile) -> Controller:
        """Make a controller that times its reconciles and counts the bytes of values that they hold."""
        counted = self.weights.weighed(self.metrics.controllers.timed(name, reconcile))
        made = Controller(name, counted, clock=self.clock, workers=workers(self.settings))
        self.queues.append(made.queue)
        return made
