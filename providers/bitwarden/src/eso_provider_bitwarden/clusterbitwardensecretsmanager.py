"""ClusterBitwardenSecretsManager: Bitwarden Secrets Manager, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.bitwardensecretsmanager import BitwardenProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterBitwardenSecretsManagerSpec(BitwardenProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.bitwardensecretsmanager` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterBitwardenSecretsManager(Object, kw_only=True):
    """Bitwarden Secrets Manager, for many namespaces."""

    spec: ClusterBitwardenSecretsManagerSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_BITWARDEN_SECRETS_MANAGER = cluster_config(
    ClusterBitwardenSecretsManager, STORE_CONFIG_GROUP, "clusterbitwardensecretsmanagers"
)
