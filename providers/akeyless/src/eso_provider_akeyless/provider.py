"""The Akeyless provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_akeyless.store import AkeylessStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

API_NAME: Final = "AKEYLESSLESS/SecretsManager"
"""The label that metrics of the operator in Go have: dashboards select by it."""

PROVIDER: Final = Provider(
    name="akeyless", version="0.1.0", kinds=(AkeylessStore,), api_name=API_NAME, maturity=Maturity.UNPROVEN
)


def main() -> None:
    """Run the console script `eso-provider-akeyless`."""
    raise SystemExit(run(PROVIDER))
