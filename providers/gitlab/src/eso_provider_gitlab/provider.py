"""The GitLab provider as a whole."""

from __future__ import annotations

from typing import Final

from eso_provider_gitlab.generator import GitlabDeployTokenGenerator
from eso_provider_gitlab.store import VariableStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="gitlab",
    version="0.1.0",
    kinds=(VariableStore, GitlabDeployTokenGenerator),
    api_name="GitLab",
    maturity=Maturity.UNPROVEN,
)


def main() -> None:
    """Run the console script `eso-provider-gitlab`."""
    raise SystemExit(run(PROVIDER))
