"""Puts the PushSecret controller together, from parts that `wiring.py` made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from eso_api.pushsecret import PushSecret
from eso_operator.providers.gateway import Gateway
from eso_operator.pushsecret.claims import PLACES_INDEX, Claims, places_of
from eso_operator.pushsecret.finalizer import Finalizer
from eso_operator.pushsecret.gather import Gatherer, VersionOf
from eso_operator.pushsecret.memory import Memory
from eso_operator.pushsecret.push import Bind, FollowMetadata, Pusher
from eso_operator.pushsecret.reconciler import Outside, PushSecretReconciler
from eso_operator.pushsecret.removal import Remover
from eso_operator.pushsecret.settlement import Settlement
from eso_operator.pushsecret.sources import SourceReader
from eso_operator.pushsecret.stores import StoreChooser
from eso_operator.pushsecret.triggers import SOURCES_INDEX, own_changes, source_changes, sources_of, store_changes
from eso_operator.secretstore.kinds import StoreKind
from eso_operator.settings import Settings
from eso_operator.stores.target import Connection
from eso_operator.sync.dependencies import Dependencies
from eso_operator.sync.generators import GeneratorSource
from eso_operator.sync.homes import Homes
from eso_operator.sync.ledger import NoLedger, StateLedger
from eso_operator.sync.resolver import Resolver, WatchedObjects
from eso_operator.telemetry.objects import ObjectSeries
from eso_render.rendering import Rendering, rendering_of_keys
from eso_render.workers import Workers
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Controller, Reconcile
from kuberun.events import EventRecorder
from kuberun.informer import Informer
from kuberun.meta import Object
from kuberun.workqueue import Request

INDEXES: Final = {SOURCES_INDEX: sources_of, PLACES_INDEX: places_of}
"""Of PushSecrets, by which the controller finds them."""


@dataclass(frozen=True, slots=True)
class Watches:
    """What the controller hears of."""

    push_secrets: Informer[PushSecret]
    secrets: Informer[Object]
    stores: Mapping[StoreKind, Informer[Any]]
    namespaces: Informer[Object]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the controller is made from."""

    settings: Settings
    client: Client
    clock: Clock
    watches: Watches
    ledger: StateLedger | NoLedger
    watched: WatchedObjects
    resolver: Resolver
    bind: Bind
    follow: FollowMetadata
    gateway: Gateway
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    version_of: VersionOf
    workers: Workers
    series: ObjectSeries
    recorder: EventRecorder


def controller(parts: Parts, *, make: Callable[[str, Reconcile], Controller]) -> Controller:
    """The controller, hearing of everything that concerns PushSecrets."""
    memory = Memory()
    made = make("pushsecret", reconciler(parts, memory).reconcile)
    memory.rivals.listen(lambda key: made.queue.add(Request(key, "another PushSecret writes to one of its places")))
    watches = parts.watches
    objects = watches.push_secrets.store
    made.watch(watches.push_secrets, own_changes)
    made.watch(watches.secrets, source_changes(objects))
    for kind, informer in watches.stores.items():
        made.watch(informer, store_changes(kind, objects))
    return made


def reconciler(parts: Parts, memory: Memory) -> PushSecretReconciler:
    """The reconciler with everything it works with."""
    client, clock = parts.client, parts.clock
    chooser = StoreChooser(parts.watched, client, parts.settings.controller_class)
    generators = GeneratorSource(parts.resolver, parts.bind, parts.gateway, clock=clock, intents=parts.ledger)
    sources = SourceReader(client, parts.watches.secrets.store, generators)
    objects = parts.watches.push_secrets.store
    claims, pusher = (
        Claims(objects),
        Pusher(parts.resolver, parts.bind, parts.gateway, memory.rivals, follow=parts.follow),
    )
    remover = Remover(parts.resolver, parts.bind, parts.gateway, chooser=chooser, claims=claims, clock=clock)
    outside = Outside(
        client=client,
        clock=clock,
        sources=sources,
        settlement=Settlement(pusher, remover, memory, claims),
        ledger=parts.ledger,
        finalizer=Finalizer(client),
        memory=memory,
        dependencies=parts.dependencies,
        forget_connection=parts.forget_connection,
        series=parts.series,
        recorder=parts.recorder,
        homes=Homes(parts.watches.namespaces.store),
        rendering=Rendering(parts.workers, parts.settings.sync.left_delimiter, parts.settings.sync.right_delimiter),
        selecting=rendering_of_keys(parts.workers),
    )
    return PushSecretReconciler(
        Gatherer(
            objects,
            memory,
            sources=sources,
            chooser=chooser,
            version_of=parts.version_of,
            shortest_interval=parts.settings.sync.shortest_interval,
        ),
        outside,
    )
