"""`eso provider`: list, new and serve; and how `eso up` plans the processes of providers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eso_cli.providers import ReservedPort, Supervised, keep_certificates, plan, plan_others
from eso_cli.serving import trial_flags
from eso_operator.certificates import local
from eso_operator.certificates.settings import IssuerSettings, identity_of
from eso_operator.certificates.state import Lifetimes
from eso_sdk.installed import ProviderNameError, installed
from eso_tools.providers import CORE_NAMESPACE
from eso_wire.tls import load_material
from kubebase.testing.clock import START, VirtualClock
from kubebase.testing.servers import free_ports

FILES = ("ca.crt", "tls.crt", "tls.key")

Eso = Callable[..., subprocess.CompletedProcess[str]]


def test_a_new_provider_is_a_distribution_that_describes_itself(eso: Eso, tmp_path: Path) -> None:
    made = eso("provider", "new", "my-vault", "--folder", str(tmp_path / "made"))

    module = tmp_path / "made" / "src" / "eso_provider_my_vault"
    command = f"import sys; sys.path.insert(0, {str(module.parent)!r}); from eso_provider_my_vault.provider import main"
    manifest = subprocess.run(
        [sys.executable, "-c", f"{command}; main()", "--manifest"], capture_output=True, text=True, check=True
    ).stdout
    assert made.returncode == 0
    assert (tmp_path / "made" / "pyproject.toml").is_file()
    assert '"MyVault"' in manifest
    assert '"ClusterMyVault"' in manifest


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("My_Vault", "lower-case", id="a name that is none"),
        pytest.param("taken", "not empty", id="a folder that holds something"),
        pytest.param("inside", "mine.txt/inside", id="a folder inside a file"),
    ],
)
def test_a_provider_that_cannot_be_written_is_explained(eso: Eso, tmp_path: Path, name: str, problem: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    targets = {"taken": folder, "inside": folder / "mine.txt" / "inside"}
    target = targets.get(name, tmp_path / "other")

    refused = eso("provider", "new", name, "--folder", str(target))

    assert refused.returncode == 1
    assert problem in refused.stderr
    assert "Traceback" not in refused.stderr
    assert (folder / "mine.txt").read_text() == "mine"


def test_help_needs_no_provider(eso: Eso) -> None:
    helped = eso("provider", "serve", "--help")

    assert helped.returncode == 0
    assert "eso provider serve NAME --help" in " ".join(helped.stdout.split())


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(ProviderNameError, match=f'port {port} of provider "fake" is in use'):
            plan([f"fake={port}"], tmp_path)

    with pytest.raises(ProviderNameError, match=f'port {port} of provider "generators" is in use'):
        plan([f"fake={port}", f"generators={port}"], tmp_path)


def test_a_provider_is_served_with_the_flags_of_its_own_command(eso: Eso, tmp_path: Path) -> None:
    """`--faults` is the fake provider's: no other one knows it."""
    missing, folder = str(tmp_path / "missing.yaml"), ("--tls-dir", str(tmp_path))

    known = eso("provider", "serve", "fake", *folder, "--faults", missing)
    unknown = eso("provider", "serve", "generators", *folder, "--faults", missing)

    assert (known.returncode, unknown.returncode) == (2, 2)
    assert missing in known.stderr
    assert "unrecognized" not in known.stderr
    assert "unrecognized" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "flags"),
    [
        pytest.param([], {}, ["--listen", "--tls-dir", "--allowed-client"], id="nothing named"),
        pytest.param([], {"ESO_PROVIDER_LISTEN": "[::1]:1"}, ["--tls-dir", "--allowed-client"], id="an address"),
        pytest.param(["--tls-dir=mine"], {}, [], id="certificates"),
        pytest.param([], {"ESO_PROVIDER_TLS_DIR": "mine"}, [], id="certificates, by a variable"),
        pytest.param(["--help"], {}, [], id="help"),
    ],
)
def test_a_provider_that_is_tried_out_serves_this_machine_with_certificates_made_here(
    arguments: list[str],
    environment: dict[str, str],
    flags: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    given = trial_flags("fake", arguments, environment)

    assert given[::2] == flags
    assert "--listen" not in given or given[1] == "127.0.0.1:8080"
    assert (tmp_path / ".eso").exists() is bool(flags)


def test_an_unknown_provider_is_answered_with_the_known_ones(eso: Eso) -> None:
    refused = eso("provider", "serve", "nonsense")

    assert refused.returncode == 1
    assert '"nonsense"' in refused.stderr
    assert "fake" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_flags_of_a_provider_are_listed_by_the_provider(eso: Eso) -> None:
    shown = eso("provider", "serve", "fake", "--help")

    assert shown.returncode == 0
    assert "--allowed-client" in shown.stdout


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        pytest.param(["nonsense"], "installed: ", id="not installed"),
        pytest.param(["fake", "fake=4000"], "twice", id="named twice"),
        pytest.param(["fake="], "NAME=PORT", id="no port"),
        pytest.param(["fake=70000"], "NAME=PORT", id="no such port"),
        pytest.param(["../fake"], "NAME=PORT", id="no name"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(wanted: list[str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderNameError, match=problem):
        plan(wanted, tmp_path)


def test_a_planned_provider_is_a_service_at_its_port(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    fake, generators = plan([f"fake={port}", "generators"], tmp_path)
    for one in (fake, generators):
        one.reserved.release()

    (service,) = fake.objects()

    assert (fake.address, fake.trust) == (
        f"127.0.0.1:{port}",
        f"--expected-provider={CORE_NAMESPACE}/provider-fake=127.0.0.1:{port}",
    )
    assert generators.port != port
    assert service["metadata"]["labels"]["external-secrets.io/provider"] == "true"
    assert service["metadata"]["annotations"]["external-secrets.io/provider-v1-keys"] == "fake"
    assert "Fake.v2alpha1.provider.secretstore.external-secrets.io" in (
        service["metadata"]["annotations"]["external-secrets.io/provider-kinds"].split(",")
    )
    assert service["spec"]["ports"][0]["port"] == port


def test_the_other_providers_wait_for_the_first_object_that_needs_them(tmp_path: Path) -> None:
    pinned = plan(["fake"], tmp_path)

    others = plan_others(pinned, tmp_path)

    for one in (*pinned, *others):
        one.reserved.release()
    assert {one.name for one in others} == set(installed()) - {"fake"}
    assert all(one.on_demand for one in others)
    assert not any(one.on_demand for one in pinned)


def test_a_reserved_port_is_kept_for_the_server_that_asks_for_exactly_this_port() -> None:
    reserved = ReservedPort()
    try:
        anyones = can_bind(reserved.number)
        reserved.hand_over()
        for _ in range(2):  # a server that is restarted gets it again
            socket.create_server(("127.0.0.1", reserved.number)).close()
    finally:
        reserved.release()

    assert not anyones
    assert can_bind(reserved.number)


def can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def test_unwritable_certificates_are_reported_once_and_written_when_possible(tmp_path: Path) -> None:
    provider = Supervised("fake", ReservedPort(), tmp_path / "fake")
    provider.reserved.release()
    issued = local.maintain(
        tmp_path / "issued", identity_of(provider.service, IssuerSettings(CORE_NAMESPACE)), START, Lifetimes()
    )
    said: list[str] = []
    clock = VirtualClock()

    class Api:
        async def get(self, *_: object) -> object:
            return SimpleNamespace(data={name: (issued.server / name).read_bytes() for name in FILES})

    api: Any = Api()
    provider.folder.write_text("in the way, as a full disk is")
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(keep_certificates(provider.name, provider.tls_folder, api, clock, warn=said.append))
        await clock.advance(60)
        provider.folder.unlink()
        await clock.advance(60)
        keeping.cancel()

    assert load_material(provider.tls_folder).fingerprint == load_material(issued.server).fingerprint
    assert said == [
        f"certificates of provider fake: {provider.tls_folder}: Not a directory; they are written again until it works"
    ]
