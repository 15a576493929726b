"""The Doppler provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_doppler.store import DopplerStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="doppler", version="0.1.0", kinds=(DopplerStore,), api_name="Doppler", maturity=Maturity.UNPROVEN
)


def main() -> None:
    """Run the console script `eso-provider-doppler`."""
    raise SystemExit(run(PROVIDER))
