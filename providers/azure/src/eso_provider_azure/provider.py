"""The Azure provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_azure.generator import ACRAccessTokenGenerator
from eso_provider_azure.store import KeyVaultStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="azure",
    version="0.1.0",
    maturity=Maturity.BETA,
    kinds=(KeyVaultStore, ACRAccessTokenGenerator),
    api_name="Azure/KeyVault",
)


def main() -> None:
    """Run the console script `eso-provider-azure`."""
    raise SystemExit(run(PROVIDER))
