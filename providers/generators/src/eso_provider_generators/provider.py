"""The provider of generators that need no network: the kinds of both API generations, the same code behind them."""

from __future__ import annotations

from typing import Final

from eso_provider_generators.generators import (
    FakeGenerator,
    MFAGenerator,
    PasswordGenerator,
    SSHKeyGenerator,
    UUIDGenerator,
)
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="generators",
    version="0.1.0",
    maturity=Maturity.STABLE,
    kinds=(FakeGenerator, MFAGenerator, PasswordGenerator, SSHKeyGenerator, UUIDGenerator),
)


def main() -> None:
    """Run the console script `eso-provider-generators`."""
    raise SystemExit(run(PROVIDER))
