"""ClusterOpenBao: Key/value engines of OpenBao, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.openbao import OpenBaoProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterOpenBaoSpec(OpenBaoProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.openBao` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterOpenBao(Object, kw_only=True):
    """Key/value engines of OpenBao, for many namespaces."""

    spec: ClusterOpenBaoSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_OPEN_BAO = cluster_config(ClusterOpenBao, STORE_CONFIG_GROUP, "clusteropenbaos")
