"""deploy/compose.yaml: its commands, run as processes of this machine, sync a value from OpenBao into a Secret.

There is no container engine here. What it would do is small: put an image's entry point before `command`, replace
variables, mount folders. This test does the same with folders of its own.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from delivery.containerfile import stages
from delivery.versions import current
from delivery.workspace import distributions, images, repository, target
from eso_provider_vault.testing.openbao import OpenBao
from kubebase.testing.servers import Child, ServerFailedError, find_program, free_ports

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "compose.yaml"
PATIENCE = 120.0
PORTS = ("ESO_API_PORT", "ESO_LIVE_PORT", "ESO_VAULT_PORT", "ESO_VAULT_LIVE_PORT")


def composed(variables: dict[str, str]) -> dict[str, Any]:
    """Return the services of the file, with its variables replaced as a container engine replaces them."""
    text = re.sub(
        r"\$\{(\w+)(?::-([^}]*))?\}", lambda found: variables.get(found[1]) or found[2] or "", FILE.read_text()
    )
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


def image_names() -> dict[str, str]:
    """Return the images of this project by the last part of their repository."""
    return {repository(name): name for name in images(distributions())}


@dataclass(slots=True)
class Machine:
    """Folders in the place of volumes, and the processes in the place of containers."""

    folder: Path
    services: dict[str, Any]
    environment: dict[str, str]
    running: dict[str, Child] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a service, after those that it depends on have started or are healthy, as its conditions say."""
        service = self.services[name]
        for other, how in service.get("depends_on", {}).items():
            if other not in self.running:
                self.start(other)
            if how["condition"] == "service_healthy":
                self.healthy(other)
        entry = stages()[target(image_names()[image_of(service)])].entrypoint
        program = Path(sys.executable).parent / {"eso-provider": image_of(service)}.get(entry[0], entry[0])
        command = [str(program), *entry[1:], *self.local(service, service["command"])]
        more = {**self.environment, **service.get("environment", {})}
        self.running[name] = Child(command, self.folder / f"{name}.log", more)

    def healthy(self, name: str) -> None:
        service = self.services[name]
        how, *test = self.local(service, service["healthcheck"]["test"])
        assert how == "CMD"

        def passes() -> bool:
            done = subprocess.run(test, capture_output=True, check=False, timeout=30)
            return done.returncode == 0

        self.running[name].wait_until(passes, seconds=PATIENCE)

    def local(self, service: dict[str, Any], arguments: list[str]) -> list[str]:
        """Return arguments with the folders of this machine instead of those of the container."""
        mounts = {"/usr/share/eso/crds": str(ROOT / "deploy" / "crds")}
        for volume in service.get("volumes", []):
            source, inside = volume.split(":")[:2]
            mounts[inside] = str(FILE.parent / source if source[0] in "./" else self.volume(source))
        for inside, outside in mounts.items():
            arguments = [argument.replace(inside, outside) for argument in arguments]
        return arguments

    def volume(self, name: str) -> Path:
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def kubectl(self, *arguments: str) -> str:
        program = find_program("kubectl")
        assert program
        done = subprocess.run(
            [str(program), "--kubeconfig", str(self.volume("access") / "kubeconfig"), *arguments],
            env={**os.environ, "HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "cache")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout


def image_of(service: dict[str, Any]) -> str:
    """Return the last part of the name of the service's image, without its tag."""
    name: str = service["image"].rsplit("/", 1)[-1].split(":")[0]
    return name


def manifests(bao: OpenBao) -> list[dict[str, Any]]:
    auth = {"tokenSecretRef": {"name": "vault-token", "key": "token"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "app"}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "vault-token", "namespace": "app"},
            "stringData": {"token": bao.root_token},
        },
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "SecretStore",
            "metadata": {"name": "vault", "namespace": "app"},
            "spec": {"provider": {"vault": {"server": bao.url, "path": "kv", "version": "v2", "auth": auth}}},
        },
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "ExternalSecret",
            "metadata": {"name": "db", "namespace": "app"},
            "spec": {
                "secretStoreRef": {"name": "vault"},
                "data": [{"secretKey": "password", "remoteRef": {"key": "db", "property": "password"}}],
            },
        },
    ]


@pytest.fixture
def bao(tmp_path: Path) -> Iterator[OpenBao]:
    (tmp_path / "bao").mkdir()
    with OpenBao.started(tmp_path / "bao") as server:
        server.enable("kv")
        status, answer = server.call("POST", "kv/data/db", {"data": {"password": "planted"}})
        assert status == 200, answer
        yield server


@pytest.fixture
def machine(tmp_path: Path, bao: OpenBao) -> Iterator[Machine]:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "app.yaml").write_text(yaml.safe_dump_all(manifests(bao)))
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    variables = {**ports, "ESO_MANIFESTS": str(folder), "ESO_ALLOW_ADDRESS": "loopback"}
    home = {"HOME": "/nonexistent", "GRPC_VERBOSITY": "ERROR"}
    machine = Machine(tmp_path, composed(variables), home)
    try:
        yield machine
    finally:
        for child in reversed(machine.running.values()):
            child.stop()


def test_the_commands_of_the_file_sync_a_value_from_openbao(machine: Machine) -> None:
    for name in machine.services:
        if name not in machine.running:
            machine.start(name)
    for name in ("operator", "vault"):
        machine.healthy(name)

    def synced() -> bool:
        found = machine.kubectl("get", "secret", "db", "--namespace", "app", "--output", "json")
        data = json.loads(found or "{}").get("data", {})
        return base64.b64decode(data.get("password", "")) == b"planted"

    try:
        machine.running["operator"].wait_until(synced, seconds=PATIENCE)
    except ServerFailedError as problem:
        state = machine.kubectl("get", "secretstore,externalsecret", "--namespace", "app")
        raise AssertionError(f"no value arrived: {state}") from problem

    assert (machine.volume("vault-tls") / "vault" / "tls.key").exists()
    assert (machine.volume("access") / "kubeconfig").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", sorted(composed({})))
def test_a_service_has_an_image_of_this_project_and_no_rights(name: str) -> None:
    service = composed({})[name]

    assert image_of(service) in image_names()
    assert service["image"].endswith(f":{current()}")
    assert service["user"] == "65532:65532"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices"} & set(service)


@pytest.mark.parametrize("name", sorted(composed({})))
def test_a_service_listens_on_loopback_only(name: str) -> None:
    """The containers share the network of the machine."""
    flags = dict(re.findall(r"^--([\w-]+)=(.*)$", "\n".join(composed({})[name]["command"]), re.MULTILINE))

    for flag in ("listen", "live", "live-addr"):
        assert flags.get(flag, "127.0.0.1:1").startswith("127.0.0.1:")
    if image_of(composed({})[name]) == "eso-operator":
        assert flags["metrics-addr"] == "0"
    if image_of(composed({})[name]).startswith("eso-provider"):
        assert flags["metrics"] == ""
        assert "listen" in flags


def test_only_the_api_server_reads_its_data_and_the_provider_sees_its_certificates_alone() -> None:
    mounts = {name: [each.split(":")[0] for each in one.get("volumes", [])] for name, one in composed({}).items()}

    assert [name for name, sources in mounts.items() if "data" in sources] == ["api"]
    assert mounts["vault"] == ["vault-tls"]
