"""The provider as a whole: Secrets, and objects of any other kind, of Kubernetes clusters."""

from __future__ import annotations

from typing import Final

from eso_provider_kubernetes.objectstore import CustomResourceStore
from eso_provider_kubernetes.secretstore import KubernetesStore
from eso_sdk.main import run
from eso_sdk.provider import Maturity, Provider

PROVIDER: Final = Provider(
    name="kubernetes",
    version="0.1.0",
    maturity=Maturity.STABLE,
    kinds=(KubernetesStore, CustomResourceStore),
    api_name="Kubernetes",
)


def main() -> None:
    """Run the console script `eso-provider-kubernetes`."""
    raise SystemExit(run(PROVIDER))
