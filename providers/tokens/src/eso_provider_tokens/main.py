"""The console script `eso-provider-tokens`."""

from __future__ import annotations

from eso_provider_tokens.provider import PROVIDER
from eso_sdk.main import run


def main() -> None:
    raise SystemExit(run(PROVIDER))
