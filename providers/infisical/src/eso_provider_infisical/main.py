"""The console script `eso-provider-infisical`."""

from __future__ import annotations

from eso_provider_infisical.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
