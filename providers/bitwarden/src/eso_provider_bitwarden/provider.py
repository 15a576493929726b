"""The Bitwarden Secrets Manager provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_bitwarden.store import BitwardenStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(name="bitwarden", version="0.1.0", kinds=(BitwardenStore,), maturity=Maturity.UNPROVEN)


def main() -> None:
    """Run the console script `eso-provider-bitwarden`."""
    raise SystemExit(run(PROVIDER))
