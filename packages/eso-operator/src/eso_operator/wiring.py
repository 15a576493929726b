"""Builds the whole process. Nothing else constructs anything that lives long; read it from top to bottom.

client -> informers -> certificates -> gateway, directory, planner -> resolver -> controllers -> manager
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eso_operator.certs.issuer import Issuer
from eso_operator.certs.materials import Materials, MaterialSettings, client_secrets
from eso_operator.definitions import Definitions
from eso_operator.externalsecret import assembly, triggers
from eso_operator.fanout import assembly as fanout
from eso_operator.fanout.reconciler import Outside as FanOutOutside
from eso_operator.feeds import broken_streams, feeds_of
from eso_operator.generatorstate import assembly as generatorstate
from eso_operator.generatorstate.cleaner import Cleaner
from eso_operator.generatorstate.reconciler import Outside as StateOutside
from eso_operator.informers import Informers, fan_outs, informers_of
from eso_operator.partsettings import certificate_settings, resolver_settings, runtime_settings, workers
from eso_operator.providerclass import assembly as providerclass
from eso_operator.providerclass.facts import CertificateEnds, Endpoints
from eso_operator.providerclass.reconciler import ClassOutside
from eso_operator.providers.directory import Directory
from eso_operator.providers.dispatch import Seams
from eso_operator.providers.doors import ServiceDoors
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.metrics import PrometheusMetrics
from eso_operator.providers.planner import ReadPlanner
from eso_operator.providers.subscriptions import Subscriptions
from eso_operator.providers.weights import Weights
from eso_operator.pushsecret import assembly as pushing
from eso_operator.pushsecret.push import FollowMetadata
from eso_operator.secretstore.holding import StoreHolder
from eso_operator.secretstore.kinds import NAMESPACED_KINDS
from eso_operator.secretstore.reconciler import Outside, StoreReconciler, StoreSettings
from eso_operator.secretstore.triggers import held_stores, holders, own_changes
from eso_operator.secretstore.validation import Validator
from eso_operator.settings import Settings
from eso_operator.stores.credentials import Followed, bind, follow_metadata
from eso_operator.stores.kubecredentials import KubeCredentials
from eso_operator.stores.snapshot import CLASS
from eso_operator.stores.target import BoundTarget, ResolvedTarget
from eso_operator.sync.dependencies import Dependencies
from eso_operator.sync.followers import Followers
from eso_operator.sync.ledger import NoLedger, StateLedger
from eso_operator.sync.misfits import Misfits
from eso_operator.sync.pace import Pace
from eso_operator.sync.pushrefresh import PushRefresh
from eso_operator.sync.resolutions import Resolutions
from eso_operator.sync.resolver import Resolver
from eso_operator.sync.resumetokens import ResumeTokens
from eso_operator.sync.seals import KeptSeals, Seals
from eso_operator.sync.wakes import Wakes
from eso_operator.targets.manifest import Follow
from eso_operator.targets.target import Memories
from eso_operator.telemetry.access import Gatekeeper
from eso_operator.telemetry.endpoint import MetricsServer, anybody
from eso_operator.telemetry.metrics import Metrics
from eso_operator.telemetry.objects import Subsystem
from eso_operator.typedkinds import typed_kinds
from eso_operator.watched import WatchedKinds
from eso_render.workers import Workers
from eso_wire.values import KindRole
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Controller, Reconcile, parked
from kuberun.events import EventRecorder
from kuberun.health import HealthServer
from kuberun.informer import Informer
from kuberun.leader import LeaderElection, LeaseSettings, new_identity
from kuberun.manager import Manager, Run
from kuberun.meta import ObjectKey

Bind = Callable[[ResolvedTarget], Awaitable[BoundTarget]]


@dataclass(frozen=True, slots=True)
class Operator:
    """A process that is built and not yet running. What others hang on to is named; the rest is the manager's."""

    manager: Manager
    health: HealthServer
    metrics: Metrics
    metrics_server: MetricsServer
    watched: WatchedKinds
    resolver: Resolver
    gateway: Gateway
    planner: ReadPlanner
    directory: Directory
    push: PushRefresh


def wire(settings: Settings, client: Client, clock: Clock, *, seams: Seams = Seams()) -> Operator:  # noqa: B008 - frozen
    """Everything, in the order in which it depends on each other."""
    metrics = Metrics(settings.metrics, clock)
    watched = WatchedKinds(client, clock, settings.namespace)
    informers = informers_of(watched, settings)
    dependencies = Dependencies()
    wakes = Wakes(dependencies, (settings.core_namespace, *settings.providers.namespaces))
    ends = CertificateEnds(metrics.registry, wakes.certificates_changed)
    issuer = Issuer(client, certificate_settings(settings), clock=clock, listener=ends.heard)
    materials = _materials(settings, client, clock, issuer)
    tempo, calls = settings.providers.tempo, PrometheusMetrics(metrics.registry)
    runtime = runtime_settings(settings)
    gateway = Gateway(materials, clock, settings=runtime, metrics=calls, seams=seams, doors=ServiceDoors(client, clock))
    planner = ReadPlanner(gateway, clock, settings=runtime.planner, metrics=calls)
    directory = Directory(gateway, clock, settings=tempo.directory)
    gateway.listen(lambda connection, _: directory.suspect(connection))
    materials.listen(gateway.renew)
    resolver = Resolver(watched, directory, resolver_settings(settings), Resolutions(watched, directory.handshakes))
    streams = Subscriptions(gateway, clock, settings=runtime.subscriptions, metrics=calls)
    push = _push_refresh(settings, client, clock, streams=streams)
    parts = _Parts(settings, client, clock, metrics, informers, resolver, directory, dependencies, push)
    credentials = KubeCredentials(client, clock, informers.version_of)
    bound = _binding(credentials)
    validator = Validator(resolver, bound, gateway)
    controllers = _store_controllers(parts, validator) | _class_controllers(parts, ends)
    controllers[Subsystem.EXTERNAL_SECRET] = _external_secret_controller(
        parts, bound, gateway, planner=planner, follow=watched.follow
    )
    controllers |= _fan_out_controllers(parts) | _push_secret_controllers(parts, credentials, gateway, watched)
    controllers |= _generator_state_controllers(parts, bound, gateway, watched)
    _listen(parts, wakes, controllers, watched)

    health = HealthServer(clock=clock, host=settings.live.host, port=settings.live.port)
    manager = Manager(clock=clock, election=_election(settings, client, clock), health=health)
    metrics_server = _metrics_server(settings, metrics, client, clock)
    if not settings.metrics.listen.disabled:
        manager.add_service("metrics", metrics_server.run)
    definitions = Definitions(client, clock, watched.from_the_start, reach=watched.reach)
    _add_watches(manager, health, watched, definitions)
    manager.add_service("wakes", feeds_of(informers, wakes).run)
    manager.add_informer(materials.informer)
    manager.add_service("certificates", materials.run)
    manager.add_service("provider connections", _connections(gateway, planner))
    manager.add_service("provider directory", directory.run)
    manager.add_service("push refresh", push.run)
    others = (issuer.controller, _service_controller(parts), _misfit_controller(parts), *_store_holders(parts, watched))
    _hand_over(parts, manager, (*others, *controllers.values()))
    return Operator(
        manager=manager,
        health=health,
        metrics=metrics,
        metrics_server=metrics_server,
        watched=watched,
        resolver=resolver,
        gateway=gateway,
        planner=planner,
        directory=directory,
        push=push,
    )


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the controllers are made from."""

    settings: Settings
    client: Client
    clock: Clock
    metrics: Metrics
    informers: Informers
    resolver: Resolver
    directory: Directory
    dependencies: Dependencies
    push: PushRefresh
    recorders: dict[str, EventRecorder] = field(default_factory=dict)
    seals: Seals = field(init=False)
    weights: Weights = field(init=False)
    workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        limits = self.settings.limits
        weights = Weights(object_bytes=limits.object_bytes, total_bytes=limits.total_bytes)
        object.__setattr__(self, "seals", KeptSeals(self.client, self.settings.core_namespace))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "workers", Workers(self.settings.sync.workers, waiting=parked))

    def recorder(self, component: str) -> EventRecorder:
        """One for each component that events come from."""
        if component not in self.recorders:
            self.recorders[component] = EventRecorder(self.client, self.clock, component=component)
        return self.recorders[component]

    def controller(self, name: str, reconcile: Reconcile) -> Controller:
        counted = self.weights.weighed(self.metrics.controllers.timed(name, reconcile))
        return Controller(name, counted, clock=self.clock, workers=workers(self.settings))


def _add_watches(manager: Manager, health: HealthServer, watched: WatchedKinds, definitions: Definitions) -> None:
    manager.add_service("watches", watched.run)
    manager.add_service("definitions", definitions.run)
    health.add_readiness("crds", definitions.check)


def _hand_over(parts: _Parts, manager: Manager, controllers: Iterable[Controller]) -> None:
    """From now on the manager runs them, and watches over them."""
    for component, recorder in parts.recorders.items():
        manager.add_service(f"events of {component}", recorder.run)
    for informer in parts.informers.everything:
        manager.add_informer(informer)
    for controller in controllers:
        parts.metrics.controllers.add(controller, workers(parts.settings))
        manager.add_controller(controller)
    manager.add_watchdogs()


def _store_controllers(parts: _Parts, validator: Validator) -> dict[Subsystem, Controller]:
    outside = Outside(
        client=parts.client,
        clock=parts.clock,
        validator=validator,
        dependencies=parts.dependencies,
        series=parts.metrics.objects,
        forget_connection=parts.directory.forget,
        push_trouble=parts.push.trouble,
    )
    reconcilers = parts.settings.reconcilers
    settings = StoreSettings(parts.settings.controller_class, parts.settings.store_interval)
    controllers = {}
    for kind, informer in parts.informers.stores.items():
        if kind in NAMESPACED_KINDS and not reconcilers.secret_store:
            continue
        reconciler = StoreReconciler(
            kind, informer.store, outside, recorder=parts.recorder(kind.component), settings=settings
        )
        controller = parts.controller(kind.controller, reconciler.reconcile)
        controller.watch(informer, own_changes, own=True)
        controllers[kind.subsystem] = controller
    return controllers


def _store_holders(parts: _Parts, watched: WatchedKinds) -> list[Controller]:
    """Those of the finalizers of stores, as long as PushSecrets are seen to."""
    if not parts.settings.reconcilers.push_secret:
        return []
    push_secrets, made = parts.informers.push_secrets, []
    for kind, informer in parts.informers.stores.items():
        if kind.role is KindRole.STORE:
            holder = StoreHolder(
                kind,
                informer.store,
                client=parts.client,
                push_secrets=holders(push_secrets.store),
                objects=watched,
                controller_class=parts.settings.controller_class,
            )
            controller = parts.controller(f"{kind.controller}-finalizer", holder.reconcile)
            controller.watch(informer, own_changes)
            controller.watch(push_secrets, held_stores(kind, informer.store))
            made.append(controller)
    return made


def _class_controllers(parts: _Parts, ends: CertificateEnds) -> dict[Subsystem, Controller]:
    trusted = parts.resolver.settings.trusted
    outside = ClassOutside(
        client=parts.client,
        clock=parts.clock,
        resolver=parts.resolver,
        directory=parts.directory,
        dependencies=parts.dependencies,
        series=parts.metrics.objects,
        recorder=parts.recorder("provider-class"),
        certificate_end=ends.of,
        endpoints=Endpoints(parts.client, trusted.__contains__).of,
        interval=parts.settings.store_interval,
    )
    return providerclass.controllers(parts.informers.classes, outside, make=parts.controller)


def _service_controller(parts: _Parts) -> Controller:
    informers, settings = parts.informers, parts.resolver.settings
    return providerclass.service_controller(
        informers.services, informers.classes[CLASS], client=parts.client, settings=settings, make=parts.controller
    )


def _external_secret_controller(
    parts: _Parts, bound: Bind, gateway: Gateway, *, planner: ReadPlanner, follow: Follow
) -> Controller:
    informers = parts.informers
    objects, memories = informers.external_secrets.store, Memories()
    reconciler = assembly.reconciler(
        assembly.Parts(
            settings=parts.settings,
            client=parts.client,
            clock=parts.clock,
            objects=objects,
            secrets=informers.secrets.store,
            memories=memories,
            ledger=_ledger(parts, gateway),
            resolver=parts.resolver,
            bind=bound,
            gateway=gateway,
            planner=planner,
            dependencies=parts.dependencies,
            forget_connection=parts.directory.forget,
            version_of=informers.version_of,
            workers=parts.workers,
            follow=follow,
            series=parts.metrics.objects,
            recorder=parts.recorder("external-secrets"),
            push=parts.push,
        )
    )
    controller = parts.controller("externalsecret", reconciler.reconcile)
    parts.push.feed(controller.queue)
    controller.watch(informers.external_secrets, triggers.own_changes, own=True)
    controller.watch(informers.secrets, triggers.target_changes(objects, memories.is_our_word))
    return controller


def _fan_out_controllers(parts: _Parts) -> dict[Subsystem, Controller]:
    informers = parts.informers
    children: dict[Subsystem, Informer[Any]] = {
        Subsystem.CLUSTER_EXTERNAL_SECRET: informers.external_secrets,
        Subsystem.CLUSTER_PUSH_SECRET: informers.push_secrets,
    }
    controllers = {}
    for fan_out in fan_outs(parts.settings):
        kind = fan_out.subsystem
        watches = fanout.Watches(informers.parents[kind], children[kind], informers.namespaces)
        outside = FanOutOutside(parts.client, parts.clock, parts.metrics.objects, parts.recorder(fan_out.component))
        controllers[kind] = fanout.controller(fan_out, watches, outside, make=parts.controller)
    return controllers


def _push_secret_controllers(
    parts: _Parts, credentials: KubeCredentials, gateway: Gateway, watched: WatchedKinds
) -> dict[Subsystem, Controller]:
    if not parts.settings.reconcilers.push_secret:
        return {}
    informers = parts.informers
    made_from = pushing.Parts(
        settings=parts.settings,
        client=parts.client,
        clock=parts.clock,
        watches=pushing.Watches(informers.push_secrets, informers.secrets, informers.stores, informers.namespaces),
        ledger=_ledger(parts, gateway),
        watched=watched,
        resolver=parts.resolver,
        bind=_binding(credentials),
        follow=_following(credentials),
        gateway=gateway,
        dependencies=parts.dependencies,
        forget_connection=parts.directory.forget,
        version_of=informers.version_of,
        workers=parts.workers,
        series=parts.metrics.objects,
        recorder=parts.recorder("pushsecret"),
    )
    return {Subsystem.PUSH_SECRET: pushing.controller(made_from, make=parts.controller)}


def _ledger(parts: _Parts, gateway: Gateway) -> StateLedger | NoLedger:
    """Without the controller that cleans up, a state would only be in the way."""
    if not parts.settings.reconcilers.generator_state:
        return NoLedger()
    states, grace = parts.informers.generator_states.store, parts.settings.sync.generator_grace
    return StateLedger(parts.client, states, gateway, clock=parts.clock, grace=grace, seals=parts.seals)


def _generator_state_controllers(
    parts: _Parts, bound: Bind, gateway: Gateway, watched: WatchedKinds
) -> dict[Subsystem, Controller]:
    if not parts.settings.reconcilers.generator_state:
        return {}
    settings, seals = parts.resolver.settings, parts.seals
    cleaner = Cleaner(watched, parts.directory, settings, bind=bound, gateway=gateway, seals=seals)
    recorder, forget, informers = parts.recorder("generator-state"), parts.directory.forget, parts.informers
    homes = informers.namespaces.store
    outside = StateOutside(parts.client, parts.clock, cleaner, parts.dependencies, forget, recorder, homes)
    controller = generatorstate.controller(informers.generator_states, outside, make=parts.controller)
    return {Subsystem.GENERATOR_STATE: controller}


def _misfit_controller(parts: _Parts) -> Controller:
    misfits = Misfits(parts.client, parts.clock, parts.recorder("external-secrets"))
    controller = parts.controller("malformed", misfits.reconcile)
    for kind, informer in typed_kinds(parts.informers):
        controller.watch(informer, misfits.changes(kind))
    return controller


def _listen(parts: _Parts, wakes: Wakes, controllers: dict[Subsystem, Controller], watched: WatchedKinds) -> None:
    """From now on controllers hear of what their objects depend on."""
    for subsystem, controller in controllers.items():
        wakes.add(subsystem, controller.queue)
    parts.directory.listen(wakes.provider_changed)
    parts.push.listen(broken_streams(parts.settings, wakes, controllers))
    watched.listen(wakes.object_changed)
    watched.listen_for_kinds(wakes.kind_appeared)


def _push_refresh(settings: Settings, client: Client, clock: Clock, *, streams: Subscriptions) -> PushRefresh:
    # Beside the Lease of the election: operators that do not share that one share no streams either.
    lease = ObjectKey(settings.core_namespace, f"{settings.leader.lease}-streams")
    tokens, pace = ResumeTokens(client, lease, clock), Pace(settings.providers.tempo.pace)
    return PushRefresh(streams, clock, pace=pace, followers=Followers(), tokens=tokens)


def _connections(gateway: Gateway, planner: ReadPlanner) -> Run:
    async def run() -> None:
        try:
            await gateway.run()
        finally:
            await planner.close()  # first: a read whose channel is closed under it is tried again, on a new one
            await gateway.close()

    return run


def _materials(settings: Settings, client: Client, clock: Clock, issuer: Issuer) -> Materials:
    folders = dict(settings.providers.client_folders)
    return Materials(
        client,
        client_secrets(client, settings.core_namespace, clock),
        MaterialSettings(settings.core_namespace, folders=folders),
        clock=clock,
        issuing=issuer,
    )


def _binding(reader: KubeCredentials) -> Bind:
    async def bound(target: ResolvedTarget) -> BoundTarget:
        return await bind(target, reader)

    return bound


def _following(reader: KubeCredentials) -> FollowMetadata:
    async def followed(target: ResolvedTarget, metadata: Mapping[str, Any] | None) -> Followed:
        return await follow_metadata(target, metadata, reader)

    return followed


def _election(settings: Settings, client: Client, clock: Clock) -> LeaderElection | None:
    leader = settings.leader
    if not leader.enabled:
        return None
    lease = LeaseSettings(
        duration=max(round(leader.lease_duration), 1),
        renew_deadline=leader.renew_deadline,
        retry_period=leader.retry_period,
    )
    key = ObjectKey(settings.core_namespace, leader.lease)
    return LeaderElection(client, key, clock=clock, identity=new_identity(), settings=lease)


def _metrics_server(settings: Settings, metrics: Metrics, client: Client, clock: Clock) -> MetricsServer:
    admits = Gatekeeper(client, clock).admission if settings.metrics.authenticated else anybody
    return MetricsServer(settings.metrics, metrics.exposition, clock=clock, admits=admits)
