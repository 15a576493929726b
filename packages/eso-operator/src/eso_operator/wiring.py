"""Builds the operator process from its settings and an API server client.

    metrics, watched kinds, wakes -> certificates -> gateway, directory, subscriptions
    -> parts (informers, resolver, reads, change feed) -> controllers -> manager

`wiring_controllers.py` holds the objects that controllers share, and makes the controllers. Nothing runs until the
manager does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.kinds import GENERATOR_KINDS
from eso_operator.build import this_build
from eso_operator.certificates.client import ClientCertificates, ClientCertificateSettings, client_secrets
from eso_operator.certificates.issuer import Issuer
from eso_operator.certificates.worker import CertificateWorker
from eso_operator.changes.feed import ChangeFeed, StoreListener
from eso_operator.changes.followers import Followers
from eso_operator.changes.pace import Pace
from eso_operator.changes.resumetokens import NoTokens, ResumeTokens
from eso_operator.changes.subscriptions import Subscriptions
from eso_operator.controllers.providerclass.controller import CertificateEnds
from eso_operator.controllers.secretstore.kinds import STORE_KINDS
from eso_operator.dependencies import Dependencies, Feeds, OnObject, Wakes
from eso_operator.election import Heartbeat, divide, election_of, leases_of
from eso_operator.missingkinds import Definitions
from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.directory import Directory
from eso_operator.providers.gateway import CallHooks, Gateway
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.reachability import ServiceCheck
from eso_operator.settings import Settings, issuer_settings, resolver_settings, runtime_settings, workers
from eso_operator.stores.resolve import ResolutionCache, Resolver
from eso_operator.stores.resolved import CLASS, CLUSTER_CLASS, NAMESPACE, SERVICE
from eso_operator.telemetry.metrics import Metrics
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.telemetry.webserver import MetricsServer, PathAuthorizer, allow_all
from eso_operator.watches import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Informers, WatchedKinds, informers_of, kind_id
from eso_operator.wiring_controllers import Memories, Parts, build_controllers
from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.controller import Controller
from kuberun.health import HealthServer
from kuberun.leader import LeaderElection
from kuberun.manager import Manager, Run
from kuberun.sharding import Sharding
from kuberun.transport import RequestTally
from kuberun.workqueue import ReconcileRequest


@dataclass(frozen=True, slots=True)
class Operator:
    """A fully built operator process. `manager` runs it; the other fields are for tests and for `eso plan`.

    `health` does not run with `--live-addr=0`.
    """

    manager: Manager
    health: HealthServer
    metrics: Metrics
    metrics_server: MetricsServer
    watched: WatchedKinds
    resolver: Resolver
    gateway: Gateway
    reads: ReadBatcher
    directory: Directory
    changes: ChangeFeed
    memories: Memories
    controllers: tuple[Controller, ...]


def wire(
    settings: Settings,
    client: Client,
    clock: Clock,
    *,
    hooks: CallHooks = CallHooks(),  # noqa: B008 - frozen
    tally: RequestTally | None = None,
) -> Operator:
    """Build the operator; each part after the parts that it needs. Starts nothing. `tally` counts its requests."""
    metrics = _metrics(settings, clock, tally or RequestTally())
    watched = WatchedKinds(client, clock, settings.namespace)
    memories = Memories()
    dependencies = Dependencies(memories.by_controller)
    wakes = Wakes(dependencies, clock, (settings.core_namespace, *settings.providers.namespaces))
    ends = CertificateEnds(metrics.registry, wakes.certificates_changed)
    issuer = Issuer(client, issuer_settings(settings), clock=clock, worker=CertificateWorker())
    issuer.listen(ends.on_report)
    certificates = _client_certificates(settings, client, clock, issuer)
    calls, runtime = ProviderMetrics(metrics.registry), runtime_settings(settings)
    gateway = Gateway(
        certificates, clock, settings=runtime, metrics=calls, hooks=hooks, services=ServiceCheck(client, clock)
    )
    directory = Directory(gateway, clock, settings=settings.providers.tempo.directory)
    gateway.listen(lambda connection, _: directory.suspect(connection))
    dependencies.listen(directory.forget)
    certificates.listen(gateway.renew)
    streams = Subscriptions(gateway, clock, settings=runtime.subscriptions, metrics=calls)
    parts = Parts(
        settings=settings,
        client=client,
        clock=clock,
        metrics=metrics,
        watched=watched,
        informers=informers_of(watched, settings),
        resolver=Resolver(
            watched, directory, resolver_settings(settings), ResolutionCache(watched, directory.handshakes)
        ),
        directory=directory,
        dependencies=dependencies,
        memories=memories,
        gateway=gateway,
        reads=ReadBatcher(gateway, clock, settings=runtime.batches, metrics=calls),
        changes=_change_feed(settings, client, clock, streams=streams, followers=Followers(memories.external_secrets)),
    )
    controllers = build_controllers(parts, ends)
    _listen(parts, wakes, controllers.by_kind)
    election = election_of(settings, client, clock)
    if isinstance(election, Sharding):
        divide(election, controllers.by_kind, controllers.others, memories)
    # Each replica needs certificates and may write them at the same time.
    everything = (issuer.controller, *controllers.everywhere, *controllers.others, *controllers.by_kind.values())
    return _managed(parts, wakes, certificates, election=election, controllers=everything)


def _managed(
    parts: Parts,
    wakes: Wakes,
    certificates: ClientCertificates,
    *,
    election: LeaderElection | Sharding | None,
    controllers: tuple[Controller, ...],
) -> Operator:
    """Build the manager and register every service, informer, controller and probe with it."""
    settings, client, clock = parts.settings, parts.client, parts.clock
    health = HealthServer(clock=clock, host=settings.live.host, port=settings.live.port)
    parts.metrics.process.elections(leases_of(settings, election))
    probed = None if settings.live.disabled else health
    manager = Manager(clock=clock, election=election, health=probed)
    metrics_server = _metrics_server(settings, parts.metrics, client, clock)
    if not settings.metrics.listen.disabled:
        manager.add_service("metrics", metrics_server.run)
    definitions = Definitions(client, clock, parts.watched.required, left_out=parts.watched.left_out)
    manager.add_service("watches", parts.watched.run)
    manager.add_service("definitions", definitions.run)
    health.add_readiness("crds", definitions.check)
    if election is None:
        manager.add_service("heartbeat", Heartbeat(settings, client, clock).run)
    manager.add_service("wakes", feeds_of(parts.informers, wakes, parts.gateway).run)
    manager.add_informer(certificates.informer)
    manager.add_service("certificates", certificates.run)
    manager.add_service("provider connections", _connections(parts.gateway, parts.reads))
    manager.add_service("closing of sessions", parts.gateway.close_sessions)
    manager.add_service("provider directory", parts.directory.run)
    manager.add_service("push refresh", parts.changes.run)
    _add_controllers(parts, manager, controllers)
    return Operator(
        manager=manager,
        health=health,
        metrics=parts.metrics,
        metrics_server=metrics_server,
        watched=parts.watched,
        resolver=parts.resolver,
        gateway=parts.gateway,
        reads=parts.reads,
        directory=parts.directory,
        changes=parts.changes,
        memories=parts.memories,
        controllers=controllers,
    )


def _add_controllers(parts: Parts, manager: Manager, controllers: Iterable[Controller]) -> None:
    manager.add_service("events", parts.events.run)
    parts.metrics.process.events(parts.events.counts)
    for informer in parts.informers.everything:
        manager.add_informer(informer)
    for controller in controllers:
        parts.metrics.controllers.add(controller, workers(parts.settings))
        manager.add_controller(controller)
    manager.add_watchdogs()


def _listen(parts: Parts, wakes: Wakes, controllers: Mapping[Subsystem, Controller]) -> None:
    """Connect providers, streams and watches to the queues of the controllers whose objects depend on them."""
    for subsystem, controller in controllers.items():
        wakes.add(subsystem, controller.queue)
    parts.directory.listen(wakes.provider_changed)
    parts.changes.listen(broken_streams(parts.settings, wakes, controllers))
    parts.watched.listen(wakes.object_changed)
    parts.watched.listen(parts.gateway.object_changed)
    parts.watched.listen_for_kinds(wakes.kind_appeared)


def _change_feed(
    settings: Settings, client: Client, clock: Clock, *, streams: Subscriptions, followers: Followers
) -> ChangeFeed:
    # Named after the leader-election Lease: operators with separate elections keep separate resume tokens.
    lease = ObjectKey(settings.core_namespace, f"{settings.leader.lease}-streams")
    tokens = ResumeTokens(client, lease, clock) if settings.leader.shards == 1 else NoTokens()
    return ChangeFeed(streams, clock, pace=Pace(settings.providers.tempo.pace), followers=followers, tokens=tokens)


def _connections(gateway: Gateway, reads: ReadBatcher) -> Run:
    async def run() -> None:
        try:
            await gateway.run()
        finally:
            await reads.close()  # before the gateway: a read whose channel closes is retried on a new channel
            await gateway.close()

    return run


def _client_certificates(settings: Settings, client: Client, clock: Clock, issuer: Issuer) -> ClientCertificates:
    folders = dict(settings.providers.client_folders)
    return ClientCertificates(
        client,
        client_secrets(client, settings.core_namespace, clock),
        ClientCertificateSettings(settings.core_namespace, folders=folders),
        clock=clock,
        issuer=issuer,
    )


def _metrics(settings: Settings, clock: Clock, tally: RequestTally) -> Metrics:
    metrics, build = Metrics(settings.metrics, clock), this_build()
    metrics.process.requests(tally)
    metrics.process.build(build.version, build.commit)
    return metrics


def _metrics_server(settings: Settings, metrics: Metrics, client: Client, clock: Clock) -> MetricsServer:
    authorize = PathAuthorizer(client, clock).authorize if settings.metrics.authenticated else allow_all
    return MetricsServer(settings.metrics, metrics.pages, clock=clock, authorize=authorize)


def feeds_of(informers: Informers, wakes: Wakes, gateway: Gateway) -> Feeds:
    """Return the feeds that report changes of every kind that reconciled objects can depend on.

    The gateway gets those of kinds that hold configurations of providers.
    """
    feeds = Feeds(wakes)
    feeds.add(informers.secrets, partial(wakes.object_changed, kind_id(SECRETS)))
    feeds.add(informers.config_maps, partial(wakes.object_changed, kind_id(CONFIG_MAPS)))
    feeds.add(informers.service_accounts, partial(wakes.object_changed, kind_id(SERVICE_ACCOUNTS)))
    feeds.add(informers.namespaces, partial(wakes.object_changed, NAMESPACE))
    for store, informer in informers.stores.items():
        feeds.add(informer, partial(wakes.object_changed, kind_id(store.resource)))
        feeds.add(informer, partial(gateway.object_changed, kind_id(store.resource)))
    for generator, informer in zip((*GENERATOR_KINDS, CLUSTER_GENERATOR), informers.others, strict=True):
        feeds.add(informer, partial(wakes.object_changed, kind_id(generator.resource())))
        feeds.add(informer, partial(gateway.object_changed, kind_id(generator.resource())))
    for services in (informers.services, *informers.shared_services):
        feeds.add(services, partial(wakes.place_changed, SERVICE))
    for kind in (CLASS, CLUSTER_CLASS):
        feeds.add(informers.classes[kind], partial(wakes.place_changed, kind))
    return feeds


def broken_streams(settings: Settings, wakes: Wakes, controllers: Mapping[Subsystem, Controller]) -> StoreListener:
    """Return a listener for streams that break or recover.

    It requeues the store, whose condition reports the stream. If push refresh stretches the refresh interval, it also
    requeues the objects that depend on the store, because their interval changes.
    """
    queues = {
        (kind.resource.group, kind.resource.kind): controllers[kind.subsystem].queue
        for kind in STORE_KINDS
        if kind.subsystem in controllers
    }

    def on_change(store: OnObject) -> None:
        if (queue := queues.get((store.group, store.kind))) is not None:
            queue.add(ReconcileRequest(store.key, "push refresh of it broke, or works again"))
        if settings.sync.push_refresh_multiplier > 1:
            wakes.wake(store, f"push refresh of {store.kind} {store.key} broke, or works again")

    return on_change
