"""`eso provider certificates`: what it refuses, and how it ends.

`tests/deploy/test_compose.py` runs it with an operator.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ESO = Path(sys.executable).parent / "eso"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: trial
contexts: [{name: trial, context: {cluster: trial, user: trial}}]
clusters: [{name: trial, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: trial, user: {token: planted}}]
"""


def command(tmp_path: Path, name: str, kubeconfig: Path) -> list[str]:
    folder = ["--folder", str(tmp_path / "tls"), "--kubeconfig", str(kubeconfig)]
    return [str(ESO), "provider", "certificates", name, *folder]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("Vault", '"Vault" is not a name of a provider', id="a name with capitals"),
        pytest.param("../vault", '"../vault" is not a name of a provider', id="a path"),
        pytest.param("vault", "cannot read", id="a kubeconfig that does not exist"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(tmp_path: Path, name: str, said: str) -> None:
    done = subprocess.run(
        command(tmp_path, name, tmp_path / "none"), capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert done.stderr.startswith("eso provider certificates: ")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "tls").exists()


def test_it_waits_for_the_operator_and_ends_with_a_signal(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    process = subprocess.Popen(
        command(tmp_path, "vault", kubeconfig), stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}
    )
    assert process.stderr is not None

    said = process.stderr.readline()
    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 0
    process.stderr.close()
    assert said == (
        "eso provider certificates: keeping the certificates of Service external-secrets/provider-vault"
        f" in {tmp_path / 'tls'}\n"
    )
