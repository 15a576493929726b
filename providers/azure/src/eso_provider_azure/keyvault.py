"""KeyVault: Azure Key Vault, for one namespace."""

from __future__ import annotations

import msgspec

from eso_api.v2.owned import OwnedStatus, namespaced_config
from eso_provider_azure.specs import AZURE_GROUP, KeyVaultSpec
from kubebase.meta import Object


class KeyVault(Object, kw_only=True):
    """Azure Key Vault, for one namespace."""

    spec: KeyVaultSpec
    status: OwnedStatus = msgspec.field(default_factory=OwnedStatus)


KEY_VAULT = namespaced_config(KeyVault, AZURE_GROUP, "keyvaults")
