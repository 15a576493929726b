"""ClusterOnePassword: 1Password through a Connect server, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.onepassword import OnePasswordProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterOnePasswordSpec(OnePasswordProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.onepassword` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterOnePassword(Object, kw_only=True):
    """1Password through a Connect server, for many namespaces."""

    spec: ClusterOnePasswordSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_ONE_PASSWORD = cluster_config(ClusterOnePassword, STORE_CONFIG_GROUP, "clusteronepasswords")
