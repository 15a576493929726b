"""`eso up -f examples/demo` as a new user sees it: the transcript of a first start, and a restart on the same data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eso_testkit.cli.upprocess import UpProcess, up_running
from kuberun.testing.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
DEMO = ("--file", str(ROOT / "examples" / "demo"))
KINDS = "secretstores,clustersecretstores.secretstore.external-secrets.io,externalsecrets,pushsecrets,providerclasses"
BROKEN = "broken"
"""The only object of the demo that shall fail."""

Json = dict[str, Any]


class Demo:
    """A running demo, and what a user can ask it."""

    def __init__(self, up: UpProcess, folder: Path) -> None:
        self.up = up
        self._kubectl = Kubectl(up, folder)

    def objects(self, kinds: str = KINDS) -> list[Json]:
        found: list[Json] = json.loads(self._kubectl("get", kinds, "-A", "-o", "json"))["items"]
        return found

    def ready(self) -> dict[str, str]:
        """The status of each object's Ready condition, by kind and name."""
        return {
            f"{each['kind']} {each['metadata']['name']} {each['metadata'].get('namespace', '')}": condition["status"]
            for each in self.objects()
            for condition in each.get("status", {}).get("conditions", [])
            if condition["type"] == "Ready"
        }

    def is_settled(self) -> bool:
        """Whether everything is ready, except the one that shall fail."""
        ready = self.ready()
        return len(ready) == len(self.objects()) and all(
            status == ("False" if f" {BROKEN} " in name else "True") for name, status in ready.items()
        )

    def wait_until_settled(self) -> None:
        self.up.wait_for(self.is_settled, "not everything is ready")

    def warnings(self) -> list[str]:
        """The Warning events about objects that shall not fail."""
        return [
            f"{each['involvedObject']['name']}: {each['reason']}: {each['message']}"
            for each in self.objects("events")
            if each["type"] == "Warning" and each["involvedObject"]["name"] != BROKEN
        ]

    def ports(self) -> dict[str, tuple[str, str]]:
        """The port of each provider's Service, and that in the address of its class."""
        services = {
            each["metadata"]["name"]: str(each["spec"]["ports"][0]["port"]) for each in self.objects("services")
        }
        classes = {
            each["metadata"]["name"]: str(each["spec"]["address"]).rpartition(":")[2]
            for each in self.objects("providerclasses")
        }
        return {name: (port, classes[name]) for name, port in services.items() if name.startswith("provider-")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(folder: Path) -> Iterator[tuple[Demo, str]]:
    """A first start, with what it had printed when everything was ready; stopped afterwards, its data stays."""
    with up_running(folder, *DEMO) as up:
        demo = Demo(up, folder)
        demo.wait_until_settled()
        yield demo, up.transcript
        up.stop()


def test_a_first_start_prints_what_starts_and_ends_with_the_banner(first: tuple[Demo, str]) -> None:
    demo, transcript = first

    *starts, dashboard, log, ready, following = transcript.splitlines()

    said = [json.loads(line)["msg"] for line in starts]
    assert "starting provider fake: SecretStore demo/backend needs it" in said
    assert "starting provider generators: Password demo/strong needs it" in said
    assert len(said) == 3, said  # and that providers may call loopback addresses
    assert dashboard.startswith("dashboard http://127.0.0.1:")
    assert log == f"log {demo.up.data / 'eso.log'}"
    assert ready == f"ready {demo.up.kubeconfig}"
    assert following == f"next: export KUBECONFIG={demo.up.kubeconfig}; eso status -A"


def test_a_first_start_frightens_nobody(first: tuple[Demo, str]) -> None:
    demo, transcript = first

    assert "Traceback" not in demo.up.output
    assert "ProviderNotInstalled" not in demo.up.output
    assert "warning" not in transcript
    assert demo.warnings() == []


def test_a_restart_moves_the_classes_to_the_new_ports_and_lets_nothing_flap(
    first: tuple[Demo, str], folder: Path
) -> None:
    demo, _ = first
    before, ports = demo.objects(), demo.ports()
    demo.up.stop()

    with up_running(folder, *DEMO) as up:
        again = Demo(up, folder)
        again.wait_until_settled()
        moved, complaints = again.ports(), again.warnings()
        after = again.objects()

    assert all(service == address for service, address in moved.values()), moved
    assert moved.keys() == ports.keys()
    assert complaints == []
    assert ready_since(after) == ready_since(before)


def ready_since(objects: list[Json]) -> dict[str, str]:
    """When each object became ready, without the classes: those say that their provider starts."""
    return {
        f"{each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}": condition[
            "lastTransitionTime"
        ]
        for each in objects
        if each["kind"] != "ProviderClass"
        for condition in each["status"]["conditions"]
        if condition["type"] == "Ready"
    }
