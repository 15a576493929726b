"""`eso up --shared-providers`: one process runs all providers, and the crashes of one leave the others alone."""

from __future__ import annotations

import json
import os
import signal
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.operator.operators import Bench
from eso_tools.objects import SECRETS
from kubebase.meta import Condition
from kubebase.testing.waiting import eventually
from kuberun.testing.builders import document
from kuberun.testing.kubectl import Kubectl
from kuberun.testing.rawapi import raw_api

NAMESPACE = "app"
MOODY_GROUP = "provider.secretstore.external-secrets.io/v2alpha1"
STORES, V2, EXTERNAL_SECRETS = SECRET_STORE.resource(), SECRET_STORE_V2.resource(), EXTERNAL_SECRET.resource()
PROGRAM = '''
"""A provider that crashes at every read while a file exists."""
import sys
from pathlib import Path
from eso_sdk import Fragment, Provider, Store, store_kind

class MoodyConfig(Fragment, frozen=True, kw_only=True):
    """Where the mood is written."""
    folder: str
    """Path of a folder."""

@store_kind(kind="Moody", plural="moodies")
class Moody(Store[MoodyConfig]):
    """Values that are their keys."""
    async def get(self, ref):
        if (Path(self.config.folder) / "crash").exists():
            sys.exit("crashed")
        return b"value of " + ref.key.encode()

PROVIDER = Provider(name="moody", version="1", kinds=(Moody,))
KINDS = PROVIDER.kinds_for_crds
'''


@pytest.fixture(scope="module")
def moods(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("moods")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, moods: Path) -> Iterator[UpProcess]:
    """Run it with a store of each of two providers, and an ExternalSecret of each store."""
    site = tmp_path_factory.mktemp("site")
    (site / "moodyprovider.py").write_text(PROGRAM)
    info = site / "moody-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[eso.kinds]\nmoody = moodyprovider:KINDS\n[eso.providers]\nmoody = moodyprovider:PROVIDER\n"
    )
    flags = ("--shared-providers", "--", "--store-requeue-interval=1s")
    with up_running(tmp_path_factory.mktemp("up"), *flags, environment={"PYTHONPATH": str(site)}) as running:
        kubectl = Kubectl(running, running.folder)
        kubectl("create", "namespace", NAMESPACE)
        for obj in objects(moods):
            kubectl("apply", "-f", "-", stdin=json.dumps(obj))
        yield running


@pytest.fixture
async def bench(up: UpProcess) -> AsyncIterator[Bench]:
    async with raw_api(up.url, up.token, str(up.ca_file)) as api:
        yield Bench(api, up.kubeconfig, NAMESPACE, 0)


def valid(condition: Condition) -> bool:
    return condition.status == "True"


def invalid(condition: Condition) -> bool:
    return condition.status == "False"


def fake(value: str) -> dict[str, Any]:
    return {"provider": {"fake": {"data": [{"key": "a", "value": value}]}}}


def wanting(**store: str) -> dict[str, Any]:
    data = [{"secretKey": "a", "remoteRef": {"key": "a"}}]
    return {"refreshInterval": "1s", "secretStoreRef": {"kind": "SecretStore", **store}, "data": data}


def objects(moods: Path) -> Iterator[dict[str, Any]]:
    inline = {"kind": "Moody", "apiVersion": MOODY_GROUP, "spec": {"folder": str(moods)}}
    yield document(STORES, "calm", NAMESPACE, spec=fake("first"))
    yield document(V2, "moody", NAMESPACE, spec={"providerConfig": {"inline": inline}})
    yield document(EXTERNAL_SECRETS, "calm", NAMESPACE, spec=wanting(name="calm"))
    yield document(EXTERNAL_SECRETS, "moody", NAMESPACE, spec=wanting(name="moody", apiVersion=V2.api_version))


async def both_synced(bench: Bench) -> None:
    for name in ("calm", "moody"):
        await bench.ready(EXTERNAL_SECRETS, name, valid)


async def value_of(bench: Bench, name: str) -> bytes:
    found = await bench.find(SECRETS, name)
    return b64decode(found["data"]["a"]) if found is not None and "a" in found.get("data", {}) else b""


def shared_process(up: UpProcess) -> int:
    return up.component("eso_sdk.sharedmain")


def returned(up: UpProcess, name: str, killed: int) -> bool:
    return bool(up.provider_ready(name)["pid"] != killed)


def imported(up: UpProcess, name: str) -> bool:
    """Return whether the provider's process has written its ready file."""
    return (up.data / "providers" / name / "ready.json").exists()


async def test_two_providers_in_one_process_sync_a_store_each(bench: Bench, up: UpProcess) -> None:
    await both_synced(bench)

    assert await value_of(bench, "calm")
    assert await value_of(bench, "moody") == b"value of a"
    assert up.provider_ready("fake")["pid"] == up.provider_ready("moody")["pid"] == shared_process(up)
    assert not imported(up, "webhook")
    assert not [line for line in up.members().values() if "eso_cli.serving" in line]
    up.wait_for(
        lambda: {"fake", "moody"} <= set(json.loads(up.ready_file.read_text())["providers"]), "they are not named"
    )


async def test_the_crashes_of_one_provider_leave_the_other_alone(bench: Bench, up: UpProcess, moods: Path) -> None:
    await both_synced(bench)
    process = shared_process(up)
    (moods / "crash").touch()

    await bench.ready(EXTERNAL_SECRETS, "moody", invalid)
    await bench.patch(STORES, "calm", {"spec": fake("second")})

    async def changed() -> bool:
        return await value_of(bench, "calm") == b"second"

    await eventually(changed, "the other provider does not go on")
    assert shared_process(up) == process
    assert await value_of(bench, "moody") == b"value of a"
    (moods / "crash").unlink()
    await bench.ready(EXTERNAL_SECRETS, "moody", valid)
    assert shared_process(up) == process
    crashes = [json.loads(line) for line in up.output.splitlines() if "unexpected exception" in line]
    assert {(line["component"], line["provider"]) for line in crashes} == {("providers", "moody")}


async def test_a_killed_process_comes_back_with_the_providers_that_are_needed(bench: Bench, up: UpProcess) -> None:
    await both_synced(bench)
    killed = shared_process(up)

    os.kill(killed, signal.SIGKILL)

    for name in ("fake", "moody"):
        up.wait_for(partial(returned, up, name, killed), f"{name} does not come back")
    await bench.patch(STORES, "calm", {"spec": fake("third")})

    async def changed() -> bool:
        return await value_of(bench, "calm") == b"third"

    await eventually(changed, "values are not read after the restart")
    assert not imported(up, "webhook")
