"""The objects that controllers share (`Parts`), and the controllers: one function for each kind of object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from eso_api.externalsecret import ExternalSecret
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_operator.changes.feed import ChangeFeed
from eso_operator.controllers.base import Channels, EventPublisher, Reporter, Subject, TerminatingNamespaces
from eso_operator.controllers.contention import PushedKey
from eso_operator.controllers.externalsecret import controller as external_secrets
from eso_operator.controllers.externalsecret.controller import ExternalSecretReconciler, makers_of
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.externalsecret.snapshot import Rules, SnapshotGatherer, controller_classes
from eso_operator.controllers.externalsecret.status import SUBJECT as EXTERNAL_SECRET_SUBJECT
from eso_operator.controllers.externalsecret.sync import ExternalSecretDeps, repair_allowance
from eso_operator.controllers.fanout import controller as fan_out_changes
from eso_operator.controllers.fanout.controller import Caches, FanOutDeps, FanOutReconciler, ParentRecord
from eso_operator.controllers.fanout.kinds import FanOut
from eso_operator.controllers.fanout.status import subject_of as fanout_subject
from eso_operator.controllers.generatorstate.controller import GeneratorStateReconciler, StateDeps, StateRecord
from eso_operator.controllers.generatorstate.sync import Cleaner
from eso_operator.controllers.malformed import MalformedObjects
from eso_operator.controllers.providerclass.controller import (
    CertificateEnds,
    ClassDeps,
    ClassKindInfo,
    ClassReconciler,
    Endpoints,
)
from eso_operator.controllers.providerclass.services import ServiceClasses
from eso_operator.controllers.providerclass.status import subject_of as class_subject
from eso_operator.controllers.pushsecret import controller as push_secrets
from eso_operator.controllers.pushsecret.controller import PushSecretReconciler
from eso_operator.controllers.pushsecret.ownership import Owners, RemovalAttempts, Writes
from eso_operator.controllers.pushsecret.pending import PendingPushes
from eso_operator.controllers.pushsecret.push import Pusher
from eso_operator.controllers.pushsecret.record import PushSecretRecord
from eso_operator.controllers.pushsecret.removal import Remover
from eso_operator.controllers.pushsecret.snapshot import SnapshotReader, SourceReader, StoreChooser
from eso_operator.controllers.pushsecret.status import SUBJECT as PUSH_SECRET_SUBJECT
from eso_operator.controllers.pushsecret.sync import PushSecretDeps
from eso_operator.controllers.secretstore.controller import (
    StoreDeps,
    StoreReconciler,
    StoreSettings,
    held_stores,
    holders,
    own_changes,
)
from eso_operator.controllers.secretstore.finalizer import Release, StoreHolder
from eso_operator.controllers.secretstore.kinds import NAMESPACED_KINDS, STORE_KINDS, Generation
from eso_operator.controllers.secretstore.status import subject_of as store_subject
from eso_operator.controllers.secretstore.sync import Validator
from eso_operator.dependencies import Dependencies, service_changed, user_changes
from eso_operator.generators.ledger import GeneratorLedger, HasIntents, StateLedger
from eso_operator.generators.seals import Seals
from eso_operator.generators.source import GeneratorSource
from eso_operator.memory import Memory, Record
from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.bytelimits import ByteLimits
from eso_operator.providers.directory import Directory
from eso_operator.providers.gateway import Gateway
from eso_operator.settings import Settings, workers
from eso_operator.sources.fetch import Fetcher
from eso_operator.sources.templates import TemplateReader
from eso_operator.stores.credentialreader import CredentialReader
from eso_operator.stores.credentials import Followed, bind, follow_metadata
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import CLASS, CLUSTER_CLASS, BoundStore, ResolvedStore
from eso_operator.targets.discovery import Discovery
from eso_operator.targets.former import FormerTargets
from eso_operator.targets.manifest import ManifestTarget
from eso_operator.targets.observed import ObservedTargets
from eso_operator.targets.secret import SecretTarget
from eso_operator.targets.target import Target
from eso_operator.telemetry.metrics import Metrics
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.watches import Informers, WatchedKinds, fan_outs, typed_kinds
from eso_render.rendering import Rendering, rendering_of_keys
from eso_render.workers import Workers
from eso_wire.values import KindRole
from kubebase.clock import Clock
from kubebase.meta import Object, ObjectKey
from kuberun import triggers
from kuberun.client import Client
from kuberun.controller import Controller, Reconcile, parked
from kuberun.events import EventRecorder
from kuberun.informer import Informer
from kuberun.workqueue import ReconcileRequest, WorkQueue

# --- records of objects -----------------------------------------------------------------------------------------------


EVICTED_SECONDS: Final = 300.0
"""An evicted object is reconciled after this time. Not at once, because with more objects than records each reconcile
evicts another record."""


@dataclass(slots=True, eq=False)
class Memories:
    """The tables by kind of object."""

    external_secrets: Memory[ExternalSecretRecord] = field(default_factory=lambda: Memory(ExternalSecretRecord))
    push_secrets: Memory[PushSecretRecord] = field(default_factory=lambda: Memory(PushSecretRecord))
    generator_states: Memory[StateRecord] = field(default_factory=lambda: Memory(StateRecord))
    cluster_external_secrets: Memory[ParentRecord] = field(default_factory=lambda: Memory(ParentRecord))
    cluster_push_secrets: Memory[ParentRecord] = field(default_factory=lambda: Memory(ParentRecord))
    by_controller: Mapping[Subsystem, Memory[Record]] = field(init=False)
    """All of them; stores and classes have no fields of their own."""

    def __post_init__(self) -> None:
        own: dict[Subsystem, Memory[Record]] = {
            Subsystem.EXTERNAL_SECRET: self.external_secrets,
            Subsystem.PUSH_SECRET: self.push_secrets,
            Subsystem.GENERATOR_STATE: self.generator_states,
            Subsystem.CLUSTER_EXTERNAL_SECRET: self.cluster_external_secrets,
            Subsystem.CLUSTER_PUSH_SECRET: self.cluster_push_secrets,
        }
        others = {subsystem: Memory(Record) for subsystem in Subsystem if subsystem not in own}
        self.by_controller = own | others

    def parents(self, subsystem: Subsystem) -> Memory[ParentRecord]:
        """Return the table of one kind that is fanned out."""
        if subsystem is Subsystem.CLUSTER_EXTERNAL_SECRET:
            return self.cluster_external_secrets
        return self.cluster_push_secrets


def requeue_evicted(memory: Memory[Record], queue: WorkQueue) -> None:
    """Requeue evicted objects, which restores their records: the indexes no longer point to them."""

    def requeue(key: ObjectKey) -> None:
        queue.add(ReconcileRequest(key, "its record was evicted"), after=EVICTED_SECONDS)

    memory.on_evict(requeue)


# --- shared objects ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Parts:
    """The objects that more than one controller uses. `queues` are those of all controllers."""

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
    reads: ReadBatcher
    changes: ChangeFeed
    queues: list[WorkQueue] = field(default_factory=list)
    events: EventRecorder = field(init=False)
    writes: Writes = field(init=False)
    loops: Loops = field(init=False)
    credentials: CredentialReader = field(init=False)
    templates: TemplateReader = field(init=False)
    seals: Seals = field(init=False)
    byte_limits: ByteLimits = field(init=False)
    workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        informers, limits = self.informers, self.settings.limits
        self.events = EventRecorder(
            self.client,
            self.clock,
            component="external-secrets",
            busy=lambda: any(queue.has_backlog for queue in self.queues),
            accepts=TerminatingNamespaces(informers.namespaces.cache).accepts_events,
        )
        self.writes = Writes(self.memories.push_secrets)
        self.loops = Loops(
            informers.external_secrets.cache,
            informers.secrets.cache,
            self.memories.external_secrets,
            pushed_from=self._pushed_from,
            next_order=self.writes.next_order,
        )
        self.credentials = CredentialReader(self.client, self.clock, informers.version_of)
        self.templates = TemplateReader(self.client, informers.version_of)
        self.seals = Seals(self.client, self.settings.core_namespace)
        self.byte_limits = ByteLimits(object_bytes=limits.object_bytes, total_bytes=limits.total_bytes)
        self.workers = Workers(self.settings.sync.workers, waiting=parked)

    async def bind(self, target: ResolvedStore) -> BoundStore:
        """Read the credentials of a store."""
        return await bind(target, self.credentials)

    async def follow(self, target: ResolvedStore, metadata: Mapping[str, Any] | None) -> Followed:
        """Read the objects that the metadata of a push refers to."""
        return await follow_metadata(target, metadata, self.credentials)

    def _pushed_from(self, secret: ObjectKey, labels: dict[str, str]) -> Iterator[PushedKey]:
        for push in push_secrets.pushing(self.informers.push_secrets.cache, secret, labels):
            yield from self.writes.pushed_keys(push)

    def ledger(self, memory: Memory[HasIntents]) -> GeneratorLedger:
        """Return a ledger of generated state; one that records nothing if GeneratorStates are not reconciled."""
        if not self.settings.reconcilers.generator_state:
            return GeneratorLedger()
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
        """Make a controller that times its reconciles."""
        timed = self.metrics.controllers.timed(name, reconcile)
        made = Controller(name, timed, clock=self.clock, workers=workers(self.settings))
        self.queues.append(made.queue)
        return made


ByKind = dict[Subsystem, Controller]


@dataclass(frozen=True, slots=True)
class Controllers:
    """All controllers. Those `everywhere` run in every replica: they remove v2 finalizers once, at the start."""

    by_kind: ByKind
    others: tuple[Controller, ...]
    everywhere: tuple[Controller, ...]


def build_controllers(parts: Parts, ends: CertificateEnds) -> Controllers:
    """Make all controllers that the settings switch on."""
    by_kind = store_controllers(parts) | class_controllers(parts, ends)
    by_kind[Subsystem.EXTERNAL_SECRET] = external_secret_controller(parts)
    by_kind |= fan_out_controllers(parts) | push_secret_controllers(parts) | generator_state_controllers(parts)
    for subsystem, controller in by_kind.items():
        requeue_evicted(parts.memories.by_controller[subsystem], controller.queue)
    others = (service_controller(parts), malformed_controller(parts), *store_holders(parts))
    return Controllers(by_kind, others, tuple(store_releases(parts)))


# --- ExternalSecrets --------------------------------------------------------------------------------------------------


def external_secret_controller(parts: Parts) -> Controller:
    informers, memory = parts.informers, parts.memories.external_secrets
    objects = informers.external_secrets.cache
    controller = parts.controller("externalsecret", _external_secret_reconciler(parts).run)
    parts.changes.feed(controller.queue)
    controller.watch(informers.external_secrets, user_changes, own=True)
    controller.watch(informers.secrets, external_secrets.target_changes(objects, ObservedTargets(memory).written_by_us))
    return controller


def _external_secret_reconciler(parts: Parts) -> ExternalSecretReconciler:
    settings, sync, changes = parts.settings, parts.settings.sync, parts.changes
    memory = parts.memories.external_secrets
    rules = Rules(
        controller_class=settings.controller_class,
        cluster_stores=settings.reconcilers.cluster_store,
        generic_targets=sync.generic_targets,
        v2_stores=settings.v2_stores,
        shortest_interval=sync.shortest_interval,
    )
    ledger = parts.ledger(memory)
    gatherer = SnapshotGatherer(
        parts.informers.external_secrets.cache,
        controller_classes(parts.resolver.view),
        memory,
        version_of=parts.informers.version_of,
        notified_at=changes.notified_at,
        rules=rules,
        interval_factor=lambda key: sync.push_refresh_multiplier if changes.is_covered(key) else 1.0,
    )
    deps = ExternalSecretDeps(
        client=parts.client,
        gatherer=gatherer,
        fetcher=Fetcher(
            parts.resolver,
            parts.bind,
            reads=parts.reads,
            gateway=parts.gateway,
            generators=GeneratorSource(parts.resolver, parts.bind, parts.gateway, clock=parts.clock, ledger=ledger),
            rendering=rendering_of_keys(parts.workers),
        ),
        ledger=ledger,
        templates=parts.templates,
        former=FormerTargets(parts.client, parts.informers.secrets.cache, generic_targets=sync.generic_targets),
        memory=memory,
        repairs=repair_allowance(parts.clock),
        loops=parts.loops,
        dependencies=parts.dependencies,
        reporter=parts.reporter("external-secrets", EXTERNAL_SECRET_SUBJECT),
        target_of=_targets(parts),
        changes=changes,
        byte_limits=parts.byte_limits,
    )
    return ExternalSecretReconciler(deps)


def _targets(parts: Parts) -> Callable[[ExternalSecret], Target]:
    sync, memory = parts.settings.sync, parts.memories.external_secrets
    rendering = Rendering(parts.workers, sync.left_delimiter, sync.right_delimiter)
    secrets = SecretTarget(parts.client, parts.informers.secrets.cache, rendering, memory)
    discover, follow = Discovery(parts.client, parts.clock).resource, parts.watched.follow
    manifests = ManifestTarget(parts.client, discover, follow, rendering=rendering, memory=memory)
    return lambda es: secrets if es.spec.target.manifest is None else manifests


# --- stores and classes -----------------------------------------------------------------------------------------------


def store_controllers(parts: Parts) -> ByKind:
    deps = StoreDeps(
        clock=parts.clock,
        validator=Validator(parts.resolver, parts.bind, parts.gateway),
        dependencies=parts.dependencies,
        stream_trouble=parts.changes.trouble,
    )
    settings = StoreSettings(parts.settings.controller_class, parts.settings.store_interval)
    controllers = {}
    for kind, informer in parts.informers.stores.items():
        if kind in NAMESPACED_KINDS and not parts.settings.reconcilers.secret_store:
            continue
        reporter = parts.reporter(kind.component, store_subject(kind))
        memory = parts.memories.by_controller[kind.subsystem]
        reconciler = StoreReconciler(kind, informer.cache, deps, reporter=reporter, memory=memory, settings=settings)
        controller = parts.controller(kind.controller, reconciler.run)
        controller.watch(informer, own_changes, own=True)
        controllers[kind.subsystem] = controller
    return controllers


def store_holders(parts: Parts) -> list[Controller]:
    """Make the controllers that set the finalizers of stores. Empty if PushSecrets are not reconciled."""
    if not parts.settings.reconcilers.push_secret:
        return []
    push_secrets, made = parts.informers.push_secrets, []
    for kind, informer in parts.informers.stores.items():
        if kind.role is KindRole.STORE:
            holder = StoreHolder(
                kind,
                informer.cache,
                client=parts.client,
                push_secrets=holders(push_secrets.cache),
                objects=parts.watched,
                controller_class=parts.settings.controller_class,
            )
            controller = parts.controller(f"{kind.controller}-finalizer", holder.reconcile)
            controller.watch(informer, own_changes)
            controller.watch(push_secrets, held_stores(kind, informer.cache))
            made.append(controller)
    return made


def store_releases(parts: Parts) -> list[Controller]:
    """Make the controller that removes the finalizers of v2 stores. Empty if those are on."""
    if parts.settings.v2_stores:
        return []
    kinds = (kind for kind in STORE_KINDS if kind.generation is Generation.V2 and kind.role is KindRole.STORE)
    settings = parts.settings
    release = Release(
        kinds, client=parts.client, namespace=settings.namespace, controller_class=settings.controller_class
    )
    controller = parts.controller("v2-finalizer", release.reconcile)
    for request in release.requests:
        controller.queue.add(request)
    return [controller]


_CLASS_KINDS: Final = {
    CLASS: ClassKindInfo(PROVIDER_CLASS, Subsystem.PROVIDER_CLASS),
    CLUSTER_CLASS: ClassKindInfo(CLUSTER_PROVIDER_CLASS, Subsystem.CLUSTER_PROVIDER_CLASS),
}


def class_controllers(parts: Parts, ends: CertificateEnds) -> ByKind:
    deps = ClassDeps(
        clock=parts.clock,
        resolver=parts.resolver,
        directory=parts.directory,
        dependencies=parts.dependencies,
        certificate_end=ends.of,
        endpoints=Endpoints(parts.client, parts.resolver.settings.trusted.__contains__).of,
        interval=parts.settings.store_interval,
    )
    made = {}
    for kind_id, kind in _CLASS_KINDS.items():
        informer = parts.informers.classes[kind_id]
        reporter = parts.reporter("provider-class", class_subject(kind.custom.kind(), kind.subsystem))
        memory = parts.memories.by_controller[kind.subsystem]
        reconciler = ClassReconciler(kind, informer.cache, deps, reporter=reporter, memory=memory)
        controller = parts.controller(kind.subsystem.value, reconciler.run)
        controller.watch(informer, own_changes)
        made[kind.subsystem] = controller
    return made


def service_controller(parts: Parts) -> Controller:
    """Make the controller that creates a ProviderClass for each labelled Service and deletes obsolete ones."""
    services, classes = parts.informers.services, parts.informers.classes[CLASS]
    settings = parts.resolver.settings
    reconciler = ServiceClasses(services.cache, classes.cache, client=parts.client, settings=settings)
    controller = parts.controller("providerservice", reconciler.reconcile)
    controller.watch(services, triggers.when(triggers.any_of(service_changed, triggers.resynced), triggers.itself()))
    controller.watch(classes, own_changes)
    return controller


# --- fan-out, generator states, malformed objects ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FanOutWatches:
    """The informers of one fan-out. Parents need the index `CHILD_NAME_INDEX`, children `PARENT_INDEX`."""

    parents: Informer[Any]
    children: Informer[Any]
    namespaces: Informer[Object]


def fan_out_controller(
    fan_out: FanOut, watches: FanOutWatches, deps: FanOutDeps, *, make: Callable[[str, Reconcile], Controller]
) -> Controller:
    """Make the controller of one parent kind. `make` builds a controller from a name and a reconcile function."""
    caches = Caches(watches.parents.cache, watches.children.cache, watches.namespaces.cache)
    made = make(fan_out.subsystem.value, FanOutReconciler(fan_out, caches, deps).run)
    made.watch(watches.parents, fan_out_changes.own_changes(fan_out))
    made.watch(watches.children, fan_out_changes.child_changes(fan_out, caches.parents))
    made.watch(watches.namespaces, fan_out_changes.namespace_changes(fan_out, caches.parents))
    return made


def fan_out_controllers(parts: Parts) -> ByKind:
    informers = parts.informers
    children: dict[Subsystem, Informer[Any]] = {
        Subsystem.CLUSTER_EXTERNAL_SECRET: informers.external_secrets,
        Subsystem.CLUSTER_PUSH_SECRET: informers.push_secrets,
    }
    controllers = {}
    for fan_out in fan_outs(parts.settings):
        kind = fan_out.subsystem
        watches = FanOutWatches(informers.parents[kind], children[kind], informers.namespaces)
        reporter = parts.reporter(fan_out.component, fanout_subject(fan_out))
        deps = FanOutDeps(parts.client, parts.clock, reporter, parts.memories.parents(kind))
        controllers[kind] = fan_out_controller(fan_out, watches, deps, make=parts.controller)
    return controllers


_STATE_CHANGES: Final = triggers.when(
    triggers.any_of(triggers.generation_changed, triggers.deletion_started, triggers.resynced), triggers.itself()
)


def generator_state_controllers(parts: Parts) -> ByKind:
    """Make the controller of GeneratorStates. `Wakes` adds the changes that a clean-up waits for."""
    if not parts.settings.reconcilers.generator_state:
        return {}
    settings, states = parts.resolver.settings, parts.informers.generator_states
    cleaner = Cleaner(
        parts.watched,
        parts.directory,
        settings,
        bind=parts.bind,
        gateway=parts.gateway,
        seals=parts.seals,
        byte_limits=parts.byte_limits,
    )
    terminating = TerminatingNamespaces(parts.informers.namespaces.cache)
    publisher = parts.publisher("generator-state", terminating)
    deps = StateDeps(
        parts.client,
        cleaner,
        parts.dependencies,
        parts.memories.generator_states,
        publisher,
        terminating,
        is_off=cleaner.is_off,
    )
    controller = parts.controller("generatorstate", GeneratorStateReconciler(states.cache, deps).run)
    controller.watch(states, _STATE_CHANGES)
    return {Subsystem.GENERATOR_STATE: controller}


def malformed_controller(parts: Parts) -> Controller:
    malformed = MalformedObjects(parts.client, parts.clock, parts.publisher("external-secrets"))
    controller = parts.controller("malformed", malformed.reconcile)
    for kind, informer in typed_kinds(parts.informers):
        controller.watch(informer, malformed.changes(kind))
    return controller


# --- PushSecrets ------------------------------------------------------------------------------------------------------


def push_secret_controllers(parts: Parts) -> ByKind:
    """Make the controller of PushSecrets; it watches PushSecrets, Secrets and stores."""
    if not parts.settings.reconcilers.push_secret:
        return {}
    informers = parts.informers
    made = parts.controller("pushsecret", _push_secret_reconciler(parts).run)
    parts.writes.on_change(
        lambda key: made.queue.add(ReconcileRequest(key, "another PushSecret writes to one of its remote keys"))
    )
    parts.loops.listen(
        lambda key: made.queue.add(ReconcileRequest(key, "an ExternalSecret is in a loop with it, or was"))
    )
    objects = informers.push_secrets.cache
    made.watch(informers.push_secrets, user_changes)
    made.watch(informers.secrets, push_secrets.source_changes(objects))
    for kind, informer in informers.stores.items():
        made.watch(informer, push_secrets.store_changes(kind, objects))
    return {Subsystem.PUSH_SECRET: made}


def _push_secret_reconciler(parts: Parts) -> PushSecretReconciler:
    client, clock, sync, memory = parts.client, parts.clock, parts.settings.sync, parts.memories.push_secrets
    resolver, gateway, ledger, writes = parts.resolver, parts.gateway, parts.ledger(memory), parts.writes
    chooser = StoreChooser(parts.watched, client, parts.settings.controller_class, v2_stores=parts.settings.v2_stores)
    generators = GeneratorSource(resolver, parts.bind, gateway, clock=clock, ledger=ledger)
    makers = makers_of(parts.informers.external_secrets.cache)
    objects = parts.informers.push_secrets.cache
    owners = Owners(objects, memory)
    terminating = TerminatingNamespaces(parts.informers.namespaces.cache)
    attempts = RemovalAttempts(clock, memory, terminating)
    pusher = Pusher(resolver, parts.bind, gateway, writes, follow=parts.follow)
    snapshots = SnapshotReader(
        objects,
        writes,
        sources=SourceReader(client, parts.informers.secrets.cache, generators, maker_of=makers),
        chooser=chooser,
        version_of=parts.informers.version_of,
        shortest_interval=sync.shortest_interval,
    )
    deps = PushSecretDeps(
        client=client,
        snapshots=snapshots,
        templates=parts.templates,
        pusher=pusher,
        remover=Remover(resolver, parts.bind, gateway, chooser=chooser, owners=owners, attempts=attempts),
        writes=writes,
        owners=owners,
        pending=PendingPushes(pusher, memory),
        ledger=ledger,
        byte_limits=parts.byte_limits,
        fed_by=parts.loops.fed_by,
        memory=memory,
        dependencies=parts.dependencies,
        reporter=parts.reporter("pushsecret", PUSH_SECRET_SUBJECT, terminating),
        rendering=Rendering(parts.workers, sync.left_delimiter, sync.right_delimiter),
        selecting=rendering_of_keys(parts.workers),
    )
    return PushSecretReconciler(deps)
