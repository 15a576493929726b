"""The console script `eso-provider-akeyless`."""

from __future__ import annotations

from eso_provider_akeyless.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
