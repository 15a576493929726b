"""`eso conformance` on a provider that `eso provider serve` runs, as its documentation says: no fixture, no flags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubebase.testing.servers import Child, free_ports

Eso = Callable[..., subprocess.CompletedProcess[str]]

ESO = str(Path(sys.executable).parent / "eso")
SECONDS = 100.0


class Served:
    """`eso provider serve fake` in a folder of its own, where it has made its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ready = folder / "ready.json"
        command = f'cd "{folder}" && exec "{ESO}" provider serve fake --listen 127.0.0.1:0 --ready-file "{ready}"'
        self.child = Child(["/bin/sh", "-c", command], folder / "served.log")
        self.child.wait_until(ready.exists, seconds=SECONDS)
        self.child.wait_until(lambda: ready.read_text() != "", seconds=SECONDS)
        self.address: str = json.loads(ready.read_text())["address"]

    def conformance(self, *arguments: str, target: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ESO, "conformance", "--target", target or self.address, *arguments],
            cwd=self.folder,
            env={**os.environ, "GRPC_VERBOSITY": "ERROR"},
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("served"))
    yield running
    running.child.stop()


def test_a_provider_that_conforms_ends_with_zero_and_a_line_for_each_case(served: Served) -> None:
    done = served.conformance("--profile", "read", "--profile", "tls")

    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert "pass  Fake  get: gives the value of a key, byte for byte" in lines
    assert "pass  ClusterFake  get: gives the value of a key, byte for byte" in lines
    assert "pass  Fake  tls: refuses another identity of the same authority" in lines
    assert not [line for line in lines if line.startswith("FAIL")]
    assert " passed, 0 failed, " in lines[-1]


def test_the_read_profile_is_the_one_that_is_tried_if_none_is_named(served: Served) -> None:
    done = served.conformance()

    assert done.returncode == 0
    assert "handshake: " in done.stdout
    assert "push: " not in done.stdout


def test_a_case_that_fails_is_printed_with_its_reason_and_ends_with_one(served: Served, tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.yaml"
    spec = {"data": [{"key": "greeting", "value": "hello"}]}
    known = [{"key": "greeting", "value": "something-else"}]
    fixture.write_text(json.dumps({"kinds": [{"kind": "Fake", "spec": spec, "known": known}]}))

    done = served.conformance("--fixture", str(fixture))

    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert done.returncode == 1
    assert "FAIL  Fake  get: gives the value of a key, byte for byte  (the value differs from the known one)" in failed
    assert "something-else" not in done.stdout + done.stderr
    assert " 0 failed" not in done.stdout.splitlines()[-1]


def test_an_address_without_a_listener_ends_with_two(served: Served) -> None:
    done = served.conformance(target=f"127.0.0.1:{free_ports(1)[0]}")

    assert done.returncode == 2
    assert "UNAVAILABLE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--tls-dir", "nowhere"], "--tls-dir", id="no certificates"),
        pytest.param(["--fixture", "nowhere.yaml"], "nowhere.yaml", id="no fixture"),
        pytest.param(["--token-file", "nowhere.token"], "nowhere.token", id="no token"),
        pytest.param(["--fixture", "broken.yaml"], "broken.yaml", id="a fixture that is none"),
        pytest.param(["--profile", "everything"], "subscribe", id="no such profile"),
        pytest.param(["--fixture", "useless.yaml"], "--fixture", id="a configuration that the provider refuses"),
    ],
)
def test_a_suite_that_cannot_run_exits_with_two_and_the_reason(
    served: Served, eso_inside: Eso, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    (served.folder / "broken.yaml").write_text("kinds: [{nonsense: true}]")
    (served.folder / "useless.yaml").write_text('kinds: [{kind: Fake, spec: {data: [{key: "", value: ""}]}}]')

    monkeypatch.chdir(served.folder)

    done = eso_inside("conformance", "--target", served.address, *arguments)

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
