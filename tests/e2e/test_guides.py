"""The manifests of the guides are applied, and have the described effects."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GENERATOR_STATE
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.generator import CLUSTER_GENERATOR_V2, GENERATOR
from eso_sdk.installed import load
from eso_testkit.cli.upprocess import ESO, up_running
from eso_wire.values import KindRole
from kubebase.meta import JsonObject, Resource
from kubebase.testing.servers import free_ports
from kuberun.testing.builders import NAMESPACES, SECRETS

pytestmark = pytest.mark.slow

SECONDS = 200.0
GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
GENERATORS = (GUIDES / "generators.md").read_text(encoding="utf-8")
CONFIGURATIONS = Resource("provider.generator.external-secrets.io", "v2alpha1", "passwords", "Password")
SWITCHING = (GUIDES / "coming-from-go-eso.md").read_text(encoding="utf-8")
EXTERNAL_SECRETS, PUSH_SECRETS = EXTERNAL_SECRET.resource(), PUSH_SECRET.resource()


def manifests(guide: str) -> list[JsonObject]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


BACKEND = {
    "apiVersion": SECRET_STORE.resource().api_version,
    "kind": "SecretStore",
    "metadata": {"name": "backend", "namespace": "team-a"},
    "spec": {"provider": {"fake": {"data": []}}},
}


@pytest.fixture
async def guided(site: Any) -> Any:
    """Everything the guide on generators shows, applied in its namespaces."""
    for name in ("team-a", "team-b"):
        if await site.find(NAMESPACES, name) is None:
            await site.namespace(name)
    await site.apply(BACKEND, *manifests(GENERATORS))
    return site


async def test_every_sample_of_the_guide_on_generators_becomes_ready(guided: Any) -> None:
    """R18, R19, R21, R24: v1alpha1 and v2, for a namespace and for all."""
    for key in (("database-password", "team-a"), ("deploy-key", "team-a"), ("pin", "team-a"), ("pin", "team-b")):
        await guided.ready(EXTERNAL_SECRETS, *key)
    await guided.ready(GENERATOR.resource(), "pin", "team-a")
    await guided.ready(CLUSTER_GENERATOR_V2.resource(), "pin")
    await guided.ready(PUSH_SECRETS, "service-id", "team-a")

    def is_url(text: Any) -> bool:
        return list(text) == ["url"] and text["url"].startswith("postgres://app:")

    await guided.secret("database", "team-a", is_url)
    await guided.secret("deploy-key", "team-a", lambda text: set(text) == {"privateKey", "publicKey"})
    for team in ("team-a", "team-b"):
        await guided.secret("pin", team, lambda text: re.fullmatch("[0-9]{8}", text.get("password", "")))
    answer = await guided.api.get(GENERATOR_STATE.resource().path("team-a"))
    assert answer.body["items"] == []


async def test_a_value_made_once_survives_edits_of_the_objects_and_not_the_loss_of_the_secret(guided: Any) -> None:
    """R22, R23."""
    first = await guided.secret("pin", "team-a", lambda text: text)
    note = {"metadata": {"annotations": {"note": "edited"}}, "spec": {"target": {"deletionPolicy": "Retain"}}}
    await guided.patch(EXTERNAL_SECRETS, "pin", note, "team-a")
    await guided.patch(EXTERNAL_SECRETS, "pin", {"spec": {"refreshInterval": "0s"}}, "team-a")
    await guided.patch(CONFIGURATIONS, "pin", {"spec": {"noUpper": True}}, "team-a")
    await guided.apply(probe("pin-probe", "pin"))
    await guided.ready(EXTERNAL_SECRETS, "pin-probe", "team-a")
    still = await guided.secret("pin", "team-a", lambda text: text)

    by_hand = base64.b64encode(b"by hand").decode()
    await guided.patch(SECRETS, "pin", {"data": {"password": by_hand}}, "team-a")
    edited = await guided.secret("pin", "team-a", lambda text: text["password"] != "by hand")
    await guided.delete(SECRETS, "pin", "team-a")
    again = await guided.secret("pin", "team-a", lambda text: text)

    assert still["text"] == first["text"]
    assert len({first["text"]["password"], edited["text"]["password"], again["text"]["password"]}) == 3


def probe(name: str, generator: str) -> JsonObject:
    """Return another ExternalSecret of the generator: once it is ready, earlier changes were handled."""
    ref = {"apiVersion": GENERATOR.resource().api_version, "kind": "Generator", "name": generator}
    return {
        "apiVersion": EXTERNAL_SECRETS.api_version,
        "kind": "ExternalSecret",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"refreshInterval": "0", "dataFrom": [{"sourceRef": {"generatorRef": ref}}]},
    }


async def test_a_cluster_generator_serves_only_the_namespaces_it_names(guided: Any) -> None:
    ref = {"apiVersion": CLUSTER_GENERATOR_V2.resource().api_version, "kind": "ClusterGenerator", "name": "pin"}
    outsider = probe("pin-outsider", "pin")
    outsider["spec"]["dataFrom"][0]["sourceRef"]["generatorRef"] = ref
    await guided.apply(outsider)

    async def is_refused() -> bool:
        found = await guided.find(EXTERNAL_SECRETS, "pin-outsider", "team-a")
        return any("NamespaceDenied" in one["message"] for one in found.get("status", {}).get("conditions", []))

    await guided.until(is_refused, "a namespace that is not named may use it")


def test_the_guide_on_generators_lists_what_the_providers_serve() -> None:
    infos = [info for name in ("generators", "webhook", "aws") for info in load(name).kind_infos]
    served = {info.kind.kind for info in infos if info.role is KindRole.GENERATOR}

    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", GENERATORS, re.MULTILINE)) == served


OLD_OBJECTS = """
apiVersion: external-secrets.io/v1beta1
kind: SecretStore
metadata: {name: backend, namespace: default}
spec:
  provider:
    fake:
      data: [{key: db/password, value: an-example}]
---
apiVersion: external-secrets.io/v1beta1
kind: ExternalSecret
metadata: {name: database, namespace: default}
spec:
  refreshInterval: 1h
  secretStoreRef: {name: backend}
  data:
    - secretKey: password
      remoteRef: {key: db/password}
"""


def commands(step: str) -> str:
    """Return the commands of a section of the guide on switching."""
    section = SWITCHING.partition(f"\n## {step}")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE))


def test_the_commands_of_the_guide_on_switching_take_a_cluster_over(tmp_path: Path) -> None:
    """R30, R35: as they stand, but for the ports. The embedded API server has no webhooks for step 2 to delete."""
    (tmp_path / "old.yaml").write_text(OLD_OBJECTS)
    wait = "kubectl wait --for=condition=Ready --timeout=120s externalsecret/database --namespace=default"
    story = [commands("1."), commands("3."), "kubectl create -f old.yaml", commands("4."), commands("5."), wait]
    script = "set -e\n" + "\n".join([*story, commands("6."), commands("Go back"), "wait"])
    script = script.replace(":9443", f":{free_ports(1)[0]}")
    script = script.replace("eso operator ", "eso operator --metrics-addr=0 --live-addr=127.0.0.1:0 ")

    with up_running(tmp_path / "up", "--no-operator") as cluster:
        code, output = typed(script, tmp_path, KUBECONFIG=str(cluster.kubeconfig))

    assert code == 0, output[-3000:]
    assert "✓ ready: 0 blockers, 0 warnings" in output
    assert "fake" in output.split()
    shown = r"externalsecret\S*/database +SecretStore +backend +1h +SecretSynced +True"
    assert re.search(shown, output), output


def test_the_commands_of_the_guide_on_providers_try_a_new_one(tmp_path: Path) -> None:
    """As they stand, but for the port, a pause until it is served, and `pip install`, whose effect is put in place."""
    guide = (GUIDES / "write-a-provider.md").read_text(encoding="utf-8")
    (fixture,) = (each for each in manifests(guide) if "kinds" in each)
    (tmp_path / "fixture.yaml").write_text(yaml.safe_dump(fixture))
    made, _ = typed("eso provider new weather", tmp_path)
    install(tmp_path / "eso-provider-weather", tmp_path / "site")
    port = free_ports(1)[0]
    pause = f"until (: > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.1; done"
    script = re.findall(r"^```sh\n(eso provider serve .*?)^```", guide, re.DOTALL | re.MULTILINE)[0]
    script = script.replace("9000", str(port)).replace("&\n", f"&\n{pause}\n")

    code, output = typed(script, tmp_path, PYTHONPATH=str(tmp_path / "site"))

    assert (made, code) == (0, 0), output[-3000:]
    assert " passed, 0 failed" in output


def install(distribution: Path, site: Path) -> None:
    """Create the files that an installer would leave: the package and its entry points."""
    project = tomllib.loads((distribution / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    shutil.copytree(distribution / "src", site)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_the_commands_of_the_tutorial_lead_from_nothing_to_a_rotating_secret(tmp_path: Path) -> None:
    """As they stand, but for the port and the first step, whose effect is this workspace."""
    tutorial = (GUIDES.parent / "tutorial.md").read_text(encoding="utf-8")
    installing, *steps = re.findall(r"^```sh\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE)
    script = "set -e\n" + "\n".join(steps).replace("127.0.0.1:8200", f"127.0.0.1:{free_ports(1)[0]}")

    code, output = typed(script, tmp_path)

    assert "make setup" in installing
    assert code == 0, output[-3000:]
    assert "\npostgres://app:first-password@db.internal/shop\n" in output
    assert "\npostgres://app:second-password@db.internal/shop" in output
    _, rotated, shown = output.partition("\nrotated\n")
    assert rotated, output[-3000:]
    assert "✗" not in shown
    assert re.search(r"✓ Secret rotating", shown), shown


def test_the_commands_of_the_page_on_uninstalling_keep_the_secrets(tmp_path: Path) -> None:
    page = (GUIDES.parent / "howto" / "uninstall.md").read_text(encoding="utf-8")
    _, keep, remove, definitions = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "old.yaml").write_text(OLD_OBJECTS)
    (tmp_path / "deploy").symlink_to(GUIDES.parents[1] / "deploy")
    wait = "kubectl wait --for=condition=Ready --timeout=120s externalsecret/database --namespace=default"
    look = "kubectl get secrets --namespace=default -o name\nkubectl get secretstores,externalsecrets -A -o name"
    left = "kubectl get crds -o name\nkubectl get secrets --namespace=default -o name"
    story = ["kubectl create -f old.yaml", wait, keep, remove, "echo removed", look, definitions, "echo left", left]

    with up_running(tmp_path / "up") as cluster:
        code, output = typed("\n".join(["set -e", *story]), tmp_path, KUBECONFIG=str(cluster.kubeconfig))

    assert code == 0, output
    assert output.partition("removed\n")[2].split()[0] == "secret/database"
    assert "externalsecret.external-secrets.io/" not in output.partition("removed\n")[2]
    assert output.partition("left\n")[2].split() == ["secret/database"]


def test_the_template_on_the_front_page_renders(tmp_path: Path) -> None:
    front = (GUIDES.parents[1] / "README.md").read_text(encoding="utf-8")
    script = re.findall(r"^```sh\n(echo .*?eso render .*?)^```", front, re.DOTALL | re.MULTILINE)[0]
    script = script.replace(".venv/bin/", "").replace("-f examples", f"-f {GUIDES.parents[1]}/examples")

    code, output = typed(script, tmp_path)

    assert code == 0, output
    assert "DATABASE_URL: postgresql://app:example@db:5432/shop" in output


def test_the_guide_on_templates_renders_and_its_mistakes_are_found(tmp_path: Path) -> None:
    guide = (GUIDES / "check-templates.md").read_text(encoding="utf-8")
    (sample,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (script,) = re.findall(r"^```sh\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "app.yaml").write_text(sample)

    code, output = typed(script, tmp_path)
    (tmp_path / "app.yaml").write_text(sample.replace(".password |", ".pasword |"))
    failed, complaint = typed(script, tmp_path)

    assert code == 0, output
    assert re.findall("<masked, .* bytes>", output) == re.findall("<masked, .* bytes>", guide)
    assert "only-an-example" not in output
    assert (failed, complaint.partition(": ")[0]) == (1, "app.yaml:7")


def typed(script: str, folder: Path, **environment: str) -> tuple[int, str]:
    """Return the exit code and the output. Background processes of the script are stopped."""
    path = f"{ESO.parent}{os.pathsep}{os.environ['PATH']}"
    log = folder / "typed.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/bash", "-c", script],
            cwd=folder,
            env={**os.environ, "PATH": path, "HOME": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = process.wait(timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return code, log.read_text(errors="replace")
