"""Builds the dashboard from the parts of the operator, if it is switched on. Its modules are loaded only then."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from eso_api.crd import CustomKind
from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import CLUSTER_PUSH_SECRET, PUSH_SECRET
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_operator.stores.resolved import CLASS, CLUSTER_CLASS
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.telemetry.webserver import AccessReviews
from eso_operator.watches import Informers
from eso_operator.wiring_controllers import Memories, Parts
from kuberun.informer import Informer

if TYPE_CHECKING:
    from eso_operator.dashboard.server import DashboardServer
    from eso_operator.insight.overview import ObjectId


def dashboard_of(parts: Parts) -> DashboardServer | None:
    """Return the server of the dashboard; None if it is off."""
    settings = parts.settings.dashboard
    if settings.listen.disabled:
        return None
    from eso_operator.dashboard.calls import calls_of
    from eso_operator.dashboard.pages import Pages, Sources
    from eso_operator.dashboard.server import DashboardServer
    from eso_operator.dashboard.snapshots import Snapshots
    from eso_operator.dashboard.viewers import Authorizer

    snapshots = Snapshots(_informers(parts.informers), parts.clock)
    sources = Sources(
        client=parts.client,
        snapshots=snapshots,
        calls=lambda: calls_of(parts.metrics.registry, parts.gateway.in_flight),
        clock=parts.clock,
        checked=lambda identity: _checked(parts.memories, identity),
        stale=snapshots.stale,
    )
    authorizer = Authorizer(AccessReviews(parts.client), parts.clock) if settings.authenticated else None
    return DashboardServer(settings, Pages(sources, authorizer), parts.clock)


def _checked(memories: Memories, identity: ObjectId) -> datetime | None:
    """Return when this process last refreshed an object; the status may have an earlier time."""
    match identity.kind:
        case EXTERNAL_SECRET.name:
            refreshed = memories.external_secrets.find(identity.key)
            return None if refreshed is None or refreshed.last is None else refreshed.last.at
        case PUSH_SECRET.name:
            pushed = memories.push_secrets.find(identity.key)
            return None if pushed is None or pushed.last is None else pushed.last.at
        case _:
            return None


def _informers(informers: Informers) -> dict[CustomKind[Any], Informer[Any]]:
    shown: dict[CustomKind[Any], Informer[Any]] = {
        EXTERNAL_SECRET: informers.external_secrets,
        PUSH_SECRET: informers.push_secrets,
        GENERATOR_STATE: informers.generator_states,
        PROVIDER_CLASS: informers.classes[CLASS],
        CLUSTER_PROVIDER_CLASS: informers.classes[CLUSTER_CLASS],
    }
    parents: dict[Subsystem, CustomKind[Any]] = {
        Subsystem.CLUSTER_EXTERNAL_SECRET: CLUSTER_EXTERNAL_SECRET,
        Subsystem.CLUSTER_PUSH_SECRET: CLUSTER_PUSH_SECRET,
    }
    shown |= {kind.custom: informer for kind, informer in informers.stores.items()}
    return shown | {parents[subsystem]: informer for subsystem, informer in informers.parents.items()}
