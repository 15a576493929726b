"""The Vault provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_vault.clusteropenbao import CLUSTER_OPEN_BAO
from eso_provider_vault.clustervault import CLUSTER_VAULT
from eso_provider_vault.dynamic import VaultDynamicSecretGenerator
from eso_provider_vault.openbao import OPEN_BAO
from eso_provider_vault.store import CONCURRENCY, OpenBaoStore, VaultStore
from eso_provider_vault.vault import VAULT
from eso_sdk.provider import Maturity, Provider, store_kind

NAME: Final = "vault"
VERSION: Final = "0.1.0"

Vault = store_kind(objects=(VAULT, CLUSTER_VAULT), v1_key="vault", concurrency=CONCURRENCY)(VaultStore)
OpenBao = store_kind(objects=(OPEN_BAO, CLUSTER_OPEN_BAO), v1_key="openBao", concurrency=CONCURRENCY)(OpenBaoStore)

PROVIDER: Final = Provider(
    name=NAME,
    version=VERSION,
    maturity=Maturity.STABLE,
    kinds=(Vault, OpenBao, VaultDynamicSecretGenerator),
    api_name="HashiCorp/Vault",
)
