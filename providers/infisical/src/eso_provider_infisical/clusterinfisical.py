"""ClusterInfisical: Infisical, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.infisical import InfisicalProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterInfisicalSpec(InfisicalProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.infisical` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterInfisical(Object, kw_only=True):
    """Infisical, for many namespaces."""

    spec: ClusterInfisicalSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_INFISICAL = cluster_config(ClusterInfisical, STORE_CONFIG_GROUP, "clusterinfisicals")
