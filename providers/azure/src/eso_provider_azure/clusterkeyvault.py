"""ClusterKeyVault: Azure Key Vault, for many namespaces."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, cluster_config
from eso_provider_azure.specs import AZURE_GROUP, ClusterKeyVaultSpec
from kubebase.meta import Object


class ClusterKeyVault(Object, kw_only=True):
    """Azure Key Vault, for many namespaces."""

    spec: ClusterKeyVaultSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


CLUSTER_KEY_VAULT = cluster_config(ClusterKeyVault, AZURE_GROUP, "clusterkeyvaults")
