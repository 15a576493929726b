"""`eso preflight` against clusters: empty, as the chart in Go leaves one, and with the rights of a reader."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.kinds import KINDS, AnyKind, provider_kinds
from eso_api.pushsecret import PUSH_SECRET
from eso_api.secretstore import SECRET_STORE
from eso_cli.preflight import BLOCKED, READY, UNUSABLE, PreflightOptions, run
from eso_testkit.operator.operators import install_crds
from eso_tools.preflight.findings import Level
from eso_tools.preflight.gathering import ROLES, Gatherer
from eso_tools.preflight.helmcheck import helm_ownership
from eso_tools.preflight.snapshot import DEFINITIONS, DEPLOYMENTS, WEBHOOKS, Snapshot
from kubebase.meta import Resource
from kubebase.testing.servers import ApiServer, kubeconfig_text
from kubebase.testing.waiting import eventually
from kuberun import config
from kuberun.client import Client
from kuberun.testing.localserver import LocalServer
from kuberun.testing.rawapi import MERGE_PATCH, RawApi, raw_api
from kuberun.transport import AiohttpTransport

CANARY = "CANARY-8f3a"
HOME = "external-secrets"
HELM = {"meta.helm.sh/release-name": "eso", "meta.helm.sh/release-namespace": HOME}
ARGUMENTS = ["--concurrent=4", "--client-qps=50", "--loglevel=info", "--metrics-addr=:8080"]
GO_KINDS = [kind for kind in KINDS if kind.plural in {"externalsecrets", "secretstores", "pushsecrets", "uuids"}]
GO_KINDS = [kind for kind in GO_KINDS if kind.group in {"external-secrets.io", "generators.external-secrets.io"}]
ENTRY = {"secretKey": "a", "remoteRef": {"key": "k"}}
GADGET = Resource("generators.external-secrets.io", "v1alpha1", "gadgets", "Gadget")
GADGETS = "gadgets.generators.external-secrets.io"
"""A kind that this operator does not have."""

Json = dict[str, Any]
Printed = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Published:
    """A report: exit code, JSON and text."""

    code: int
    findings: list[Json]
    text: str

    def of(self, check: str, level: str = "") -> list[Json]:
        return [each for each in self.findings if each["check"] == check and level in {"", each["level"]}]


async def report(kubeconfig: Path) -> Published:
    page, tool = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(page):
        code = await run(PreflightOptions(kubeconfig))
    with redirect_stdout(tool):
        await run(PreflightOptions(kubeconfig, as_json=True))
    page.seek(0)
    return Published(code, json.loads(tool.getvalue())["findings"], page.read())


# --- objects as the chart in Go leaves them ---------------------------------------------------------------------------


def definition(kind: AnyKind) -> Json:
    """A definition like Go's: other versions, Helm's marks, a conversion webhook, an open schema."""
    versions = [*kind.versions, "v1alpha1"] if kind is SECRET_STORE else [*kind.versions]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = kind.crd()["spec"]["names"]
    spec: Json = {
        "group": kind.group,
        "names": names,
        "scope": "Namespaced",
        "versions": [
            {"name": name, "served": True, "storage": name == versions[-1], "schema": {"openAPIV3Schema": schema}}
            for name in versions
        ],
    }
    if kind is PUSH_SECRET:
        config = {"service": {"namespace": HOME, "name": "external-secrets-webhook", "path": "/convert"}}
        webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    metadata = {"name": kind.crd_name, "annotations": HELM, "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    return {"metadata": metadata, "spec": spec}


def deployment(namespace: str, name: str, *arguments: str) -> Json:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "eso"}
    container = {
        "name": "c",
        "image": "registry.test/external-secrets/external-secrets:v2.9.0",
        "args": list(arguments),
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    annotations = {**HELM, "meta.helm.sh/release-namespace": namespace}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


def webhook(name: str, namespace: str) -> Json:
    """A webhook that is asked for one namespace only, and ignored if it fails: other tests share the server."""
    rule = {
        "apiGroups": ["external-secrets.io"],
        "apiVersions": ["v1"],
        "operations": ["DELETE"],
        "resources": ["externalsecrets"],
    }
    hook = {
        "name": "validate.externalsecret.external-secrets.io",
        "clientConfig": {"service": {"namespace": namespace, "name": "external-secrets-webhook", "path": "/v"}},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": name}, "webhooks": [hook]}


def record(version: int, *, is_retained: bool) -> Json:
    """The Secret in which Helm keeps a revision."""
    marks = "\n  annotations: {helm.sh/resource-policy: keep}" if is_retained else ""
    manifest = "".join(
        f"---\nkind: CustomResourceDefinition\nmetadata:\n  name: {kind.crd_name}{marks}\nspec:\n  a: 1\n"
        for kind in GO_KINDS
    )
    content = {
        "chart": {"metadata": {"name": "external-secrets", "version": "2.8.0"}},
        "config": {"webhook": {"port": 10250}, "extraEnv": [{"name": "TOKEN", "value": CANARY}], "replicaCount": 2},
        "manifest": manifest,
    }
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    labels = {"owner": "helm", "name": "eso", "version": str(version), "status": "deployed"}
    metadata = {"name": f"sh.helm.release.v1.eso.v{version}", "labels": labels}
    return {"metadata": metadata, "type": "helm.sh/release.v1", "data": {"release": base64.b64encode(packed).decode()}}


def store(name: str, provider: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"provider": {provider: {}}}}


def external_secret(name: str, store_name: str, *entries: Json) -> Json:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"secretStoreRef": {"name": store_name}, "data": list(entries)}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


async def create(api: RawApi, resource: Resource, obj: Json, namespace: str = "") -> None:
    body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    home = namespace or obj["metadata"].get("namespace", "")
    answer = await api.post(resource.path(home), body)
    assert answer.status == 201, answer.body


SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CORE_SERVICES = Resource("", "v1", "services", "Service")


@asynccontextmanager
async def connected(server: ApiServer) -> AsyncIterator[RawApi]:
    async with raw_api(server.url, server.token, str(server.ca_file)) as api:
        yield api


async def served(api: RawApi, resource: Resource) -> bool:
    return (await api.get(resource.path())).status == 200


async def populate(server: ApiServer) -> None:
    """Create what the operator in Go and its users leave. The embedded server serves webhooks as a custom kind."""
    async with connected(server) as api:
        for name in (HOME, "team"):
            await create(api, NAMESPACES, {"metadata": {"name": name}})
        await create(api, DEFINITIONS, webhook_definition())
        for kind in GO_KINDS:
            await create(api, DEFINITIONS, definition(kind))
        for resource in (WEBHOOKS, *(kind.resource() for kind in GO_KINDS)):
            await eventually(lambda resource=resource: served(api, resource), f"{resource} is not served")  # type: ignore[misc]  # bound per turn
        await create(api, DEFINITIONS, gadget_definition())
        await eventually(lambda: served(api, GADGET), "the kind Gadget is not served")
        for name in ("a", "b"):
            await create(api, GADGET, {"metadata": {"name": name}}, "team")
        await create(api, DEPLOYMENTS, deployment(HOME, "external-secrets", *ARGUMENTS))
        await create(api, DEPLOYMENTS, deployment(HOME, "external-secrets-webhook", "webhook", "--port=10250"))
        await create(api, WEBHOOKS, webhook("externalsecret-validate", HOME))
        labels = {"app.kubernetes.io/name": "external-secrets", "app.kubernetes.io/managed-by": "Helm"}
        await create(api, ROLES, {"metadata": {"name": "eso-controller", "labels": labels, "annotations": HELM}})
        await create(api, SECRETS, record(9, is_retained=True), HOME)
        await create(api, SECRETS, record(10, is_retained=False), HOME)
        await create(api, SECRETS, {"metadata": {"name": "other"}, "data": {"release": "eA=="}}, "team")
        for name, provider in (("code", "chef"), ("backend", "fake"), ("prod", "vault")):
            await create(api, SECRET_STORE.resource(), store(name, provider), "team")
        await create(api, EXTERNAL_SECRET.resource(), external_secret("good", "code", ENTRY), "team")
        await create(api, EXTERNAL_SECRET.resource(), external_secret("twice", "backend", ENTRY, ENTRY), "team")


def gadget_definition() -> Json:
    names = {"plural": GADGET.plural, "kind": GADGET.kind, "singular": "gadget"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    spec = {"group": GADGET.group, "names": names, "scope": "Namespaced", "versions": [version]}
    return {"metadata": {"name": GADGETS}, "spec": spec}


def webhook_definition() -> Json:
    names = {"plural": WEBHOOKS.plural, "kind": WEBHOOKS.kind, "singular": "validatingwebhookconfiguration"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    approved = {"api-approved.kubernetes.io": "https://example.com"}
    metadata = {"name": f"{WEBHOOKS.plural}.{WEBHOOKS.group}", "annotations": approved}
    spec = {"group": WEBHOOKS.group, "names": names, "scope": "Cluster", "versions": [version]}
    return {"metadata": metadata, "spec": spec}


async def reader(server: ApiServer, folder: Path, name: str, *others: str) -> Path:
    """Return the kubeconfig of a user who may read objects of External Secrets and of some other groups."""
    groups = ["external-secrets.io", "generators.external-secrets.io", *others]
    rules = [{"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]}]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "team"}
    bindings = Resource(ROLES.group, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    async with connected(server) as api:
        await create(api, SERVICE_ACCOUNTS, {"metadata": {"name": name}}, "team")
        await create(api, ROLES, {"metadata": {"name": name}, "rules": rules})
        ref = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": name}
        await create(api, bindings, {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})
        answer = await api.post(SERVICE_ACCOUNTS.path("team", name, "token"), {"spec": {}})
    file = folder / name
    file.write_text(kubeconfig_text(server.url, server.ca_file.read_bytes(), answer.body["status"]["token"]))
    return file


@dataclass(frozen=True)
class Reports:
    """The reports of one embedded server in the order in which they were made."""

    empty: Published
    go: Published
    hidden: Published
    """For a user who may read definitions and objects of External Secrets only."""
    without_definitions: Snapshot
    truncated: list[str]
    half_removed: Snapshot
    """The CRDs were replaced and the Deployments deleted, but Helm's record is still there."""


async def gathered(kubeconfig: Path, **settings: Any) -> Snapshot:
    client = Client(AiohttpTransport(config.load(kubeconfig)))
    try:
        return await Gatherer(client, **settings).gather()
    finally:
        await client.close()


async def remove_traces(server: ApiServer) -> None:
    """Remove what `kubectl replace` of the CRDs and `kubectl delete` of the Deployments remove."""
    async with connected(server) as api:
        for kind in GO_KINDS:
            patch = {"metadata": {"annotations": dict.fromkeys(HELM)}}
            answer = await api.patch(DEFINITIONS.path("", kind.crd_name), patch, MERGE_PATCH)
            assert answer.status == 200, answer.body
        for name in ("external-secrets", "external-secrets-webhook"):
            await api.delete(DEPLOYMENTS.path(HOME, name))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reports]:
    folder = tmp_path_factory.mktemp("preflight")
    server = LocalServer(folder)

    async def made() -> Reports:
        empty = await report(server.kubeconfig)
        await populate(server)
        truncated = [gap.what for gap in (await gathered(server.kubeconfig, max_objects=1)).gaps]
        go = await report(server.kubeconfig)
        hidden = await report(await reader(server, folder, "reader", DEFINITIONS.group))
        without_definitions = await gathered(await reader(server, folder, "blind"))
        await remove_traces(server)
        return Reports(empty, go, hidden, without_definitions, truncated, await gathered(server.kubeconfig))

    try:
        yield asyncio.run(made())
    finally:
        server.stop()


def test_an_empty_cluster_is_ready(reports: Reports) -> None:
    assert reports.empty.code == READY
    assert "✗" not in reports.empty.text
    assert reports.empty.text.splitlines()[-1] == "✓ ready: 0 blockers, 0 warnings"


def test_a_cluster_of_the_operator_in_go_is_not_ready_and_says_why(reports: Reports) -> None:
    go = reports.go
    blocked = [each["check"] for each in go.findings if each["level"] == "blocker"]

    assert go.code == BLOCKED
    assert blocked == ["helm_ownership", "stored_versions", "providers", "refused_objects"]
    assert go.text.startswith("✗ Helm release external-secrets/eso (external-secrets-2.8.0) would delete 4 CRDs")
    assert go.text.splitlines()[-1].startswith("✗ not ready: 4 blockers, ")
    assert CANARY not in go.text + json.dumps(go.findings)


def test_the_newest_record_of_helm_decides(reports: Reports) -> None:
    """Revision 9 keeps the CRDs, revision 10 does not, and 10 comes after 9."""
    (finding,) = reports.go.of("helm_ownership")

    assert finding["detailsCount"] == len(GO_KINDS)
    assert "helm upgrade eso GO-CHART" in finding["next"]


def test_providers_are_told_apart_by_what_exists(reports: Reports) -> None:
    (missing,), there = reports.go.of("providers", "blocker"), reports.go.of("providers", "fact")

    assert missing["says"].startswith("spec.provider.chef: this project has no provider for it yet (1 store, 1 Ext")
    assert [each["says"] for each in there] == ["2 providers needed, which this project has"]
    assert there[0]["details"] == [
        {"subject": "provider fake", "field": "", "says": "spec.provider.fake (1 store, 1 ExternalSecret)"},
        {"subject": "provider vault", "field": "", "says": "spec.provider.vault (1 store)"},
    ]
    assert "--set providers.fake.enabled=true,providers.vault.enabled=true;" in there[0]["next"]


def test_a_refused_object_is_listed_with_field_and_sentence(reports: Reports) -> None:
    refused = {
        (each["subject"], each["field"]): each["says"] for each in reports.go.of("refused_objects")[0]["details"]
    }

    assert "is given twice" in refused["ExternalSecret team/twice", "spec.data[1].secretKey"]
    assert not any(subject.endswith("/good") for subject, _ in refused)


def test_flags_values_and_webhooks_are_warned_of(reports: Reports) -> None:
    go = reports.go
    checks = ("flags", "chart_values", "webhooks", "conversions")
    told = {check: [each["says"] for each in go.of(check, "warning")] for check in checks}

    assert [text.partition(": ")[2] for text in told["flags"]] == [
        "1 flag with another meaning here",
        "1 flag accepted without a function",
    ]
    assert len(told["chart_values"]) == 2
    assert len(told["webhooks"]) == 1
    assert len(told["conversions"]) == 1
    assert [each["level"] for each in go.of("operators")] == ["warning"]


def test_crds_are_counted_against_the_chart_that_would_be_installed(reports: Reports) -> None:
    """It brings the CRDs of the core and of the providers that the stores of the cluster need: fake and vault."""
    of_providers = provider_kinds()
    total = len(KINDS) + len(of_providers["fake"]) + len(of_providers["vault"])

    (empty,), (go,) = reports.empty.of("chart_crds"), reports.go.of("chart_crds")

    assert empty["says"] == (
        f"our chart has {len(KINDS)} CRDs of the core and 0 of no provider: it replaces 0 and creates {len(KINDS)}"
    )
    assert go["says"] == (
        f"our chart has {len(KINDS)} CRDs of the core and {total - len(KINDS)} of providers fake, vault:"
        f" it replaces {len(GO_KINDS)} and creates {total - len(GO_KINDS)}"
    )
    assert (empty["level"], go["level"], empty["next"], go["next"]) == ("fact", "fact", "", "")


def test_objects_of_a_kind_that_nothing_serves_are_counted(reports: Reports) -> None:
    (finding,) = reports.go.of("unknown_kinds")

    assert (finding["level"], finding["says"]) == ("warning", "2 objects of 1 kind that this operator does not handle")
    assert finding["details"][0]["subject"] == f"CRD {GADGETS}"


def test_a_reader_gets_the_report_and_the_names_of_missing_rights(reports: Reports) -> None:
    """Without Helm's record it is unknown whether the CRDs are safe, so the cluster is not ready."""
    needed, useful = reports.hidden.of("permissions")
    (helm,) = reports.hidden.of("helm_ownership")

    assert reports.hidden.code == BLOCKED
    assert (needed["level"], [each["subject"] for each in needed["details"]]) == ("blocker", ["deployments.apps"])
    assert useful["level"] == "warning"
    assert {each["subject"] for each in useful["details"]} == {str(ROLES), str(WEBHOOKS), "services"}
    assert reports.hidden.of("operators") == []
    assert (helm["level"], "you may not read Secrets" in helm["says"]) == ("blocker", True)
    assert reports.hidden.of("refused_objects") == reports.go.of("refused_objects")


def test_objects_are_found_without_the_right_to_list_definitions(reports: Reports) -> None:
    found = reports.without_definitions

    assert str(DEFINITIONS) in {gap.what for gap in found.gaps}
    assert {str(each) for each in found.objects} >= {"SecretStore team/code", "ExternalSecret team/twice"}


def test_a_release_that_only_its_roles_still_name_is_found(reports: Reports) -> None:
    """`helm uninstall` deletes the CRDs of its stored manifest, also after they were replaced."""
    left = reports.half_removed

    assert {each.owner for each in left.definitions} == {None}
    assert left.workloads == ()
    assert [finding.level for finding in helm_ownership(left)] == [Level.BLOCKER]


def test_lists_are_bounded(reports: Reports) -> None:
    assert "externalsecrets.external-secrets.io" in reports.truncated
    assert "deployments.apps" in reports.truncated


# --- on any server ----------------------------------------------------------------------------------------------------


@pytest.mark.live
async def test_objects_of_a_shared_cluster_are_found(api_server: ApiServer, api: RawApi, namespace: str) -> None:
    await install_crds(api_server.kubeconfig)
    name = f"{namespace}-validate"
    has_webhooks = await served(api, WEBHOOKS)
    await create(api, DEPLOYMENTS, deployment(namespace, "external-secrets", *ARGUMENTS))
    await create(api, SECRETS, record(3, is_retained=False), namespace)
    await create(api, SECRET_STORE.resource(), store("code", "chef"), namespace)
    await create(api, EXTERNAL_SECRET.resource(), external_secret("good", "code", ENTRY), namespace)
    await create(api, EXTERNAL_SECRET.resource(), {"metadata": {"name": "empty"}, "spec": {}}, namespace)
    service = {"metadata": {"name": "provider-ibm", "labels": {"external-secrets.io/provider": "true"}}}
    await create(api, CORE_SERVICES, {**service, "spec": {"ports": [{"port": 80}]}}, namespace)
    if has_webhooks:
        await create(api, WEBHOOKS, webhook(name, namespace))

    try:
        told = await report(api_server.kubeconfig)
    finally:
        if has_webhooks:
            await api.delete(WEBHOOKS.path("", name))

    subjects = {each["subject"]: check["level"] for check in told.findings for each in check["details"]}
    assert told.code == BLOCKED
    assert subjects[f"SecretStore {namespace}/code"] == "blocker"
    assert subjects[f"ExternalSecret {namespace}/empty"] == "blocker"
    assert (name in subjects) is has_webhooks
    assert f"Deployment {namespace}/external-secrets: 1 flag accepted without a function" in told.text
    assert any(each["says"].startswith(f"Helm release {namespace}/eso") for each in told.of("helm_ownership"))
    assert any(each["says"].startswith("the API server is v") for each in told.of("api_server"))
    assert CANARY not in told.text


# --- options and files ------------------------------------------------------------------------------------------------


async def test_manifests_are_judged_without_a_cluster(tmp_path: Path, capsys: Printed) -> None:
    folder = tmp_path / "apps" / "team"
    folder.mkdir(parents=True)
    good = {"apiVersion": "external-secrets.io/v1beta1", "kind": "ExternalSecret", **external_secret("a", "s", ENTRY)}
    (folder / "app.yaml").write_text(json.dumps(good))
    (folder / "other.yaml").write_text("kind: ConfigMap\n")
    (folder / "chart.yaml").write_text("{{ if .Values.a }}\n")

    code = await run(PreflightOptions(files=(tmp_path / "apps",)))
    fine = capsys.readouterr().out
    (folder / "app.yaml").write_text(json.dumps({**good, "spec": {"data": [ENTRY, ENTRY]}}))
    refused = await run(PreflightOptions(files=(tmp_path / "apps",)))

    assert (code, refused) == (READY, BLOCKED)
    assert "1 object valid by" in fine
    assert f"! 1 file that could not be read as YAML\n    {folder / 'chart.yaml'}:1: " in fine
    assert "operator runs" not in fine
    assert f"ExternalSecret a ({folder / 'app.yaml'}:1): spec.data[1].secretKey: " in capsys.readouterr().out


async def test_values_of_a_file_are_judged(tmp_path: Path, capsys: Printed) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(f"webhook: {{port: 1}}\nextraEnv: [{{name: a, value: {CANARY}}}]\n")
    manifests = tmp_path / "app.yaml"
    manifests.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")

    code = await run(PreflightOptions(files=(manifests,), values=values))

    told = capsys.readouterr().out
    assert code == READY
    assert "! --values: 1 chart value accepted without a function" in told
    assert CANARY not in told


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        pytest.param("", {"kubeconfig": "absent"}, id="no such kubeconfig"),
        pytest.param("", {"files": "absent"}, id="no such manifest"),
        pytest.param("a: [", {"values": "given"}, id="values that are not YAML"),
        pytest.param("- a", {"values": "given"}, id="values that are not a map"),
        pytest.param("a: [", {"files": "given"}, id="a manifest that is not YAML"),
        pytest.param("", {"files": "given"}, id="a file without manifests"),
        pytest.param("", {"files": "empty"}, id="a folder without manifests"),
    ],
)
async def test_input_that_cannot_be_used_exits_with_2(
    content: str, fields: dict[str, str], tmp_path: Path, capsys: Printed
) -> None:
    (tmp_path / "given").write_text(content)
    (tmp_path / "empty").mkdir()
    (name, file), *_ = fields.items()
    given: Any = (tmp_path / file,) if name == "files" else tmp_path / file

    assert await run(PreflightOptions(**{name: given})) == UNUSABLE
    assert capsys.readouterr().err.startswith("eso preflight: ")


async def test_a_server_that_does_not_answer_exits_with_2(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig_text("https://127.0.0.1:1", b"", "token"))

    assert await run(PreflightOptions(file)) == UNUSABLE
    assert capsys.readouterr().err.startswith("eso preflight: ")
