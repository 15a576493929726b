"""ClusterAkeyless: items of Akeyless, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.akeyless import AkeylessProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterAkeylessSpec(AkeylessProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.akeyless` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterAkeyless(Object, kw_only=True):
    """Items of Akeyless, for many namespaces."""

    spec: ClusterAkeylessSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_AKEYLESS = cluster_config(ClusterAkeyless, STORE_CONFIG_GROUP, "clusterakeylesses")
