"""ClusterGCPSecretManager: Google Secret Manager, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from eso_provider_gcp.specs import SecretManagerConfig
from kubebase.meta import Object


class ClusterGCPSecretManagerSpec(SecretManagerConfig, frozen=True, kw_only=True):
    """The fields of `spec.provider.gcpsm` of a v1 store, where changes are announced, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterGCPSecretManager(Object, kw_only=True):
    """Google Secret Manager, for many namespaces."""

    spec: ClusterGCPSecretManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_GCP_SECRET_MANAGER = cluster_config(ClusterGCPSecretManager, STORE_CONFIG_GROUP, "clustergcpsecretmanagers")
