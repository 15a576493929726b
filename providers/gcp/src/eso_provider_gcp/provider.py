"""The Google provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_gcp.generator import GCRAccessTokenGenerator
from eso_provider_gcp.store import SecretManagerStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="gcp",
    version="0.1.0",
    maturity=Maturity.BETA,
    kinds=(SecretManagerStore, GCRAccessTokenGenerator),
    api_name="GCP/SecretManager",
)


def main() -> None:
    """Run the console script `eso-provider-gcp`."""
    raise SystemExit(run(PROVIDER))
