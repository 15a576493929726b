"""Puts the ExternalSecret controller together, from parts that `wiring.py` made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from eso_api.externalsecret import ExternalSecret
from eso_operator.externalsecret.classes import controller_classes
from eso_operator.externalsecret.cleanup import Cleanup
from eso_operator.externalsecret.gather import Gatherer, VersionOf
from eso_operator.externalsecret.reconciler import ExternalSecretReconciler, Outside
from eso_operator.externalsecret.settlement import Settlement
from eso_operator.externalsecret.snapshot import Rules
from eso_operator.providers.gateway import Gateway
from eso_operator.providers.planner import ReadPlanner
from eso_operator.settings import Settings
from eso_operator.stores.target import BoundTarget, Connection, ResolvedTarget
from eso_operator.sync.dependencies import Dependencies
from eso_operator.sync.fetch import Fetcher
from eso_operator.sync.generators import GeneratorSource
from eso_operator.sync.ledger import NoLedger, StateLedger
from eso_operator.sync.pushrefresh import PushRefresh
from eso_operator.sync.resolver import Resolver
from eso_operator.targets.discovery import Discovery
from eso_operator.targets.leftovers import Leftovers
from eso_operator.targets.manifest import Follow, ManifestTarget
from eso_operator.targets.secret import SecretTarget
from eso_operator.targets.target import Memories, Target
from eso_operator.telemetry.objects import ObjectSeries
from eso_render.rendering import Rendering, rendering_of_keys
from eso_render.workers import Workers
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.events import EventRecorder
from kuberun.meta import Object


@dataclass(frozen=True, slots=True)
class Parts:
    """What the controller is made from."""

    settings: Settings
    client: Client
    clock: Clock
    objects: Store[ExternalSecret]
    secrets: Store[Object]
    memories: Memories
    ledger: StateLedger | NoLedger
    resolver: Resolver
    bind: Callable[[ResolvedTarget], Awaitable[BoundTarget]]
    gateway: Gateway
    planner: ReadPlanner
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    version_of: VersionOf
    follow: Follow
    series: ObjectSeries
    recorder: EventRecorder
    push: PushRefresh
    workers: Workers


def reconciler(parts: Parts) -> ExternalSecretReconciler:
    """The reconciler with everything it works with."""
    sync = parts.settings.sync
    rendering = Rendering(parts.workers, sync.left_delimiter, sync.right_delimiter)
    secrets = SecretTarget(parts.client, parts.secrets, rendering, parts.memories)
    discovery = Discovery(parts.client, parts.clock)
    manifests = ManifestTarget(parts.client, discovery.resource, parts.follow, rendering=rendering)

    def target_of(es: ExternalSecret) -> Target:
        return secrets if es.spec.target.manifest is None else manifests

    generators = GeneratorSource(parts.resolver, parts.bind, parts.gateway, clock=parts.clock, intents=parts.ledger)
    rules = Rules(
        controller_class=parts.settings.controller_class,
        cluster_stores=parts.settings.reconcilers.cluster_store,
        generic_targets=sync.generic_targets,
        shortest_interval=sync.shortest_interval,
    )
    leftovers = Leftovers(parts.client, parts.secrets, generic_targets=sync.generic_targets)
    cleanup = Cleanup(parts.client, rules, leftovers)
    outside = Outside(
        client=parts.client,
        clock=parts.clock,
        fetcher=Fetcher(
            parts.resolver,
            parts.bind,
            planner=parts.planner,
            finds=parts.gateway,
            generators=generators,
            rendering=rendering_of_keys(parts.workers),
        ),
        ledger=parts.ledger,
        settlement=Settlement(parts.client, cleanup),
        cleanup=cleanup,
        dependencies=parts.dependencies,
        forget_connection=parts.forget_connection,
        series=parts.series,
        recorder=parts.recorder,
        target_of=target_of,
        push=parts.push,
    )
    gatherer = Gatherer(
        parts.objects,
        controller_classes(parts.resolver.snapshot),
        version_of=parts.version_of,
        told_at=parts.push.told_at,
        rules=rules,
        stretch=lambda key: sync.push_refresh_multiplier if parts.push.is_covered(key) else 1.0,
    )
    return ExternalSecretReconciler(gatherer, outside)
