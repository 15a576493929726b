"""Each image: what it installs, and its commands on a read-only root file system as a user without a name."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delivery.workspace import PINS, ROOT, distributions, images
from eso_operator.certificates.local import maintain
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Lifetimes
from eso_operator.stores.resolved import ServiceKey
from eso_testkit.cli.upprocess import UpProcess, up_running
from kubebase.clock import SystemClock
from kubebase.testing.servers import Child, free_ports

IMAGES = images(distributions())
SCRIPTS = {"eso-operator": "eso-operator", "eso-tools": "eso-dashboard", "eso-cli": "eso"}
COMMANDS = [
    pytest.param(image, SCRIPTS.get(each, each), id=f"{SCRIPTS.get(each, each)} of {image}")
    for image, offered in IMAGES.items()
    for each in offered
]
IDENTITY = "spiffe://cluster.local/ns/external-secrets/sa/external-secrets"
PATIENCE = 120.0


def expected(image: str) -> set[str]:
    """The names in the two files of the image."""
    pins = (ROOT / PINS / f"{image}.txt").read_text()
    own = (ROOT / PINS / f"{image}.own").read_text()
    lines = [line for line in pins.splitlines() if re.match(r"[A-Za-z0-9]", line) and "win32" not in line]
    return {*own.split(), *(line.split("==")[0] for line in lines)}


def installed(python: Path) -> set[str]:
    command = [sys.executable, "-m", "pip", "--python", str(python), "list", "--format", "json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    return {re.sub(r"[-_.]+", "-", each["name"]).lower() for each in found}


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_has_exactly_its_distributions_and_no_installer(image: str, built: Any) -> None:
    assert installed(built[image].python) == expected(image)


def test_the_sandbox_lets_a_process_write_nowhere(built: Any) -> None:
    """Otherwise the tests below prove little."""
    name = uuid.uuid4().hex  # a file of that name, left by another program, would be refused for another reason
    tried = "import os, pathlib\nfor each in ('/tmp', '/', os.getcwd()):\n"
    tried += f" try: pathlib.Path(each, '{name}').write_text('')\n except OSError as refused: print(refused.strerror)"

    done = built["operator"].run("python", "-c", tried)
    user = built["operator"].run("python", "-c", "import os; print(os.getuid(), os.environ.get('HOME'))")

    assert done.stdout.splitlines() == ["Read-only file system"] * 3
    assert user.stdout == "65532 None\n"


@pytest.mark.parametrize(("image", "command"), COMMANDS)
def test_a_command_runs_read_only_as_any_user(image: str, command: str, built: Any) -> None:
    is_provider = command.startswith("eso-provider-")

    done = built[image].run(command, "--manifest" if is_provider else "--version")

    assert done.returncode == 0, done.stderr
    if is_provider:
        assert json.loads(done.stdout)["name"] == command.removeprefix("eso-provider-")
    else:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert re.search(rf"\d+\.\d+\.\d+ \(commit {commit.stdout.strip()}\)", done.stdout)


@pytest.mark.parametrize("image", [name for name in IMAGES if len(IMAGES[name]) == 1])
def test_a_provider_image_has_one_name_for_its_command(image: str, built: Any) -> None:
    link = built[image].root / "opt/eso/bin/eso-provider"

    assert link.is_symlink() == (image != "eso")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """The embedded API server with the CRDs, from this checkout."""
    with up_running(tmp_path_factory.mktemp("up"), "--no-operator") as running:
        yield running


def answers(url: str) -> bool:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=unchecked) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def running(tmp_path: Path) -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.stop()
    assert tmp_path.exists()


def test_the_operator_of_the_image_becomes_ready_and_serves_metrics_over_tls(
    built: Any, up: UpProcess, place: Path, running: list[Child], tmp_path: Path
) -> None:
    """Self-signed certificates go through memory: there is no temporary folder."""
    live, metrics = free_ports(2)
    kubeconfig = place / "kubeconfig"
    shutil.copy(up.kubeconfig, kubeconfig)
    kubeconfig.chmod(0o644)
    flags = ["--kubeconfig", str(kubeconfig), "--core-namespace=external-secrets", f"--live-addr=127.0.0.1:{live}"]
    more = [f"--metrics-addr=127.0.0.1:{metrics}", "--metrics-secure"]

    operator = Child(built["operator"].command("eso-operator", *flags, *more), tmp_path / "operator.log")
    running.append(operator)

    operator.wait_until(lambda: answers(f"http://127.0.0.1:{live}/readyz"), seconds=PATIENCE)
    operator.wait_until(lambda: answers(f"https://127.0.0.1:{metrics}/metrics"), seconds=PATIENCE)


def test_the_api_server_of_the_image_needs_its_data_folder_only(
    built: Any, place: Path, running: list[Child], tmp_path: Path
) -> None:
    """As deploy/compose.yaml runs it: everything else is read-only."""
    state = place / "state"
    state.mkdir()
    state.chmod(0o777)
    before, words = built["eso"].command("eso"), ("--bind", str(state), str(state))
    command = [*before[:-2], *words, *before[-2:]]
    flags = [f"--data-dir={state}/data", f"--ready-file={state}/ready.json", f"--file={ROOT}/deploy/crds"]

    api = Child([*command, "up", "--no-operator", *flags], tmp_path / "api.log")
    running.append(api)

    api.wait_until((state / "ready.json").exists, seconds=PATIENCE)
    assert answers(f"{json.loads((state / 'ready.json').read_text())['server']}/readyz")


@pytest.mark.parametrize("image", [name for name, offered in IMAGES.items() if offered[0] == f"eso-provider-{name}"])
def test_the_provider_of_an_image_becomes_ready(
    image: str, built: Any, place: Path, running: list[Child], tmp_path: Path
) -> None:
    listen, live = free_ports(2)
    service = ServiceKey("external-secrets", f"provider-{image}")
    identity = identity_of(service, IssuerSettings(core_namespace="external-secrets"), local=("127.0.0.1",))
    made = maintain(tmp_path / "tls", identity, SystemClock().now(), Lifetimes())
    folder = place / f"tls-{image}"
    shutil.copytree(made.server, folder)
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    flags = [f"--listen=127.0.0.1:{listen}", f"--live=127.0.0.1:{live}", "--metrics=", f"--allowed-client={IDENTITY}"]

    provider = Child(built[image].command("eso-provider", *flags, f"--tls-dir={folder}"), tmp_path / "provider.log")
    running.append(provider)

    provider.wait_until(lambda: answers(f"http://127.0.0.1:{live}/readyz"), seconds=PATIENCE)
