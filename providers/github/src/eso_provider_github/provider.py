"""The GitHub provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_github.generator import GithubAccessTokenGenerator
from eso_provider_github.store import ActionsStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="github",
    version="0.1.0",
    kinds=(ActionsStore, GithubAccessTokenGenerator),
    api_name="GitHub",
    maturity=Maturity.UNPROVEN,
)


def main() -> None:
    """Run the console script `eso-provider-github`."""
    raise SystemExit(run(PROVIDER))
