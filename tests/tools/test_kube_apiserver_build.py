"""tools/kube-apiserver/build.py: its versions, when it builds, and its errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "kube-apiserver" / "build.py"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def fake_apiserver(tmp_path: Path) -> Path:
    binary = tmp_path / "kube-apiserver"
    binary.write_text("#!/bin/sh\necho Kubernetes v1.2.3\n")
    binary.chmod(0o755)
    return binary


def test_the_two_newest_versions_are_tested_by_default() -> None:
    default = run("--versions").stdout.split()
    newest = run("--versions", KUBE_VERSIONS="newest").stdout.split()
    every = run("--versions", KUBE_VERSIONS="all").stdout.split()

    assert (newest, default) == (every[:1], every[:2])
    assert len(every) >= 2
    assert every == sorted(every, key=lambda version: [int(part) for part in version.split(".")], reverse=True)


def test_given_binaries_replace_the_build(fake_apiserver: Path) -> None:
    assets = str(fake_apiserver.parent)

    versions = run("--versions", KUBEBUILDER_ASSETS=assets, KUBE_VERSIONS="all")
    folder = run("1.2.3", KUBEBUILDER_ASSETS=assets)

    assert versions.stdout.split() == ["1.2.3"]
    assert folder.stdout.strip() == assets


def test_binaries_in_the_cache_are_reused(tmp_path: Path) -> None:
    version = run("--versions").stdout.split()[0]
    folder = tmp_path / "eso-testbin" / f"kubernetes-{version}"
    folder.mkdir(parents=True)
    for name in ("kube-apiserver", "kube-controller-manager", "etcd"):
        (folder / name).touch()

    reply = run(version, XDG_CACHE_HOME=str(tmp_path), PATH="/nothing")

    assert (reply.returncode, reply.stdout.strip()) == (0, str(folder))


def test_helm_in_the_cache_is_reused_and_without_go_the_reply_says_what_is_missing(tmp_path: Path) -> None:
    missing = run("--helm", XDG_CACHE_HOME=str(tmp_path), PATH="/nothing")
    (folder,) = (tmp_path / "eso-testbin").glob("helm-*")
    (folder / "helm").touch()
    found = run("--helm", XDG_CACHE_HOME=str(tmp_path), PATH="/nothing")

    assert missing.returncode == 1
    assert "no Go toolchain on PATH, and no helm in" in missing.stderr
    assert found.stdout.strip() == str(folder / "helm")


@pytest.mark.parametrize(
    ("version", "environment", "said"),
    [
        pytest.param("", {"PATH": "/nothing"}, "no Go toolchain on PATH", id="without Go"),
        pytest.param("1.0.0", {}, "no go.mod pins Kubernetes 1.0.0; known: ", id="an unknown version"),
        pytest.param("", {"KUBEBUILDER_ASSETS": "/nothing"}, "/nothing holds no kube-apiserver", id="empty assets"),
    ],
)
def test_a_build_that_is_impossible_says_why(
    tmp_path: Path, version: str, environment: dict[str, str], said: str
) -> None:
    wanted = version or run("--versions").stdout.split()[0]

    reply = run(wanted, XDG_CACHE_HOME=str(tmp_path), **environment)

    assert reply.returncode == 1
    assert said in reply.stderr
    assert reply.stdout == ""
