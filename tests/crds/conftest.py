"""An API server with our CRDs, installed the way the documentation says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kuberun.testing.servers import ApiServer

ROOT = Path(__file__).resolve().parents[2]
KUBECTL = Path(sys.executable).parent / "kubectl"
KUBECTL_SECONDS = 300

Kubectl = Callable[..., str]


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer) -> Kubectl:
    """Run kubectl against the server; its output, or a failed test with what it said."""

    def run(*arguments: str) -> str:
        command = [str(KUBECTL), f"--kubeconfig={api_server.kubeconfig}", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=KUBECTL_SECONDS, cwd=ROOT)
        if result.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {result.stderr}{result.stdout}", pytrace=False)
        return result.stdout

    return run


@pytest.fixture(scope="session")
def our_crds(kubectl: Kubectl) -> str:
    """All CRDs, applied from the client side, which works only while each is small enough; the output of kubectl."""
    output = kubectl("apply", "-f", "deploy/crds")
    kubectl("wait", "--for=condition=Established", "--timeout=120s", "-f", "deploy/crds")
    return output
