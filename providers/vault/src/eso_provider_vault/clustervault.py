"""ClusterVault: Key/value engines of HashiCorp Vault, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.stores.vault import VaultProvider
from eso_api.v2.owned import STORE_CONFIG_GROUP, OwnedStatus, cluster_config
from eso_api.v2.policy import ClusterPolicy
from kubebase.meta import Object


class ClusterVaultSpec(VaultProvider, frozen=True, kw_only=True):
    """The fields of `spec.provider.vault` of a v1 store, and who may use them."""

    common: ClusterPolicy | None = None
    """Behaviour when this object is named directly, without a store."""


class ClusterVault(Object, kw_only=True):
    """Key/value engines of HashiCorp Vault, for many namespaces."""

    spec: ClusterVaultSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_VAULT = cluster_config(ClusterVault, STORE_CONFIG_GROUP, "clustervaults")
