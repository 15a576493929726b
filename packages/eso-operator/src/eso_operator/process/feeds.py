"""Connections from informers and broken change streams to `Wakes` and the queues of controllers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.kinds import GENERATOR_KINDS
from eso_operator.changes.feed import StoreListener
from eso_operator.controllers.secretstore.kinds import STORE_KINDS
from eso_operator.dependencies.dependencies import OnObject
from eso_operator.dependencies.wakes import Feeds, Wakes
from eso_operator.process.informers import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Informers
from eso_operator.process.settings import Settings
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS, NAMESPACE, SERVICE
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import KindId
from kubebase.meta import Resource
from kuberun.controller import Controller
from kuberun.workqueue import ReconcileRequest


def feeds_of(informers: Informers, wakes: Wakes, gateway: Gateway) -> Feeds:
    """Return the feeds that report changes of every kind that reconciled objects can depend on.

    The gateway gets those of kinds that hold configurations of providers.
    """
    feeds = Feeds(wakes)
    feeds.add(informers.secrets, partial(wakes.object_changed, _kind_id(SECRETS)))
    feeds.add(informers.config_maps, partial(wakes.object_changed, _kind_id(CONFIG_MAPS)))
    feeds.add(informers.service_accounts, partial(wakes.object_changed, _kind_id(SERVICE_ACCOUNTS)))
    feeds.add(informers.namespaces, partial(wakes.object_changed, NAMESPACE))
    for kind, informer in informers.stores.items():
        feeds.add(informer, partial(wakes.object_changed, _kind_id(kind.resource)))
        feeds.add(informer, partial(gateway.object_changed, _kind_id(kind.resource)))
    for generator, informer in zip((*GENERATOR_KINDS, CLUSTER_GENERATOR), informers.others, strict=True):
        feeds.add(informer, partial(wakes.object_changed, _kind_id(generator.resource())))
        feeds.add(informer, partial(gateway.object_changed, _kind_id(generator.resource())))
    for services in (informers.services, *informers.shared_services):
        feeds.add(services, partial(wakes.place_changed, SERVICE))
    for kind_id in (CLASS, CLUSTER_CLASS):
        feeds.add(informers.classes[kind_id], partial(wakes.place_changed, kind_id))
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

    def heard(store: OnObject) -> None:
        if (queue := queues.get((store.group, store.kind))) is not None:
            queue.add(ReconcileRequest(store.key, "push refresh of it broke, or works again"))
        if settings.sync.push_refresh_multiplier > 1:
            wakes.wake(store, f"push refresh of {store.kind} {store.key} broke, or works again")

    return heard


def _kind_id(resource: Resource) -> KindId:
    return KindId(resource.group, resource.version, resource.kind)
