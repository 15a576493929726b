"""The Infisical provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_infisical.store import InfisicalStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(name="infisical", version="0.1.0", kinds=(InfisicalStore,), maturity=Maturity.UNPROVEN)


def main() -> None:
    """Run the console script `eso-provider-infisical`."""
    raise SystemExit(run(PROVIDER))
