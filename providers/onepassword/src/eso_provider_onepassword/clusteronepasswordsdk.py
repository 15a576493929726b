"""ClusterOnePasswordSDK: 1Password with a service account, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.onepasswordsdk import OnePasswordSDKProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterOnePasswordSDKSpec(OnePasswordSDKProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.onepasswordSDK` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterOnePasswordSDK(Object, kw_only=True):
    """1Password with a service account, for many namespaces."""

    spec: ClusterOnePasswordSDKSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_ONE_PASSWORD_SDK = cluster_config(ClusterOnePasswordSDK, STORE_CONFIG_GROUP, "clusteronepasswordsdks")
