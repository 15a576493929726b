"""`eso up` without `--provider`: a provider starts when the first object needs it, and says so."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.local import PASSWORD
from eso_api.secretstore import SECRET_STORE
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.operator.operators import Bench
from kubebase.meta import Condition
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.rawapi import raw_api

NAMESPACE = "app"
STORES, EXTERNAL_SECRETS, PASSWORDS = SECRET_STORE.resource(), EXTERNAL_SECRET.resource(), PASSWORD.resource()
FAKE = {"provider": {"fake": {"data": [{"key": "a", "value": "value-of-a"}]}}}
LOOPBACK = "providers may call loopback addresses"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    with up_running(tmp_path_factory.mktemp("up")) as running:
        Kubectl(running, running.folder)("create", "namespace", NAMESPACE)
        yield running


@pytest.fixture
async def bench(up: UpProcess) -> AsyncIterator[Bench]:
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        yield Bench(api, up.kubeconfig, NAMESPACE, 0)


def valid(condition: Condition) -> bool:
    return condition.status == "True"


def named_providers(up: UpProcess) -> dict[str, str]:
    providers: dict[str, str] = json.loads(up.ready_file.read_text())["providers"]
    return providers


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return True


def starts(up: UpProcess, name: str) -> list[str]:
    """What `eso up` said about starting that provider."""
    entries = [json.loads(line) for line in up.transcript.splitlines() if '"component": "up"' in line]
    return [entry["msg"] for entry in entries if entry["msg"].startswith(f"starting provider {name}:")]


async def test_without_a_store_no_provider_runs(up: UpProcess) -> None:
    assert named_providers(up) == {}
    assert not [line for line in up.members().values() if "eso_cli.serving" in line]
    assert LOOPBACK not in up.output


async def test_the_dashboard_is_printed_named_in_the_ready_file_and_served(up: UpProcess) -> None:
    address = json.loads(up.ready_file.read_text())["dashboard"]

    limit = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=limit) as session, session.get(address) as answer:
        page = await answer.text()

    assert address.startswith("http://127.0.0.1:")
    assert f"dashboard {address}\n" in up.transcript
    assert any(words in page for words in ("Nothing here yet", "Everything is ready", "1 problem"))


async def test_the_first_store_starts_its_provider_and_becomes_ready(bench: Bench, up: UpProcess) -> None:
    await bench.create(STORES, "db", spec=FAKE)
    await bench.create(STORES, "second", spec=FAKE)

    await bench.ready(STORES, "db", valid)
    await bench.ready(STORES, "second", valid)

    assert len(starts(up, "fake")) == 1
    assert starts(up, "fake")[0] in {
        f"starting provider fake: SecretStore app/{name} needs it" for name in ("db", "second")
    }
    up.wait_for(lambda: "fake" in named_providers(up), "the ready file does not name it")
    assert listens(named_providers(up)["fake"])
    assert up.transcript.count(LOOPBACK) == 1


async def test_the_first_generator_starts_its_provider_and_its_values_arrive(bench: Bench, up: UpProcess) -> None:
    await bench.create(PASSWORDS, "password", spec={"length": 20, "digits": 5, "symbols": 5})
    source = {"generatorRef": {"apiVersion": PASSWORDS.api_version, "kind": "Password", "name": "password"}}
    spec = {"refreshInterval": "1h", "target": {"name": "made"}, "dataFrom": [{"sourceRef": source}]}
    await bench.create(EXTERNAL_SECRETS, "made", spec=spec)

    await bench.ready(EXTERNAL_SECRETS, "made", valid)

    assert starts(up, "generators") == ["starting provider generators: Password app/password needs it"]
    up.wait_for(lambda: "generators" in named_providers(up), "the ready file does not name it")


async def test_a_store_of_a_backend_without_a_provider_says_so(bench: Bench, up: UpProcess) -> None:
    await bench.create(STORES, "chef", spec={"provider": {"chef": {"auth": {}}}})

    up.wait_for(lambda: "SecretStore app/chef: no installed provider serves" in up.transcript, "nothing is said of it")
    store = await bench.ready(STORES, "chef", lambda condition: condition.status == "False", within=90)

    (ready,) = (each for each in store["status"]["conditions"] if each["type"] == "Ready")
    assert ready["message"].startswith("ProviderNotInstalled: ")
    assert 'a provider for "chef" is not available yet' in ready["message"]
    assert "not reached" not in ready["message"]  # those that wait for their first user are not asked


def test_manifests_start_their_providers_and_unneeded_ones_are_removed_later(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests.yaml"
    documents: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": STORES.api_version,
            "kind": "SecretStore",
            "metadata": {"name": "db", "namespace": NAMESPACE},
            "spec": FAKE,
        },
    ]
    manifests.write_text(yaml.safe_dump_all(documents))
    with up_running(tmp_path, "--file", str(manifests)) as first:
        at_once = named_providers(first)
        kubectl = Kubectl(first, tmp_path)
        services = kubectl("get", "services", "-n", "external-secrets", "-o", "name").split()
        kubectl("wait", "--for=condition=Ready", "secretstore/db", "-n", NAMESPACE, "--timeout=60s")
        kubectl("delete", "namespace", NAMESPACE)
        first.stop()

    with up_running(tmp_path) as second:
        left = Kubectl(second, tmp_path)("get", "services", "-n", "external-secrets", "-o", "name").split()

    assert list(at_once) == ["fake"]
    assert services == ["service/provider-fake"]
    assert left == []


def test_a_provider_whose_service_is_rejected_is_reported_and_retried(tmp_path: Path) -> None:
    store = {"apiVersion": STORES.api_version, "kind": "SecretStore", "metadata": {"name": "db"}, "spec": FAKE}
    with up_running(tmp_path) as up:
        kubectl = Kubectl(up, tmp_path)
        kubectl("delete", "namespace", "external-secrets")

        kubectl("apply", "-f", "-", stdin=json.dumps(store))
        up.wait_for(lambda: "provider fake: Service provider-fake was refused" in up.output, "the refusal is not told")
        kubectl("create", "namespace", "external-secrets")

        kubectl("wait", "--for=condition=Ready", "secretstore/db", "--timeout=60s")
