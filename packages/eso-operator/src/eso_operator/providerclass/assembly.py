"""Puts the controllers of classes, and of Services that become classes, together from parts that `wiring.py` made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS, ProviderClass
from eso_operator.providerclass.reconciler import ClassKindInfo, ClassOutside, ClassReconciler
from eso_operator.providerclass.services import ServiceClasses
from eso_operator.secretstore.triggers import own_changes
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.snapshot import CLASS, CLUSTER_CLASS
from eso_operator.telemetry.objects import Subsystem
from eso_wire.values import KindId
from kuberun.client import Client
from kuberun.controller import Controller, Reconcile
from kuberun.informer import Informer
from kuberun.meta import JsonObject

Make = Callable[[str, Reconcile], Controller]
"""Gives a controller its name, workers and a clock."""

_KINDS: Final = {
    CLASS: ClassKindInfo(PROVIDER_CLASS, Subsystem.PROVIDER_CLASS),
    CLUSTER_CLASS: ClassKindInfo(CLUSTER_PROVIDER_CLASS, Subsystem.CLUSTER_PROVIDER_CLASS),
}


def controllers(
    classes: Mapping[KindId, Informer[Any]], outside: ClassOutside, *, make: Make
) -> dict[Subsystem, Controller]:
    """One for each of the two kinds, fed by its objects; `Wakes` adds what they depend on."""
    made = {}
    for kind_id, kind in _KINDS.items():
        informer = classes[kind_id]
        controller = make(kind.subsystem.value, ClassReconciler(kind, informer.store, outside).reconcile)
        controller.watch(informer, own_changes)
        made[kind.subsystem] = controller
    return made


def service_controller(
    services: Informer[JsonObject],
    classes: Informer[ProviderClass],
    *,
    client: Client,
    settings: ResolverSettings,
    make: Make,
) -> Controller:
    """Makes classes from labelled Services, and removes them."""
    reconciler = ServiceClasses(services.store, classes.store, client=client, settings=settings)
    controller = make("providerservice", reconciler.reconcile)
    controller.watch(services, own_changes)
    controller.watch(classes, own_changes)
    return controller
