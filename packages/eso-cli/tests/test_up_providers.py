"""`eso up --provider fake -f FOLDER`: stores of every form become ready, changes are applied, children return (R63)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.secretstore import SECRET_STORE
from eso_api.v2.provider import PROVIDER
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.operator.operators import Bench
from kubebase.meta import Condition, Resource
from kubebase.testing.servers import free_ports
from kuberun.testing.rawapi import raw_api

Eso = Callable[..., subprocess.CompletedProcess[str]]

NAMESPACE = "team"
V1, V2, PROVIDERS = SECRET_STORE.resource(), SECRET_STORE_V2.resource(), PROVIDER.resource()
DATA = [{"key": "a", "value": "value-of-a"}]
REF = {"kind": "Fake", "name": "values"}
OWNED = "provider.secretstore.external-secrets.io/v2alpha1"


def manifest(resource: Resource, name: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def manifests(port: int) -> dict[str, list[dict[str, Any]]]:
    """By file: the same values, reached in every form that a store can have."""
    values = {"apiVersion": OWNED, "kind": "Fake", "metadata": {"name": "values", "namespace": NAMESPACE}}
    return {
        "10-stores.yaml": [
            manifest(V1, "unedited", {"provider": {"fake": {"data": DATA}}}),
            manifest(V2, "discovered", {"providerConfig": {"providerRef": REF}}),
            manifest(
                V2,
                "by-service",
                {"providerConfig": {"address": "provider-fake.external-secrets.svc:8080", "providerRef": REF}},
            ),
            manifest(V2, "by-address", {"providerConfig": {"address": f"127.0.0.1:{port}", "providerRef": REF}}),
            manifest(PROVIDERS, "direct", {"providerRef": REF}),
            manifest(PROVIDERS, "direct-by-address", {"address": f"127.0.0.1:{port}", "providerRef": REF}),
        ],
        "20-values.yaml": [{**values, "spec": {"data": DATA}}],
        "30-namespace.yaml": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[UpProcess]:
    port = free_ports(1)[0]
    for name, documents in manifests(port).items():
        (folder / name).write_text(yaml.safe_dump_all(documents))
    flags = ("--provider", f"fake={port}", "-f", str(folder))
    with up_running(tmp_path_factory.mktemp("up"), *flags, "--", "--store-requeue-interval=1s") as running:
        yield running


@pytest.fixture
async def bench(up: UpProcess) -> AsyncIterator[Bench]:
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        yield Bench(api, up.kubeconfig, NAMESPACE, 0)


def valid(condition: Condition) -> bool:
    return condition.status == "True"


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(V1, "unedited", id="a v1 store, unedited"),
        pytest.param(V2, "discovered", id="a v2 store without an address"),
        pytest.param(V2, "by-service", id="a v2 store with the address of the Service"),
        pytest.param(V2, "by-address", id="a v2 store with the address of the process"),
        pytest.param(PROVIDERS, "direct", id="a Provider without an address"),
        pytest.param(PROVIDERS, "direct-by-address", id="a Provider with the address of the process"),
    ],
)
async def test_a_store_becomes_ready_in_every_form(bench: Bench, resource: Resource, name: str) -> None:
    store = await bench.ready(resource, name, valid)

    assert store["status"]["capabilities"] == "ReadWrite"


async def test_a_manifest_that_changes_on_disk_is_applied(bench: Bench, folder: Path) -> None:
    spec = {"provider": {"fake": {"data": DATA, "validationResult": 2}}}
    (folder / "40-late.yaml").write_text(yaml.safe_dump(manifest(V1, "late", spec)))
    await bench.ready(V1, "late", lambda condition: condition.status == "False")

    spec["provider"]["fake"]["validationResult"] = 0
    (folder / "40-late.yaml").write_text(yaml.safe_dump(manifest(V1, "late", spec)))

    await bench.ready(V1, "late", valid)


async def test_a_file_that_is_not_a_manifest_is_reported_and_the_others_are_applied(
    bench: Bench, folder: Path, up: UpProcess
) -> None:
    broken = folder / "50-broken.yaml"
    broken.write_text("{ this is: [no yaml")

    up.wait_for(lambda: "50-broken.yaml" in up.output, "nothing is said about the broken file")

    broken.unlink()
    (folder / "60-after.yaml").write_text(yaml.safe_dump(manifest(V1, "after", {"provider": {"fake": {"data": DATA}}})))
    await bench.ready(V1, "after", valid)


async def test_a_provider_that_is_killed_comes_back_and_stores_are_ready_again(bench: Bench, up: UpProcess) -> None:
    await bench.ready(V2, "discovered", valid)
    killed = up.component("eso_cli.serving fake")

    os.kill(killed, signal.SIGKILL)

    up.wait_for(lambda: '"component": "provider-fake", "level": "warning"' in up.output, "its end is not told")
    up.wait_for(lambda: up.provider_ready("fake")["pid"] != killed, "it does not come back")
    assert up.component("eso_cli.serving fake") != killed
    await bench.ready(V2, "discovered", valid)
    await bench.ready(V1, "unedited", valid)


async def test_an_operator_that_is_killed_comes_back_and_works(bench: Bench, up: UpProcess, folder: Path) -> None:
    killed = up.component("-m eso_operator")

    os.kill(killed, signal.SIGKILL)

    spec = {"provider": {"fake": {"data": DATA}}}
    (folder / "70-later.yaml").write_text(yaml.safe_dump(manifest(V1, "later", spec)))
    await bench.ready(V1, "later", valid, within=60)


def test_stopping_it_leaves_no_process_and_no_ready_file_and_it_starts_again_on_other_ports(tmp_path: Path) -> None:
    with up_running(tmp_path, "--provider", "fake") as first:
        before = first.members()

        code = first.stop()

        after = first.members()
    lasting = [line for line in before.values() if "certificates.workerprocess" not in line]
    assert len(lasting) == 4, lasting  # API server, operator, dashboard, provider
    assert code == 0
    assert after == {}
    assert not first.ready_file.exists()

    with up_running(tmp_path, "--provider", "fake") as again:
        assert again.ready_file.exists()


def test_an_unknown_provider_is_refused_at_once(eso: Eso, tmp_path: Path) -> None:
    refused = eso("up", "--data-dir", str(tmp_path / "data"), "--provider", "nonsense")

    assert refused.returncode == 1
    assert '"nonsense"' in refused.stderr
    assert "fake" in refused.stderr
    assert "Traceback" not in refused.stderr
