"""The provider of access tokens as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_tokens.beyondtrust import BeyondtrustGenerator
from eso_provider_tokens.grafana import GrafanaGenerator
from eso_provider_tokens.registries import CloudsmithGenerator, QuayGenerator
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

NAME: Final = "tokens"
VERSION: Final = "0.1.0"

PROVIDER: Final = Provider(
    name=NAME,
    version=VERSION,
    kinds=(QuayGenerator, CloudsmithGenerator, GrafanaGenerator, BeyondtrustGenerator),
    maturity=Maturity.UNPROVEN,
)


def main() -> None:
    """Run the console script `eso-provider-tokens`."""
    raise SystemExit(run(PROVIDER))
