"""Each check of `eso preflight` over a snapshot."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eso_api.kinds import KINDS
from eso_api.references import GENERATORS_GROUP
from eso_api.stores.projectproviders import GENERATORS, STORES
from eso_api.v2.providerclass import ProviderClass
from eso_cli.preflight import MAX_DETAILS, as_json, lines
from eso_sdk.installed import installed
from eso_tools.preflight.chartvalues import flags
from eso_tools.preflight.checks import CHECKS, api_server, judge, permissions
from eso_tools.preflight.findings import CheckResult, Detail, Level, Report
from eso_tools.preflight.gathering import provider_of_class, provider_of_service, webhook_of, workload_of
from eso_tools.preflight.helmcheck import helm_ownership, operators, selectors, webhooks
from eso_tools.preflight.providercheck import providers
from eso_tools.preflight.snapshot import (
    DEFINITIONS,
    WEBHOOKS,
    Definition,
    Owner,
    Release,
    Running,
    Snapshot,
    SnapshotGap,
    Stored,
    UnreadObject,
    Webhook,
    Workload,
    WorkloadRole,
)
from eso_tools.providers import Want, offers
from kubebase.meta import Object, ObjectKey, ObjectMeta

OWNER = Owner("external-secrets", "eso")
CRD = "externalsecrets.external-secrets.io"
GO = Workload(ObjectKey("external-secrets", "external-secrets"), WorkloadRole.GO_OPERATOR, owner=OWNER)
GO_WEBHOOK = Workload(ObjectKey("external-secrets", "webhook"), WorkloadRole.GO_WEBHOOK)
OURS = Workload(ObjectKey("external-secrets", "eso-operator"), WorkloadRole.OURS)
STOPPED = Workload(GO.key, WorkloadRole.GO_OPERATOR, replicas=0)
B, W, F = Level.BLOCKER, Level.WARNING, Level.FACT


def stored(kind: str, name: str, spec: Any, namespace: str = "team", **metadata: Any) -> Stored:
    custom = next(each for each in KINDS if each.name == kind)
    home = {"namespace": namespace} if custom.namespaced else {}
    obj = {"apiVersion": custom.resource().api_version, "kind": kind, "metadata": {"name": name, **home, **metadata}}
    return Stored(custom, {**obj, "spec": spec})


def reading(name: str, *refs: Any) -> Stored:
    return stored("ExternalSecret", name, {"dataFrom": [{"extract": {"key": "k"}, "sourceRef": ref} for ref in refs]})


def store_ref(name: str, kind: str = "SecretStore") -> Any:
    return {"storeRef": {"name": name, "kind": kind}}


def found(check: Any, snapshot: Snapshot) -> list[tuple[Level, str]]:
    return [(finding.level, finding.text) for finding in check(snapshot)]


CHEF = stored("SecretStore", "code", {"provider": {"chef": {}}})
VAULT = stored("ClusterSecretStore", "vault", {"provider": {"vault": {}}})
PASSWORD = stored("Password", "pw", {})
USERS = (
    CHEF,
    VAULT,
    PASSWORD,
    reading("one", store_ref("code"), store_ref("vault", "ClusterSecretStore")),
    reading("two", store_ref("code")),
    stored(
        "ExternalSecret", "made", {"dataFrom": [{"sourceRef": {"generatorRef": {"kind": "Password", "name": "pw"}}}]}
    ),
)
PACKAGES = {Want("", "vault"): "vault", Want(GENERATORS_GROUP, "Password"): "generators"}


def test_a_provider_that_does_not_exist_blocks_and_names_what_depends_on_it() -> None:
    findings = list(providers(Snapshot(objects=USERS, packages=PACKAGES)))

    (missing,) = (each for each in findings if each.level is B)
    assert missing.text.startswith("spec.provider.chef: this project has no provider for it yet")
    assert "(1 store, 2 ExternalSecrets)" in missing.text
    assert "ProviderNotInstalled" in missing.text
    assert missing.details == tuple(
        map(Detail, ("SecretStore team/code", "ExternalSecret team/one", "ExternalSecret team/two"))
    )


@pytest.mark.parametrize(
    ("fields", "level", "text"),
    [
        pytest.param({"packages": PACKAGES}, F, "1 provider needed, which this project has", id="a package beside eso"),
        pytest.param(
            {}, W, "provider vault is not installed beside eso", id="a package of this project that is missing"
        ),
        pytest.param(
            {"packages": PACKAGES, "workloads": (OURS,)},
            W,
            "1 provider needed that this cluster does not run",
            id="our operator runs alone",
        ),
        pytest.param(
            {"running": (Running("Service eso/provider-vault", frozenset(), "vault"),)},
            F,
            "Service eso/provider-vault serves it",
            id="a Service with the name of the package",
        ),
        pytest.param(
            {"running": (Running("ProviderClass a/b", frozenset({Want("", "vault")})),)},
            F,
            "ProviderClass a/b serves it",
            id="a class that serves the key",
        ),
        pytest.param(
            {"running": (Running("Service eso/vault", frozenset({Want("", "aws")}), "vault"),)},
            W,
            "not installed beside eso",
            id="a Service that announces other keys",
        ),
    ],
)
def test_where_a_provider_is(fields: Any, level: Level, text: str) -> None:
    (finding,) = providers(Snapshot(objects=(VAULT,), **fields))

    assert finding.level is level
    assert text in finding.text
    assert "1 store" in f"{finding.text} {finding.details}"


@pytest.mark.parametrize(
    ("maturity", "expected"),
    [
        pytest.param("stable", [], id="stable"),
        pytest.param("beta", [(F, "provider vault is beta: ")], id="beta"),
        pytest.param("unproven", [(W, "provider vault is unproven: ")], id="unproven"),
    ],
)
def test_a_needed_provider_that_is_not_stable_is_named_with_its_maturity(
    maturity: str, expected: list[tuple[Level, str]]
) -> None:
    snapshot = Snapshot(objects=(VAULT,), packages=PACKAGES, maturities={"vault": maturity, "generators": "unproven"})

    told = [(each.level, each.text) for each in providers(snapshot) if "needed" not in each.text]

    assert [(level, text[: len(begin)]) for (level, text), (_, begin) in zip(told, expected, strict=True)] == expected


def test_stores_that_a_push_secret_selects_by_label_count_as_used() -> None:
    labelled = stored("SecretStore", "code", {"provider": {"chef": {}}}, labels={"team": "a"})
    elsewhere = stored("SecretStore", "far", {"provider": {"ibm": {}}}, "other", labels={"team": "a"})
    refs = [{"labelSelector": {"matchLabels": {"team": "a"}}}]
    push = stored("PushSecret", "push", {"secretStoreRefs": refs, "selector": {"secret": {"name": "s"}}})

    told = [text for _, text in found(providers, Snapshot(objects=(labelled, elsewhere, push)))]

    assert "(1 store, 1 PushSecret)" in told[0]
    assert "(1 store)" in told[1]


def test_a_backend_that_upstream_removed_blocks_and_names_the_way_out() -> None:
    store = stored("SecretStore", "old", {"provider": {"device42": {}}})

    (finding,) = providers(Snapshot(objects=(store,)))

    assert finding.level is B
    assert finding.text.startswith("spec.provider.device42: upstream removed this backend")
    assert "another backend" in finding.next


def test_a_cluster_generator_needs_the_provider_of_the_kind_inside() -> None:
    inside = stored("ClusterGenerator", "pw", {"kind": "Grafana", "generator": {}})

    ((level, text),) = found(providers, Snapshot(objects=(inside,)))

    assert level is W
    assert text.startswith("generator Grafana: provider tokens is not installed beside eso (1 generator)")


def test_the_table_of_this_projects_providers_is_complete() -> None:
    """A new provider package adds its line to `projectproviders.py`."""
    served = offers(installed(), pytest.fail)

    assert {want.name: name for want, name in served.items() if not want.group} == STORES
    assert {want.name: name for want, name in served.items() if want.group == GENERATORS_GROUP} == GENERATORS


KEPT = Release(OWNER, "external-secrets-2.8.0", definitions={CRD: True})
LOOSE = Release(OWNER, "external-secrets-2.8.0", definitions={CRD: False})
OWNED = Definition(CRD, owner=OWNER)


@pytest.mark.parametrize(
    ("definition", "release", "expected", "text"),
    [
        pytest.param(OWNED, LOOSE, [B], "would delete 1 CRD", id="not kept in the stored manifest"),
        pytest.param(
            Definition(CRD, owner=OWNER, is_retained=True), LOOSE, [B], "does not help", id="kept in the live CRD only"
        ),
        pytest.param(OWNED, KEPT, [F], "keeps its 1 CRD", id="kept in the stored manifest"),
        pytest.param(OWNED, Release(OWNER), [], "", id="a release without CRDs in its manifest"),
        pytest.param(
            OWNED, UnreadObject(OWNER, "you may not"), [B], "could not be checked", id="a record that is hidden"
        ),
        pytest.param(
            Definition(CRD), UnreadObject(OWNER, "x"), [W], "may own", id="a hidden record, and no mark in the CRDs"
        ),
        pytest.param(Definition(CRD), Release(OWNER), [F], "none of which", id="CRDs that Helm does not own"),
        pytest.param(
            Definition(CRD), LOOSE, [B], "would delete", id="CRDs that were replaced, which removes Helm's marks"
        ),
    ],
)
def test_helm_would_delete_crds(
    definition: Definition, release: Release | UnreadObject, expected: list[Level], text: str
) -> None:
    findings = list(helm_ownership(Snapshot(definitions=(definition,), releases=(release,))))

    assert [each.level for each in findings] == expected
    assert all(text in each.text for each in findings)
    blocked = [each for each in findings if each.level is B]
    assert all(each.details == (Detail(CRD),) and "helm " in each.next for each in blocked)


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param((GO, OURS), [B], id="both operators run"),
        pytest.param((GO,), [W], id="the operator in Go runs"),
        pytest.param((STOPPED, OURS), [F], id="the operator in Go is scaled to 0"),
        pytest.param((), [F], id="neither runs"),
    ],
)
def test_operators_that_run(workloads: tuple[Workload, ...], expected: list[Level]) -> None:
    assert [level for level, _ in found(operators, Snapshot("v1.36.0", workloads=workloads))] == expected


HOOK = Webhook("externalsecret-validate", ("external-secrets/webhook",))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        pytest.param(
            Snapshot("v1.36.0", webhooks=(HOOK,), workloads=(GO_WEBHOOK,)), [W], id="a webhook that is served"
        ),
        pytest.param(Snapshot("v1.36.0", webhooks=(HOOK,)), [B], id="a webhook without its server"),
        pytest.param(Snapshot("v1.36.0", definitions=(Definition(CRD),)), [F], id="no webhook"),
    ],
)
def test_webhooks_that_are_left(snapshot: Snapshot, expected: list[Level]) -> None:
    assert [level for level, _ in found(webhooks, snapshot)] == expected


def labels(name: str = "external-secrets", instance: str = "eso", **more: str) -> Any:
    return {"matchLabels": {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": instance, **more}}


def go_operator(name: str, selector: Any, owner: Owner | None = OWNER) -> Workload:
    return Workload(ObjectKey("external-secrets", name), WorkloadRole.GO_OPERATOR, selector=selector, owner=owner)


IN_NAMESPACE = Owner("external-secrets", "external-secrets")


@pytest.mark.parametrize(
    ("workload", "values"),
    [
        pytest.param(go_operator("eso-external-secrets", labels()), {}, id="the defaults"),
        pytest.param(
            go_operator("external-secrets", labels(instance="external-secrets"), IN_NAMESPACE),
            {},
            id="a release with the name of the chart",
        ),
        pytest.param(go_operator("eso", labels("eso")), {"nameOverride": "eso"}, id="another name of the chart"),
        pytest.param(go_operator("secrets", labels()), {"fullnameOverride": "secrets"}, id="another name altogether"),
        pytest.param(go_operator("eso-external-secrets", labels(), None), {}, id="a chart that a tool rendered"),
    ],
)
def test_a_deployment_with_the_selector_of_our_chart_needs_no_advice(workload: Workload, values: Any) -> None:
    release = Release(workload.owner or OWNER, values=values, part="external-secrets")

    (finding,) = selectors(Snapshot(workloads=(workload, OURS), releases=(release,)))

    assert (finding.level, finding.next) == (F, "")
    assert finding.text.startswith(f"{workload} has the selector of our chart")


@pytest.mark.parametrize(
    ("workload", "difference"),
    [
        pytest.param(
            go_operator("eso-external-secrets", labels("operator")),
            "app.kubernetes.io/name: operator today, external-secrets in our chart",
            id="another value",
        ),
        pytest.param(
            go_operator("eso-external-secrets", labels(tier="backend")),
            "tier: backend today, not set in our chart",
            id="a label more",
        ),
        pytest.param(
            go_operator("eso-external-secrets", {"matchLabels": {"app.kubernetes.io/name": "external-secrets"}}),
            "app.kubernetes.io/instance: not set today, eso in our chart",
            id="a label less",
        ),
        pytest.param(
            go_operator("eso-external-secrets", {**labels(), "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            "matchExpressions: set today, not set in our chart",
            id="expressions",
        ),
    ],
)
def test_a_deployment_with_another_selector_must_be_deleted_before_an_upgrade(
    workload: Workload, difference: str
) -> None:
    (finding,) = selectors(Snapshot(workloads=(workload,), releases=(Release(OWNER),)))

    assert (finding.level, [str(each) for each in finding.details]) == (B, [difference])
    assert finding.next.endswith("kubectl -n external-secrets delete deployment eso-external-secrets")


def test_values_of_a_file_decide_which_selector_our_chart_has() -> None:
    workload = go_operator("secrets", labels())
    given = {"fullnameOverride": "secrets", "nameOverride": "eso"}

    (finding,) = selectors(Snapshot(workloads=(workload,), releases=(Release(OWNER),), values=given))

    assert finding.level is B


def test_a_deployment_under_another_name_than_ours_is_not_compared() -> None:
    assert (
        found(selectors, Snapshot(workloads=(go_operator("other", labels("other")),), releases=(Release(OWNER),))) == []
    )


def test_a_selector_is_not_judged_without_the_values_of_the_release() -> None:
    workload = go_operator("eso-external-secrets", labels("operator"))

    (finding,) = selectors(Snapshot(workloads=(workload,), releases=(UnreadObject(OWNER, "you may not"),)))

    assert finding.level is W
    assert "could not be compared" in finding.text
    assert "helm get values eso -n external-secrets" in finding.next


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("v1.36.3", [F], id="a version that is tested"),
        pytest.param("v1.30.0-gke.1", [F], id="the oldest with ratcheting"),
        pytest.param("v1.29.9", [W], id="rules without ratcheting"),
        pytest.param("v1.24.0", [B], id="no rules in CRDs"),
        pytest.param("", [], id="no cluster"),
    ],
)
def test_the_version_of_the_api_server(version: str, expected: list[Level]) -> None:
    assert [level for level, _ in found(api_server, Snapshot(version))] == expected


@pytest.mark.parametrize(
    ("gap", "level"),
    [
        pytest.param(SnapshotGap("deployments.apps", "why"), B, id="Deployments, of which both operators may run"),
        pytest.param(SnapshotGap(str(DEFINITIONS), "why"), B, id="definitions, which Helm may own"),
        pytest.param(
            SnapshotGap("secretstores.external-secrets.io", "why"), B, id="stores, whose providers may be missing"
        ),
        pytest.param(SnapshotGap("secretstores.external-secrets.io", "why", partly=True), W, id="very many stores"),
        pytest.param(SnapshotGap("services", "why"), W, id="Services"),
    ],
)
def test_unreadable_resources_are_named(gap: SnapshotGap, level: Level) -> None:
    (finding,) = permissions(Snapshot("v1.36.0", gaps=(gap,)))

    assert (finding.level, finding.details) == (level, (Detail(gap.what, text="why"),))


def test_nothing_is_claimed_about_resources_that_could_not_be_looked_at() -> None:
    names = ("deployments.apps", str(WEBHOOKS), str(DEFINITIONS), *(kind.crd_name for kind in KINDS))
    gaps = tuple(SnapshotGap(name, "you may not list them") for name in names)

    report = judge(Snapshot("v1.36.0", gaps=gaps))

    assert [check for check, _ in report.findings] == ["permissions", "permissions", "api_server"]
    assert not report.ready


def test_a_webhook_whose_server_cannot_be_looked_at_is_only_warned_of() -> None:
    hidden = Snapshot("v1.36.0", webhooks=(HOOK,), gaps=(SnapshotGap("deployments.apps", "you may not list them"),))

    assert [level for level, _ in found(webhooks, hidden)] == [W]


def test_flags_are_grouped_by_what_becomes_of_them() -> None:
    arguments = (
        "--concurrent=4",
        "--client-qps=9",
        "--enable-http2",
        "--made-up=x",
        "--loglevel=loud",
        "--metrics-auth",
    )
    snapshot = Snapshot(workloads=(Workload(GO.key, WorkloadRole.GO_OPERATOR, arguments=arguments), GO_WEBHOOK))

    findings = list(flags(snapshot))

    assert [(each.level, [detail.subject for detail in each.details]) for each in findings] == [
        (W, ["--loglevel"]),
        (W, ["--made-up"]),
        (W, ["--concurrent"]),
        (W, ["--client-qps", "--enable-http2"]),
        (F, []),
    ]
    assert findings[-1].text.endswith("1 flag with the same meaning here")


def test_flags_that_are_refused_together_are_reported_if_each_is_accepted() -> None:
    go = Workload(GO.key, WorkloadRole.GO_OPERATOR, arguments=("--metrics-auth",))

    refused, _ = flags(Snapshot(workloads=(go,)))

    assert refused.level is W
    assert "--metrics-auth needs --metrics-secure" in refused.text


def deployment(image: str, *arguments: str, label: str = "", container: str = "c") -> Any:
    pod = {"containers": [{"name": container, "image": image, "args": list(arguments)}]}
    labels = {"app.kubernetes.io/name": label} if label else {}
    metadata = {"name": "d", "namespace": "n", "labels": labels}
    return {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}, "template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("document", "role"),
    [
        pytest.param(
            deployment("r.test:5000/external-secrets/external-secrets:v2"), WorkloadRole.GO_OPERATOR, id="its image"
        ),
        pytest.param(
            deployment("r.test/external-secrets/external-secrets@sha256:ab"), WorkloadRole.GO_OPERATOR, id="a digest"
        ),
        pytest.param(
            deployment("mirror/eso", label="external-secrets"), WorkloadRole.GO_OPERATOR, id="its label, from a mirror"
        ),
        pytest.param(
            deployment("mirror/eso", container="external-secrets"), WorkloadRole.GO_OPERATOR, id="its container"
        ),
        pytest.param(
            deployment("r/external-secrets/external-secrets", "webhook", "--port=1"),
            WorkloadRole.GO_WEBHOOK,
            id="its webhook",
        ),
        pytest.param(
            deployment("mirror/eso", label="external-secrets-cert-controller"),
            WorkloadRole.GO_CERTIFICATES,
            id="its certificates",
        ),
        pytest.param(deployment("mirror/eso-operator:1"), WorkloadRole.OURS, id="our image"),
        pytest.param(
            deployment("m/e", "--core-namespace=x", label="external-secrets"),
            WorkloadRole.OURS,
            id="our flags under its label",
        ),
        pytest.param(deployment("nginx:1", "--metrics-addr=:8080"), None, id="another program"),
    ],
)
def test_deployments_are_told_apart_by_image_and_flags(document: Any, role: WorkloadRole | None) -> None:
    workload = workload_of(document)

    assert (workload.role if workload else None) is role


def hooks(*names: str) -> Any:
    config = {"service": {"namespace": "n", "name": "s"}}
    return {"metadata": {"name": "c"}, "webhooks": [{"name": name, "clientConfig": config} for name in names]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            hooks("validate.externalsecret.external-secrets.io"), Webhook("c", ("n/s",)), id="of the chart in Go"
        ),
        pytest.param(hooks("validate.kyverno.svc-fail"), None, id="of a policy engine, which must not be deleted"),
        pytest.param({"metadata": {"name": "c"}}, None, id="without webhooks"),
    ],
)
def test_webhooks_of_the_operator_in_go_are_told_apart(document: Any, expected: Webhook | None) -> None:
    assert webhook_of(document) == expected


def test_a_provider_in_the_cluster_says_what_it_serves() -> None:
    annotations = {"external-secrets.io/provider-v1-keys": "ibm, Token"}
    service = Object(metadata=ObjectMeta(name="provider-ibm", namespace="n", annotations=annotations))
    served = {"kinds": [{"group": "g", "version": "v1", "kind": "K", "v1ProviderKey": "ovh"}]}
    spec = {"address": "grpc://a.n.svc:1", "v1ProviderKeys": ["ibm"]}
    given = {"metadata": {"name": "c", "namespace": "n"}, "spec": spec, "status": served}

    by_service = provider_of_service(service)
    by_class = provider_of_class(msgspec.convert(given, ProviderClass))

    assert (by_service.what, by_service.name) == ("Service n/provider-ibm", "ibm")
    assert {Want("", "ibm"), Want(GENERATORS_GROUP, "Token")} <= by_service.serves
    assert by_class.what == "ProviderClass n/c"
    assert {Want("", "ibm"), Want("", "ovh"), Want("g", "K")} <= by_class.serves


def test_blockers_come_first_and_the_verdict_last() -> None:
    snapshot = Snapshot("v1.36.0", objects=(CHEF,), workloads=(GO,), definitions=(OWNED,), releases=(LOOSE,))

    report = judge(snapshot)

    levels = [finding.level for _, finding in report.findings]
    assert levels == sorted(levels, key=list(Level).index)
    assert [check for check, finding in report.findings if finding.level is B] == ["helm_ownership", "providers"]
    assert list(lines(report))[-1].endswith(" not ready: 2 blockers, 1 warning")
    assert {check for check, _ in report.findings} <= {check.__name__ for check in CHECKS}


def test_nothing_to_object_to_is_ready() -> None:
    report = judge(Snapshot("v1.36.0"))

    assert report.ready
    assert list(lines(report))[-1].endswith(" ready: 0 blockers, 0 warnings")


def test_a_page_shows_some_details_and_json_all_of_them() -> None:
    details = tuple(Detail(f"Store {number}", "spec", "text") for number in range(MAX_DETAILS + 2))
    report = Report((("check", CheckResult(W, "many\x1b[2J", details, "do this")),))

    told, fields = list(lines(report)), as_json(report)["findings"][0]

    assert "    Store 0: spec: text" in told
    assert "    and 2 more; `eso preflight -o json` lists them" in told
    assert "    next: do this" in told
    assert len(fields["details"]) == fields["detailsCount"] == MAX_DETAILS + 2
    assert fields["says"] == r"many\x1b[2J"
