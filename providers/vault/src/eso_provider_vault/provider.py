"""The Vault provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_vault.dynamic import VaultDynamicSecretGenerator
from eso_provider_vault.store import OpenBaoStore, VaultStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="vault",
    version="0.1.0",
    maturity=Maturity.STABLE,
    kinds=(VaultStore, OpenBaoStore, VaultDynamicSecretGenerator),
    api_name="HashiCorp/Vault",
)


def main() -> None:
    """Run the console script `eso-provider-vault`."""
    raise SystemExit(run(PROVIDER))
