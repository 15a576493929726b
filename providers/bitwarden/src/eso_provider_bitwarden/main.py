"""The console script `eso-provider-bitwarden`."""

from __future__ import annotations

from eso_provider_bitwarden.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
