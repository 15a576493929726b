"""kubectl in a namespace of its own, and a server that serves gadgets."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kubebase.testing.servers import ApiServer
from kuberun.testing.kubectl import Kubectl

GADGETS = Path(__file__).with_name("gadget_crd.yaml")


@pytest.fixture
def kubectl(api_server: ApiServer, tmp_path: Path, namespace: str) -> Kubectl:
    return Kubectl(api_server, tmp_path, namespace=namespace)


@pytest.fixture
def gadgets(kubectl: Kubectl) -> Kubectl:
    """A kubectl on a server that serves gadgets."""
    kubectl("apply", "--filename", str(GADGETS))
    kubectl("wait", "--for=condition=Established", "crd/gadgets.kubectl.example.com", "--timeout=20s")
    _until_served(kubectl, "get", "gadgets")
    return kubectl


@pytest.fixture
def explained(gadgets: Kubectl) -> Kubectl:
    """The same once the server has published what it knows of gadgets, which it does a little later."""
    _until_served(gadgets, "explain", "gadgets")
    return gadgets


def _until_served(kubectl: Kubectl, *arguments: str) -> None:
    deadline = time.monotonic() + 60
    while kubectl.run(*arguments).returncode != 0:
        assert time.monotonic() < deadline, f"kubectl {' '.join(arguments)} never works"
        time.sleep(0.2)
