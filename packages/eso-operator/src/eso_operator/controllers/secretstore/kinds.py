"""The kinds that are validated, as values: one reconciler serves them all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from eso_api.crd import CustomKind
from eso_api.references import CORE_GROUP
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_api.v2.provider import CLUSTER_PROVIDER, PROVIDER
from eso_api.v2.secretstore import CLUSTER_SECRET_STORE_V2, SECRET_STORE_V2
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.kinds import KindRole
from kubebase.meta import Kind, Resource


class Generation(Enum):
    """V1 kinds have the conditions of the existing operator; V2 kinds have more reasons and a richer status."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class StoreKind:
    """One kind. `component` is the source of its events."""

    custom: CustomKind[Any]
    subsystem: Subsystem
    component: str
    generation: Generation
    role: KindRole = KindRole.STORE

    @property
    def kind(self) -> Kind[Any]:
        return self.custom.kind()

    @property
    def resource(self) -> Resource:
        return self.custom.resource()

    @property
    def controller(self) -> str:
        """Return the name of the controller in logs and metrics."""
        return self.subsystem.value

    @property
    def status_key_prefix(self) -> str:
        """Return the prefix of this kind in `status.syncedPushSecrets`.

        v1 kinds have that of the existing operator, others include their group.
        """
        if self.generation is Generation.V1 or self.resource.group == CORE_GROUP:
            return self.resource.kind
        return f"{self.resource.group}/{self.resource.kind}"


STORE = StoreKind(SECRET_STORE, Subsystem.SECRET_STORE, "secret-store", Generation.V1)
CLUSTER_STORE = StoreKind(CLUSTER_SECRET_STORE, Subsystem.CLUSTER_SECRET_STORE, "cluster-secret-store", Generation.V1)
STORE_V2 = StoreKind(SECRET_STORE_V2, Subsystem.SECRET_STORE_V2, "secret-store", Generation.V2)
CLUSTER_STORE_V2 = StoreKind(
    CLUSTER_SECRET_STORE_V2, Subsystem.CLUSTER_SECRET_STORE_V2, "cluster-secret-store", Generation.V2
)
PROVIDER_KIND = StoreKind(PROVIDER, Subsystem.PROVIDER, "provider", Generation.V2)
CLUSTER_PROVIDER_KIND = StoreKind(CLUSTER_PROVIDER, Subsystem.CLUSTER_PROVIDER, "cluster-provider", Generation.V2)
GENERATOR_KIND = StoreKind(GENERATOR, Subsystem.GENERATOR, "generator", Generation.V2, KindRole.GENERATOR)
CLUSTER_GENERATOR_KIND = StoreKind(
    CLUSTER_GENERATOR_V2, Subsystem.CLUSTER_GENERATOR, "cluster-generator", Generation.V2, KindRole.GENERATOR
)

NAMESPACED_KINDS = (STORE, STORE_V2, PROVIDER_KIND, GENERATOR_KIND)
CLUSTER_KINDS = (CLUSTER_STORE, CLUSTER_STORE_V2, CLUSTER_PROVIDER_KIND, CLUSTER_GENERATOR_KIND)
STORE_KINDS = (*NAMESPACED_KINDS, *CLUSTER_KINDS)
