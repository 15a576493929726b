"""kubectl in a namespace of its own, and a server that serves widgets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kuberun.testing.kubectl import Kubectl
from kuberun.testing.servers import ApiServer

WIDGETS = Path(__file__).with_name("widget_crd.yaml")


@pytest.fixture
def kubectl(api_server: ApiServer, tmp_path: Path, namespace: str) -> Kubectl:
    return Kubectl(api_server, tmp_path, namespace=namespace)


@pytest.fixture
def widgets(kubectl: Kubectl) -> Kubectl:
    """A kubectl on a server that serves widgets."""
    kubectl("apply", "--filename", str(WIDGETS))
    kubectl("wait", "--for=condition=Established", "crd/widgets.kubectl.example.com", "--timeout=20s")
    deadline = time.monotonic() + 20
    while kubectl.run("get", "widgets").returncode != 0:
        assert time.monotonic() < deadline, "widgets are never served"
        time.sleep(0.2)
    return kubectl
