"""ClusterDoppler: one config of Doppler, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.doppler import DopplerProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterDopplerSpec(DopplerProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.doppler` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterDoppler(Object, kw_only=True):
    """One config of Doppler, for many namespaces."""

    spec: ClusterDopplerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_DOPPLER = cluster_config(ClusterDoppler, STORE_CONFIG_GROUP, "clusterdopplers")
