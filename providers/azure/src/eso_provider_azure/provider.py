"""The Azure provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_azure.clusterkeyvault import CLUSTER_KEY_VAULT
from eso_provider_azure.generator import ACRAccessTokenGenerator
from eso_provider_azure.keyvault import KEY_VAULT
from eso_provider_azure.store import CONCURRENCY, KeyVaultStore
from eso_sdk.provider import Maturity, Provider, store_kind

NAME: Final = "azure"
VERSION: Final = "0.1.0"

KeyVault = store_kind(objects=(KEY_VAULT, CLUSTER_KEY_VAULT), v1_key="azurekv", concurrency=CONCURRENCY)(KeyVaultStore)

PROVIDER: Final = Provider(
    name=NAME,
    version=VERSION,
    maturity=Maturity.BETA,
    kinds=(KeyVault, ACRAccessTokenGenerator),
    api_name="Azure/KeyVault",
)
