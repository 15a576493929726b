"""An API server with our CRDs, installed the way the documentation says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubebase.testing.servers import ApiServer
from kuberun.testing.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(api_server, tmp_path_factory.mktemp("kubectl"), folder=ROOT)


@pytest.fixture(scope="session")
def our_crds(kubectl: Kubectl) -> str:
    """All CRDs, applied from the client side, which works only while each is small enough; the output of kubectl."""
    output = kubectl("apply", "-f", "deploy/crds")
    kubectl("wait", "--for=condition=Established", "--timeout=120s", "-f", "deploy/crds")
    return output
