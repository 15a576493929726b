"""The informers of the kinds that are watched from the start, with the indexes that controllers use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.kinds import GENERATOR_KINDS
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_operator.controllers.externalsecret.controller import target_of
from eso_operator.controllers.fanout.clusterexternalsecret import CLUSTER_EXTERNAL_SECRETS
from eso_operator.controllers.fanout.clusterpushsecret import CLUSTER_PUSH_SECRETS
from eso_operator.controllers.fanout.controller import CHILD_NAME_INDEX, PARENT_INDEX, by_child_name, by_parent
from eso_operator.controllers.fanout.kinds import FanOut
from eso_operator.controllers.pushsecret.controller import INDEXES as PUSH_INDEXES
from eso_operator.controllers.secretstore.controller import STORES_INDEX, stores_of
from eso_operator.controllers.secretstore.kinds import CLUSTER_KINDS, NAMESPACED_KINDS, Generation, StoreKind
from eso_operator.generators.ledger import OWNER_INDEX, owner_of
from eso_operator.process.presence import Presence
from eso_operator.process.settings import FeatureGate, Settings
from eso_operator.process.watched import WatchedKinds
from eso_operator.stores.classes import PROVIDER_LABEL
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS
from eso_operator.targets.metadata import TARGET_INDEX
from eso_operator.targets.secret import CREATED_BY_INDEX, created_by_of
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import KindId
from kubebase.meta import JsonObject, Object, ObjectKey, Resource, metadata_of, raw, version_of
from kuberun.informer import Informer
from kuberun.packing import Packing

_PUSH_INDEXES: Final = {STORES_INDEX: stores_of, PARENT_INDEX: by_parent, **PUSH_INDEXES}

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES = Resource("", "v1", "services", "Service")


@dataclass(frozen=True, slots=True)
class Informers:
    """The informers of every kind that is watched from the start."""

    stores: dict[StoreKind, Informer[Any]]
    classes: dict[KindId, Informer[Any]]
    services: Informer[JsonObject]
    shared_services: tuple[Informer[JsonObject], ...]
    """Services of the core and provider namespaces, if `--namespace` limits the other informers to one namespace."""
    secrets: Informer[Object]
    config_maps: Informer[Object]
    service_accounts: Informer[Object]
    push_secrets: Informer[PushSecret]
    external_secrets: Informer[ExternalSecret]
    parents: dict[Subsystem, Informer[Any]]
    """Cluster-scoped objects that fan out over namespaces."""
    namespaces: Informer[Object]
    generator_states: Informer[GeneratorState]
    others: tuple[Informer[Any], ...]

    @property
    def everything(self) -> tuple[Informer[Any], ...]:
        known = (self.services, self.secrets, self.config_maps, self.service_accounts, self.push_secrets)
        synced = (self.external_secrets, self.generator_states)
        parents = self.parents.values()
        own = (*self.stores.values(), *self.classes.values())
        return (*own, *known, *self.shared_services, *synced, *parents, self.namespaces, *self.others)

    def version_of(self, kind: str, key: ObjectKey) -> str:
        """Return the cached resourceVersion of a Secret, ConfigMap or ServiceAccount; empty if it is not cached."""
        holding = {"Secret": self.secrets, "ConfigMap": self.config_maps, "ServiceAccount": self.service_accounts}
        found = holding[kind].cache.get(key)
        return "" if found is None else version_of(found)


def informers_of(watched: WatchedKinds, settings: Settings) -> Informers:
    both = (*NAMESPACED_KINDS, *(CLUSTER_KINDS if settings.reconcilers.cluster_store else ()))
    kinds = tuple(kind for kind in both if settings.v2_stores or kind.generation is Generation.V1)
    generators = (*GENERATOR_KINDS, CLUSTER_GENERATOR)
    providers = "" if FeatureGate.PROVIDER_NAMING_CONVENTION in settings.gates else f"{PROVIDER_LABEL}=true"
    return Informers(
        stores={kind: watched.add(kind.kind, presence=_store_presence(kind, settings), first=True) for kind in kinds},
        classes={CLASS: watched.add(PROVIDER_CLASS.kind()), CLUSTER_CLASS: watched.add(CLUSTER_PROVIDER_CLASS.kind())},
        services=watched.add(raw(SERVICES), labels=providers),
        shared_services=watched.add_in(raw(SERVICES), _elsewhere(settings), labels=providers),
        secrets=watched.add(
            metadata_of(SECRETS), indexes={CREATED_BY_INDEX: created_by_of}, packing=Packing(Object), first=True
        ),
        config_maps=watched.add(metadata_of(CONFIG_MAPS), packing=Packing(Object)),
        service_accounts=watched.add(metadata_of(SERVICE_ACCOUNTS), packing=Packing(Object)),
        push_secrets=watched.add(
            PUSH_SECRET.kind(),
            indexes=_PUSH_INDEXES,
            packing=Packing(PushSecret),
            presence=_push_presence(settings),
            first=True,
        ),
        external_secrets=watched.add(
            EXTERNAL_SECRET.kind(),
            indexes={TARGET_INDEX: target_of, PARENT_INDEX: by_parent},
            packing=Packing(ExternalSecret),
            first=True,
        ),
        parents={each.subsystem: _parents(watched, each) for each in fan_outs(settings)},
        namespaces=watched.add(metadata_of(NAMESPACES)),
        generator_states=watched.add(
            GENERATOR_STATE.kind(),
            indexes={OWNER_INDEX: owner_of},
            packing=Packing(GeneratorState),
            presence=Presence.REQUIRED if settings.reconcilers.generator_state else Presence.OFF,
        ),
        others=tuple(watched.add(raw(each.resource()), presence=Presence.OPTIONAL) for each in generators),
    )


def _store_presence(kind: StoreKind, settings: Settings) -> Presence:
    """Return OPTIONAL for stores that are read but not validated: other objects may refer to them."""
    validated = settings.reconcilers.secret_store or kind in CLUSTER_KINDS
    return Presence.REQUIRED if validated else Presence.OPTIONAL


def _push_presence(settings: Settings) -> Presence:
    used = settings.reconcilers.push_secret or settings.reconcilers.cluster_push_secret
    return Presence.REQUIRED if used else Presence.OFF


def fan_outs(settings: Settings) -> tuple[FanOut, ...]:
    external = (CLUSTER_EXTERNAL_SECRETS,) if settings.reconcilers.cluster_external_secret else ()
    push = (CLUSTER_PUSH_SECRETS,) if settings.reconcilers.cluster_push_secret else ()
    return (*external, *push)


def _elsewhere(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces with providers that the other informers do not watch."""
    if not settings.namespace:
        return ()
    return tuple(each for each in settings.namespaces if each != settings.namespace)


def _parents(watched: WatchedKinds, fan_out: FanOut) -> Informer[Any]:
    # Without a list of namespaces no namespace matches the selector, and all children would look obsolete.
    return watched.add(fan_out.parent, indexes={CHILD_NAME_INDEX: by_child_name(fan_out)}, needs=NAMESPACES)
