"""The console script `eso-provider-azure`."""

from __future__ import annotations

from eso_provider_azure.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
