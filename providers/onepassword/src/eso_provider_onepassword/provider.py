"""The 1Password provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_onepassword.connect import ConnectStore
from eso_provider_onepassword.sdk import SDKStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="onepassword", version="0.1.0", kinds=(ConnectStore, SDKStore), maturity=Maturity.UNPROVEN
)


def main() -> None:
    """Run the console script `eso-provider-onepassword`."""
    raise SystemExit(run(PROVIDER))
