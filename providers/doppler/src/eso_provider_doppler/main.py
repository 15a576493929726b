"""The console script `eso-provider-doppler`."""

from __future__ import annotations

from eso_provider_doppler.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
