"""`eso migrate` on a running product: forth and back, without a write to any Secret."""

from __future__ import annotations

import asyncio
import base64
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import typer
import yaml
from typer.testing import CliRunner

from eso_api.externalsecret import CLUSTER_EXTERNAL_SECRET, EXTERNAL_SECRET
from eso_api.kinds import AnyKind, installed_kinds
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_cli.main import migrate
from eso_cli.migrate import DONE, LEFT, MigrateOptions, run
from eso_testkit.cli.upprocess import UpProcess, up_running
from eso_testkit.tools.migrations import obj
from eso_tools.migrate import probes
from eso_tools.migrate.bridges import installed_bridges
from eso_tools.migrate.cluster import Cluster
from eso_tools.migrate.convert import LABEL, MADE_BY
from eso_tools.migrate.plan import plan_forth
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, ObjectKey, Resource, raw
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.client import Client
from kuberun.errors import NotFound
from kuberun.requests import Selection
from kuberun.testing.builders import NAMESPACES, SECRETS
from kuberun.transport import AiohttpTransport

pytestmark = pytest.mark.slow
in_loop = pytest.mark.asyncio(loop_scope="module")

V2 = SECRET_STORE_V2.resource().api_version
KINDS = {(kind.group, kind.name): kind.resource() for kind in installed_kinds()}
KINDS |= {("", "Namespace"): NAMESPACES, ("", "Secret"): SECRETS}
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
VALUE = "a-value-that-is-printed-nowhere"


def store(name: str, namespace: str = "", **extra: Any) -> JsonObject:
    data = [{"key": "db", "value": VALUE}, {"key": "login", "value": '{"user":"app","host":"db"}'}]
    kind = "SecretStore" if namespace else "ClusterSecretStore"
    return obj("external-secrets.io/v1", kind, name, namespace, spec={"provider": {"fake": {"data": data}}, **extra})


def external_secret(name: str, namespace: str, **spec: Any) -> JsonObject:
    return obj("external-secrets.io/v1", "ExternalSecret", name, namespace, spec=spec)


def entry(key: str, remote: str) -> JsonObject:
    return {"secretKey": key, "remoteRef": {"key": remote}}


class Product:
    """A running product and its API server."""

    def __init__(self, up: UpProcess, client: Client) -> None:
        self.up = up
        self.client = client

    async def migrate(self, **options: Any) -> int:
        return await run(MigrateOptions(kubeconfig=self.up.kubeconfig, **{"timeout": 30.0, **options}))

    async def apply(self, *documents: JsonObject) -> None:
        for each in documents:
            group = each["apiVersion"].rpartition("/")[0]
            await self.client.apply(raw(KINDS[group, each["kind"]]), each, field_manager="people", force=True)

    async def find(self, kind: AnyKind | Resource, name: str, namespace: str = "") -> JsonObject | None:
        resource = kind if isinstance(kind, Resource) else kind.resource()
        try:
            return await self.client.get(raw(resource), ObjectKey(namespace, name))
        except NotFound:
            return None

    async def secrets(self, namespace: str) -> dict[str, tuple[str, str]]:
        """Return uid and resourceVersion of each Secret."""
        listed = await self.client.list(raw(SECRETS), Selection(namespace))
        metas = [item["metadata"] for item in listed.items if isinstance(item, dict)]
        return {meta["name"]: (meta["uid"], meta["resourceVersion"]) for meta in metas}

    async def synced(self, kind: AnyKind, name: str, namespace: str) -> JsonObject:
        """Wait until the object, as it is now, was synced."""

        async def look() -> JsonObject | None:
            found = await self.find(kind, name, namespace) or {}
            status, generation = found.get("status") or {}, (found.get("metadata") or {}).get("generation")
            done = str(status.get("syncedResourceVersion", "")).startswith(f"{generation}-")
            return found if done and _is_ready(status) else None

        return await eventually(look, f"{name} is not synced")

    async def made(self) -> int:
        """Return how many objects of migrations exist."""
        count = 0
        for resource in KINDS.values():
            listed = await self.client.list(raw(resource), Selection(label_selector=f"{LABEL}={MADE_BY}"))
            count += len(list(listed.items))
        return count


def _is_ready(status: JsonObject) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    with up_running(tmp_path_factory.mktemp("up"), "--provider", "fake", "--provider", "generators") as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(up: UpProcess) -> AsyncIterator[Product]:
    client = Client(AiohttpTransport(config.load(up.kubeconfig)))
    yield Product(up, client)
    await client.close()


SHOP, TEAM = "shop", "team"
CENTRAL = {"kind": "ClusterSecretStore", "name": "central"}
GENERATED = {"sourceRef": {"generatorRef": {"kind": "Password", "name": "strong"}}}
FANNED_OUT = {
    "namespaceSelectors": [{"matchLabels": {"migrates": "yes"}}],
    "externalSecretSpec": {"secretStoreRef": CENTRAL, "data": [entry("password", "db")]},
}
SCENE = (
    *(obj("v1", "Namespace", name, metadata={"labels": {"migrates": "yes"}}) for name in (SHOP, TEAM)),
    store("backend", SHOP, retrySettings={"maxRetries": 2}),
    store("central", conditions=[{"namespaces": [SHOP, TEAM]}]),
    obj("generators.external-secrets.io/v1alpha1", "Password", "strong", SHOP, spec={"length": 20}),
    external_secret("db", SHOP, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
    external_secret("both", SHOP, dataFrom=[{"extract": {"key": "login"}, "sourceRef": {"storeRef": CENTRAL}}]),
    external_secret("made", SHOP, refreshPolicy="CreatedOnce", dataFrom=[GENERATED]),
    obj("external-secrets.io/v1", "ClusterExternalSecret", "everywhere", spec=FANNED_OUT),
)


@in_loop
async def test_forth_and_back_no_secret_is_written_and_no_value_is_printed(
    product: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    """R134, R148, R162, R167, R168: verified, applied, synced, and rolled back."""
    await product.apply(*SCENE)
    await product.synced(EXTERNAL_SECRET, "made", SHOP)  # it is not synced again: that would make a new value
    users = [(EXTERNAL_SECRET, name, SHOP) for name in ("db", "both", "everywhere")]
    users.append((EXTERNAL_SECRET, "everywhere", TEAM))
    for user in users:
        await product.synced(*user)
    before = {name: await product.secrets(name) for name in (SHOP, TEAM)}

    assert await product.migrate(apply=True, verify=True) == DONE
    forth = capsys.readouterr().out
    for user in users:
        await product.synced(*user)

    assert "ExternalSecret shop/db read both ways\n    password: same" in forth
    assert "ExternalSecret team/everywhere read both ways" in forth
    assert {name: await product.secrets(name) for name in (SHOP, TEAM)} == before
    child = await product.synced(EXTERNAL_SECRET, "everywhere", TEAM)
    assert child["spec"]["secretStoreRef"]["apiVersion"] == V2
    assert await product.find(SECRET_STORE, "backend", SHOP) is not None

    assert await product.migrate(apply=True) == DONE, "a second run changes nothing"
    assert "references of 0 objects" in capsys.readouterr().out

    assert await product.migrate(apply=True, rollback=True) == DONE
    back = capsys.readouterr().out
    for user in users:
        await product.synced(*user)

    assert {name: await product.secrets(name) for name in (SHOP, TEAM)} == before
    assert await product.made() == 0
    parent = await product.find(CLUSTER_EXTERNAL_SECRET, "everywhere")
    assert parent is not None
    assert parent["spec"]["externalSecretSpec"]["secretStoreRef"] == {"kind": "ClusterSecretStore", "name": "central"}
    assert VALUE not in forth + back


@in_loop
async def test_a_cluster_without_the_crds_of_a_provider_is_told_how_to_get_them(
    product: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    vaults = KINDS["provider.secretstore.external-secrets.io", "Vault"]
    name = f"{vaults.plural}.{vaults.group}"
    crd = await product.client.get(raw(CRDS), ObjectKey("", name))
    place = obj("v1", "Namespace", "no-crds")
    vault = {"server": "https://vault.example.com", "auth": {"tokenSecretRef": {"name": "t", "key": "t"}}}
    of_v1 = obj("external-secrets.io/v1", "SecretStore", "s", "no-crds", spec={"provider": {"vault": vault}})
    await product.apply(place, of_v1)
    await product.client.delete(raw(CRDS), ObjectKey("", name))
    try:
        dry = await product.migrate()
        said_dry = capsys.readouterr().err
        applied = await product.migrate(apply=True, timeout=1.0)
        said = capsys.readouterr().out
    finally:
        fresh = {**crd, "metadata": {"name": name, "labels": crd["metadata"]["labels"]}}
        await product.client.create(raw(CRDS), {key: value for key, value in fresh.items() if key != "status"})
        await product.client.delete(raw(SECRET_STORE.resource()), ObjectKey("no-crds", "s"))

    lacks = f"the cluster has no {name}: set providers.vault.enabled=true"
    assert (dry, applied) == (DONE, LEFT)
    assert lacks in said_dry
    assert f"SecretStore no-crds/s: {lacks}" in said
    assert "`eso crds --provider vault | kubectl apply -f -`" in said


GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "migrate-to-v2.md"


def test_the_commands_of_the_guide_have_the_described_effects(
    up: UpProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    (sample,) = re.findall(r"^```yaml\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^```text\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    written, forth, back = re.findall(r"^```sh\neso migrate (.*?)\n```", guide, re.DOTALL | re.MULTILINE)
    asyncio.run(apply_and_sync(up, list(yaml.safe_load_all(sample))))
    command = typer.Typer()
    command.command()(migrate)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(up.kubeconfig))

    results = [CliRunner().invoke(command, shlex.split(line)) for line in (written, forth, back)]

    assert [result.exit_code for result in results] == [DONE, DONE, DONE], [result.output for result in results]
    assert set(printed.splitlines()[:-1]) <= set(results[1].output.splitlines())
    assert (tmp_path / "migrated" / "orders" / "externalsecret.external-secrets.io-database.yaml").exists()


async def apply_and_sync(up: UpProcess, documents: list[JsonObject]) -> None:
    client = Client(AiohttpTransport(config.load(up.kubeconfig)))
    product = Product(up, client)
    await product.apply(*documents)
    await product.synced(EXTERNAL_SECRET, documents[-1]["metadata"]["name"], documents[-1]["metadata"]["namespace"])
    await client.close()


@in_loop
async def test_a_pushed_value_is_neither_deleted_nor_written_again(
    product: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    """R134, R168: with deletionPolicy Delete, in a backend where both stores lead to the same place."""
    name, there = "pushing", "pushed-to"
    kubernetes = {"remoteNamespace": there, "authRef": {"name": "login", "key": "kubeconfig"}}
    login = {"kubeconfig": base64.b64encode(product.up.kubeconfig.read_bytes()).decode()}
    match = {"secretKey": "password", "remoteRef": {"remoteKey": "copy", "property": "password"}}
    push = {
        "secretStoreRefs": [{"name": "cluster"}],
        "selector": {"secret": {"name": "source"}},
        "deletionPolicy": "Delete",
        "data": [{"match": match}],
    }
    await product.apply(
        *(obj("v1", "Namespace", each) for each in (name, there)),
        obj("v1", "Secret", "login", name, data=login),
        obj("v1", "Secret", "source", name, data={"password": base64.b64encode(VALUE.encode()).decode()}),
        obj("external-secrets.io/v1", "SecretStore", "cluster", name, spec={"provider": {"kubernetes": kubernetes}}),
        obj("external-secrets.io/v1alpha1", "PushSecret", "copy", name, spec=push),
    )
    await product.synced(PUSH_SECRET, "copy", name)
    before = await product.secrets(there)

    forth = await product.migrate(apply=True, verify=True)
    switched = await product.synced(PUSH_SECRET, "copy", name)
    said = capsys.readouterr().out
    back = await product.migrate(apply=True, rollback=True)
    returned = await product.synced(PUSH_SECRET, "copy", name)

    assert (forth, back) == (DONE, DONE), said
    assert "PushSecret pushing/copy read both ways\n    copy/password: same" in said
    assert list(switched["status"]["syncedPushSecrets"]) == ["secretstore.external-secrets.io/SecretStore/cluster"]
    assert list(returned["status"]["syncedPushSecrets"]) == ["SecretStore/cluster"]
    assert await product.secrets(there) == before


@in_loop
async def test_a_reference_whose_values_cannot_be_read_both_ways_is_not_switched(
    product: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    """R134: the others are; the probes and their Secrets are gone afterwards.

    The fake provider keeps pushed values apart for each store: the v2 store does not have them.
    """
    name = "halves"
    push = {
        "secretStoreRefs": [{"name": "backend"}],
        "selector": {"secret": {"name": "good"}},
        "deletionPolicy": "Delete",
        "data": [{"match": {"secretKey": "password", "remoteRef": {"remoteKey": "copy"}}}],
    }
    await product.apply(
        obj("v1", "Namespace", name),
        store("backend", name),
        external_secret("good", name, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
        external_secret("bad", name, secretStoreRef={"name": "backend"}, data=[entry("password", "no-such-key")]),
        obj("external-secrets.io/v1alpha1", "PushSecret", "copy", name, spec=push),
    )
    await product.synced(EXTERNAL_SECRET, "good", name)
    await product.synced(PUSH_SECRET, "copy", name)

    assert await product.migrate(apply=True, verify=True, timeout=3.0) == LEFT

    said = capsys.readouterr().out
    assert "ExternalSecret halves/bad: its references stay, because" in said
    assert "no-such-key" in said
    assert "PushSecret halves/copy: it cannot be read through the v2 reference" in said
    copied = await product.synced(PUSH_SECRET, "copy", name)
    assert list(copied["status"]["syncedPushSecrets"]) == ["SecretStore/backend"]
    bad, good = await product.find(EXTERNAL_SECRET, "bad", name), await product.synced(EXTERNAL_SECRET, "good", name)
    assert bad is not None
    assert bad["spec"]["secretStoreRef"] == {"name": "backend"}
    assert good["spec"]["secretStoreRef"]["apiVersion"] == V2
    listed = await product.client.list(raw(EXTERNAL_SECRET.resource()), Selection(name))
    assert not [item for item in listed.items if isinstance(item, dict) and probes.PROBE in item["metadata"]["name"]]
    assert set(await product.secrets(name)) == {"good"}
    assert await product.migrate(apply=True, rollback=True) == DONE


@in_loop
async def test_an_object_that_people_changed_meanwhile_is_left_to_them(product: Product) -> None:
    """A new status does not hinder the switch: the operator writes one at every refresh."""
    name = "busy"
    await product.apply(
        obj("v1", "Namespace", name),
        store("backend", name),
        external_secret("edited", name, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
        external_secret("synced", name, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
    )
    bridges = installed_bridges(pytest.fail)
    cluster = Cluster(product.client, SystemClock(), bridges.kinds, seconds=30.0)
    plan = plan_forth(await cluster.inventory(), bridges, regenerate=False)
    switches = {switch.id.name: switch for switch in plan.switches if switch.id.namespace == name}
    await product.synced(EXTERNAL_SECRET, "synced", name)
    edit = {"spec": {"refreshInterval": "2h"}}
    await product.client.merge_patch(raw(EXTERNAL_SECRET.resource()), ObjectKey(name, "edited"), edit)

    left = [await cluster.switch(switches[each]) for each in ("edited", "synced")]

    assert (
        str(left[0])
        == "ExternalSecret busy/edited: its references stay: it was changed meanwhile; run the command again"
    )
    assert left[1] is None


@in_loop
async def test_without_apply_nothing_is_written_to_the_cluster(product: Product, tmp_path: Path) -> None:
    name = "untouched"
    await product.apply(
        obj("v1", "Namespace", name),
        store("backend", name),
        external_secret("db", name, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
    )
    before = await product.synced(EXTERNAL_SECRET, "db", name)

    assert await product.migrate(output=tmp_path) == DONE

    assert await product.find(EXTERNAL_SECRET, "db", name) == before
    assert await product.made() == 0
    assert written_below(tmp_path, name) == [
        "untouched/externalsecret.external-secrets.io-db.yaml",
        "untouched/fake.provider.secretstore.external-secrets.io-backend.yaml",
        "untouched/secretstore.secretstore.external-secrets.io-backend.yaml",
    ]


def written_below(folder: Path, namespace: str) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in (folder / namespace).rglob("*.yaml"))


@in_loop
async def test_secrets_stay_when_their_provider_is_uninstalled(product: Product) -> None:
    """R166, R168: the stores report it, and nothing is deleted, in either generation."""
    name = "bereft"
    await product.apply(
        obj("v1", "Namespace", name),
        store("backend", name),
        external_secret("v1", name, secretStoreRef={"name": "backend"}, data=[entry("password", "db")]),
    )
    await product.synced(EXTERNAL_SECRET, "v1", name)
    assert await product.migrate(apply=True, keep_references=True) == DONE
    ref = {"apiVersion": V2, "kind": "SecretStore", "name": "backend"}
    await product.apply(external_secret("v2", name, secretStoreRef=ref, data=[entry("password", "db")]))
    await product.synced(EXTERNAL_SECRET, "v2", name)
    before = await product.secrets(name)
    services, provider = raw(Resource("", "v1", "services", "Service")), ObjectKey("external-secrets", "provider-fake")
    installed = await product.client.get(services, provider)

    await product.client.delete(services, provider)
    for each in ("v1", "v2"):
        patch = {"metadata": {"annotations": {"force-sync": "now"}}}
        await product.client.merge_patch(raw(EXTERNAL_SECRET.resource()), ObjectKey(name, each), patch)
    for each in ("v1", "v2"):
        await eventually(lambda each=each: _is_broken(product, each, name), f"{each} does not report it")  # type: ignore[misc]  # bound per turn

    assert await product.secrets(name) == before
    secret = await product.find(SECRETS, "v2", name)
    assert secret is not None
    assert base64.b64decode(secret["data"]["password"]).decode() == VALUE
    metadata = {name: installed["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
    await product.client.create(
        services, {**installed, "metadata": metadata, "spec": {"ports": installed["spec"]["ports"]}}
    )
    await product.synced(EXTERNAL_SECRET, "v1", name)


async def _is_broken(product: Product, name: str, namespace: str) -> bool:
    found = await product.find(EXTERNAL_SECRET, name, namespace) or {}
    return any(
        each["type"] == "Ready" and each["status"] == "False"
        for each in (found.get("status") or {}).get("conditions", [])
    )
