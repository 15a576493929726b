"""The values of the chart in Go that mean the same here, and what is said about those that do not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from eso_operator.flags import parse
from eso_operator.settings import Reconcilers
from eso_sdk.sharedmain import members_of, parsed, split_names
from gotmpl.errors import TemplateError
from kubebase.meta import JsonObject

GO = yaml.safe_load(Path(__file__).with_name("go-values.yaml").read_text())
CHART = Path(__file__).resolve().parents[2] / "deploy" / "charts" / "external-secrets"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
SELECTOR = {"app.kubernetes.io/name": "external-secrets", "app.kubernetes.io/instance": "external-secrets"}
RELEASED = {
    "helm.sh/chart": f"external-secrets-{VERSION}",
    "app.kubernetes.io/version": VERSION,
    "app.kubernetes.io/managed-by": "Helm",
}
POD = ("Deployment", "external-secrets", "spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
ROLE = "eks.amazonaws.com/role-arn"


class Chart(Protocol):
    def __call__(self, *, release: str = "external-secrets", **values: Any) -> list[JsonObject]: ...


def at(objects: list[JsonObject], path: tuple[str | int, ...]) -> Any:
    """Follow a path that begins with a kind and a name."""
    kind, name, *steps = path
    held: Any
    (held,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    for step in steps:
        held = held[step]
    return held


def named(objects: list[JsonObject]) -> set[str]:
    return {f"{each['kind']}/{each['metadata']['name']}" for each in objects}


@pytest.mark.parametrize(
    ("values", "path", "expected"),
    [
        pytest.param(
            {"topologySpreadConstraints": [SPREAD]},
            (*POD, "topologySpreadConstraints", 0),
            {**SPREAD, "labelSelector": {"matchLabels": SELECTOR}},
            id="a constraint without a selector",
        ),
        pytest.param(
            {"podDisruptionBudget": {"enabled": True, "maxUnavailable": "10%"}},
            ("PodDisruptionBudget", "external-secrets-pdb", "spec"),
            {"maxUnavailable": "10%", "selector": {"matchLabels": SELECTOR}},
            id="maxUnavailable wins over minAvailable",
        ),
        pytest.param(
            {"nameOverride": "y"},
            ("Deployment", "external-secrets-y", "spec", "selector", "matchLabels"),
            {**SELECTOR, "app.kubernetes.io/name": "y"},
            id="another name is in the selector",
        ),
        pytest.param(
            {"podLabels": {"a": "own"}, "global": {"podLabels": {"a": "global", "b": "global"}}},
            (*POD[:-1], "metadata", "labels"),
            {**SELECTOR, **RELEASED, "a": "own"},
            id="global values are used where the own one is empty, and never merged",
        ),
        pytest.param(
            {"deploymentAnnotations": {"a": "b"}},
            ("NetworkPolicy", "external-secrets-network-policy", "metadata", "annotations"),
            {"a": "b"},
            id="annotations of the Deployment are on the policy too",
        ),
        pytest.param(
            {"commonLabels": {"a": "b"}},
            ("Deployment", "external-secrets", "spec", "selector", "matchLabels"),
            SELECTOR,
            id="labels of everything are in no selector",
        ),
        pytest.param(
            {"extraObjects": ["kind: X\nmetadata: {name: '{{ .Release.Name }}-x'}"]},
            ("X", "external-secrets-x", "kind"),
            "X",
            id="an object as text",
        ),
    ],
)
def test_a_value_means_what_it_does_in_the_chart_in_go(
    operator_chart: Chart, values: JsonObject, path: tuple[str | int, ...], expected: object
) -> None:
    assert at(operator_chart(**values), path) == expected


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        pytest.param({"leaderElectionID": "x"}, {"leader.lease": "x"}, id="lease"),
        pytest.param({"leaderElect": False}, {"leader.enabled": False}, id="no election with one replica"),
        pytest.param({"leaderElect": False, "replicaCount": 2}, {"leader.enabled": True}, id="election with two"),
        pytest.param({"shards": 3}, {"leader.shards": 3, "leader.enabled": True}, id="shards"),
        pytest.param({"shards": 3, "leaderElect": False}, {"leader.enabled": True}, id="shards need leases"),
        pytest.param({"controllerClass": "x"}, {"controller_class": "x"}, id="class"),
        pytest.param({"storeRequeueInterval": "1m"}, {"store_interval": 60}, id="interval of stores"),
        pytest.param({"extendedMetricLabels": True}, {"metrics.extended_labels": True}, id="metric labels"),
        pytest.param({"scopedNamespace": "x"}, {"namespace": "x"}, id="one namespace"),
        pytest.param({"genericTargets": {"enabled": True}}, {"sync.generic_targets": True}, id="generic targets"),
        pytest.param({"log": {"level": "debug"}}, {"logs.level": "debug"}, id="level"),
        pytest.param(
            {"log": {"level": "warn"}, "extraArgs": {"loglevel": "debug"}}, {"logs.level": "warn"}, id="values win"
        ),
        pytest.param({"extraArgs": {"concurrent": 1000000.0}}, {"workers": 1000000}, id="whole numbers"),
        pytest.param({"extraArgs": {"namespaced-providers": None}}, {"providers.namespaced": True}, id="a bare flag"),
        pytest.param({"extraArgs": {"enable-flood-gate": False}}, {"sync.flood_gate": False}, id="false is false"),
        pytest.param(
            {"extraArgs": {"provider-namespace": ["a", "b"]}}, {"providers.namespaces": ("a", "b")}, id="a list repeats"
        ),
        pytest.param(
            {"processPushSecret": False, "processClusterPushSecret": False},
            {"reconcilers": Reconcilers(push_secret=False, cluster_push_secret=False)},
            id="reconcilers",
        ),
        pytest.param(GO, {"leader.enabled": False}, id="all values of the chart in Go"),
    ],
)
def test_values_become_flags_that_the_command_takes(
    operator_chart: Chart, values: JsonObject, flags: dict[str, object]
) -> None:
    given = {**values, "image": {"registry": "r"}}
    settings = parse(at(operator_chart(**given), (*CONTAINER, "args")), {})

    for path, expected in flags.items():
        held: Any = settings
        for step in path.split("."):
            held = getattr(held, step)
        assert held == expected


def test_names_follow_the_release(operator_chart: Chart) -> None:
    names = {each["metadata"]["name"] for each in operator_chart(name_of_release="a" * 53)}
    assert {len(name) <= 63 for name in names} == {True}
    assert "a" * 48 + "-leaderelection" in names

    other = operator_chart(name_of_release="shop", providers={"vault": {"enabled": True}})
    assert "Deployment/shop-external-secrets" in named(other)
    allowed = [each for each in at(other, ("Deployment", "provider-vault", *CONTAINER[2:], "args")) if "client" in each]
    assert allowed == ["--allowed-client=spiffe://cluster.local/ns/external-secrets/sa/shop-external-secrets"]


def test_parts_can_be_left_out(operator_chart: Chart) -> None:
    without = named(operator_chart(createOperator=False))
    unprivileged = named(operator_chart(rbac={"create": False}))

    assert not [each for each in without if each.startswith(("Deployment", "NetworkPolicy"))]
    assert not [each for each in unprivileged if "Role" in each]


@pytest.mark.parametrize(
    ("switch", "plurals"),
    [
        ("processClusterStore", {"clustersecretstores", "clusterproviders"}),
        ("processClusterExternalSecret", {"clusterexternalsecrets"}),
        ("processClusterPushSecret", {"clusterpushsecrets"}),
        ("processClusterGenerator", {"clustergenerators"}),
    ],
)
def test_kinds_that_are_not_processed_leave_the_rights(operator_chart: Chart, switch: str, plurals: set[str]) -> None:
    path = ("ClusterRole", "external-secrets-controller", "rules")
    off: JsonObject = {switch: False}
    all_of, fewer = (
        {resource for rule in at(objects, path) for resource in rule["resources"]}
        for objects in (operator_chart(), operator_chart(**off))
    )

    assert all_of - fewer == plurals


def test_the_dashboard_is_there_for_the_sidecar_of_grafana(operator_chart: Chart) -> None:
    objects = operator_chart(grafanaDashboard={"enabled": True, "extraLabels": {"team": "platform"}})
    dashboard = at(objects, ("ConfigMap", "external-secrets-dashboard"))

    assert {"grafana_dashboard": "1", "team": "platform"}.items() <= dashboard["metadata"]["labels"].items()
    assert json.loads(dashboard["data"]["external-secrets.json"])["panels"]


def test_people_get_the_rights_that_the_roles_of_the_cluster_aggregate(operator_chart: Chart) -> None:
    objects = operator_chart(rbac={"aggregateToAdmin": False})
    view, edit = (at(objects, ("ClusterRole", f"external-secrets-{name}")) for name in ("view", "edit"))
    prefix = "rbac.authorization.k8s.io/aggregate-to-"

    assert {each.removeprefix(prefix) for each in view["metadata"]["labels"] if prefix in each} == {"view", "edit"}
    assert {each.removeprefix(prefix) for each in edit["metadata"]["labels"] if prefix in each} == {"edit"}
    writable = {resource for rule in edit["rules"] for resource in rule["resources"]}
    assert {"externalsecrets", "stssessiontokens", "clusterexternalsecrets"} <= writable
    assert "generatorstates" not in writable


@pytest.mark.parametrize(
    ("adapt", "users"), [pytest.param("force", 0, id="OpenShift"), pytest.param("disabled", 2, id="elsewhere")]
)
def test_fixed_users_are_left_to_openshift(operator_chart: Chart, adapt: str, users: int) -> None:
    openshift: JsonObject = {"global": {"compatibility": {"openshift": {"adaptSecurityContext": adapt}}}}

    objects = operator_chart(**openshift, providers={"fake": {"enabled": True}})

    assert str(objects).count("runAsUser") == users


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param({"image": {}}, "set image.registry to the registry path that holds it", id="no image"),
        pytest.param(
            {"image": {"repository": "mirror/external-secrets/external-secrets"}},
            "image.repository names the image of the operator in Go",
            id="the image in Go",
        ),
        pytest.param({"global": {"repository": "x"}}, "global.repository names one image", id="one image for all"),
        pytest.param(
            {"metrics": {"listen": {"auth": {"enabled": True}}}}, "needs metrics.listen.secure.enabled", id="tokens"
        ),
        pytest.param({"bitwarden-sdk-server": {"enabled": True}}, "install its own chart first", id="a subchart"),
        pytest.param({"processPushSecret": False}, "processClusterPushSecret=false", id="push reconcilers"),
        pytest.param({"providers": {"shared": {"enabled": True}}}, "needs providers.shared.names", id="nothing shared"),
        pytest.param(
            {"providers": {"shared": {"enabled": True, "names": ["vault"]}, "vault": {"resources": {}}}},
            "has no effect while providers.shared.names holds .* one container runs all of them",
            id="a container of its own",
        ),
        pytest.param(
            {"providers": {"shared": {"enabled": True, "names": ["valt"]}}},
            "the image eso-providers has no provider .*; correct the name",
            id="a shared provider that does not exist",
        ),
        pytest.param(
            {"extraProviders": {"vault": {"image": {"repository": "r/x", "tag": "1"}}}},
            "this chart has a provider of that name: use .* or another name",
            id="a provider of others with a name of ours",
        ),
        pytest.param({"providers": {"Vault": {}}}, "the name of a provider has lower case letters", id="a wrong name"),
    ],
)
def test_a_value_that_cannot_work_ends_with_the_way_out(operator_chart: Chart, values: JsonObject, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        operator_chart(**{"image": {"registry": "r"}, **values})


def test_notes_name_what_has_no_effect(operator_chart: Chart) -> None:
    values: JsonObject = {
        "webhook": {"port": 1, "create": True},
        "certController": {"create": True},
        "enableHTTP2": True,
    }

    notes = str(operator_chart(notes=True, **values, extraArgs={"enable-flood-gate": False}))

    assert "Without effect here: webhook.create, webhook.port, certController.create, enableHTTP2\n" in notes
    assert "although the chart in Go switched them on: --enable-flood-gate=false\n" in notes
    assert "Without effect" not in str(operator_chart(notes=True))


def test_every_provider_of_this_repository_is_a_switch() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    here = {file.parent.name for file in CHART.parents[2].glob("providers/*/pyproject.toml")}

    assert set(values["providers"]) == here | {"shared"}


def test_the_schema_has_exactly_the_providers_of_this_repository() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["providers"]
    here = {file.parent.name for file in CHART.parents[2].glob("providers/*/pyproject.toml")}
    (pattern,) = schema["patternProperties"]

    assert schema["additionalProperties"] is False
    assert all(re.search(pattern, name) for name in here)
    assert not any(re.search(pattern, name) for name in ("valt", "vault2", "my-vault"))


def test_a_provider_of_others_runs_its_own_image_with_the_settings_of_all(operator_chart: Chart) -> None:
    acme = {"image": {"repository": "registry.acme.com/provider", "tag": "1.2.3"}, "replicaCount": 1}
    off = {**acme, "enabled": False}

    objects = operator_chart(extraProviders={"acme": acme, "off": off}, podLabels={"team": "platform"})

    spec = at(objects, ("Deployment", "provider-acme", "spec"))
    assert spec["replicas"] == 1
    assert spec["template"]["spec"]["containers"][0]["image"] == "registry.acme.com/provider:1.2.3"
    assert spec["template"]["metadata"]["labels"]["team"] == "platform"
    assert "external-secrets.io/provider" in at(objects, ("Service", "provider-acme", "metadata", "labels"))
    assert not [each for each in objects if each["metadata"]["name"] == "provider-off"]


def test_the_operator_may_read_the_configurations_of_every_provider(operator_chart: Chart) -> None:
    rules = at(
        operator_chart(configGroups=["weather.example.com"]), ("ClusterRole", "external-secrets-controller", "rules")
    )
    groups = {file.stem.split(".", 1)[1] for file in CHART.parents[1].glob("crds/*.yaml")}

    read = {group for rule in rules if {"list", "watch"} <= set(rule["verbs"]) for group in rule["apiGroups"]}
    assert groups | {"weather.example.com"} <= read


def test_a_provider_has_its_own_settings_those_of_all_and_those_of_the_operator(operator_chart: Chart) -> None:
    objects = operator_chart(
        providers={
            "vault": {"enabled": True, "replicaCount": 1},
            "aws": {"enabled": True, "tolerations": [{"key": "x"}]},
        },
        providerDefaults={"replicaCount": 3, "extraArgs": {"drain": 5}},
        tolerations=[{"key": "y"}],
        podLabels={"team": "platform"},
    )
    vault, aws = (at(objects, ("Deployment", f"provider-{name}", "spec")) for name in ("vault", "aws"))

    assert (vault["replicas"], aws["replicas"]) == (1, 3)
    assert [each["template"]["spec"]["tolerations"] for each in (vault, aws)] == [[{"key": "y"}], [{"key": "x"}]]
    assert vault["template"]["metadata"]["labels"]["team"] == "platform"
    assert "--drain=5" in vault["template"]["spec"]["containers"][0]["args"]
    assert "external-secrets.io/provider" in at(objects, ("Service", "provider-aws", "metadata", "labels"))


def test_the_cloud_identity_of_the_operator_reaches_providers_without_one(operator_chart: Chart) -> None:
    own = {"enabled": True, "serviceAccount": {"annotations": {ROLE: "own"}}}
    account = {"annotations": {ROLE: "shared", "other": "x"}}
    enabled = {"enabled": True}
    objects = operator_chart(providers={"aws": own, "vault": enabled}, serviceAccount=account)
    alone = operator_chart(
        providers={"vault": enabled}, serviceAccount=account, providerDefaults={"inheritIdentity": False}
    )
    notes = str(operator_chart(notes=True, providers={"aws": own, "vault": enabled}, serviceAccount=account))

    assert at(objects, ("ServiceAccount", "provider-aws", "metadata", "annotations")) == {ROLE: "own"}
    assert at(objects, ("ServiceAccount", "provider-vault", "metadata", "annotations")) == {ROLE: "shared"}
    assert "annotations" not in at(alone, ("ServiceAccount", "provider-vault", "metadata"))
    assert "external-secrets:provider-vault" in notes
    assert "provider-aws" not in notes


SHARED: JsonObject = {
    "shared": {"enabled": True, "names": ["webhook", "generators"], "extraArgs": {"drain": 5}},
    "webhook": {"enabled": True, "callTokens": {"verify": "review"}, "extraArgs": {"allow-address": ["10.0.0.1"]}},
}


def test_several_providers_share_a_container_and_keep_a_service_each(operator_chart: Chart) -> None:
    objects = operator_chart(providers=SHARED)
    pod = at(objects, ("Deployment", "provider-shared", "spec", "template"))
    (container,) = pod["spec"]["containers"]

    assert "Deployment/provider-webhook" not in named(objects)
    assert container["image"].partition(":")[0].endswith("/eso-providers")
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"grpc": 8080, "grpc-1": 8090, "live": 8082}
    for name, port in (("webhook", "grpc"), ("generators", "grpc-1")):
        service = at(objects, ("Service", f"provider-{name}"))
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (offered,) = service["spec"]["ports"]
        assert (offered["port"], offered["targetPort"]) == (ports[port], port)
    allowed = at(objects, ("NetworkPolicy", "provider-shared", "spec", "ingress"))
    assert [each["ports"][0]["port"] for each in allowed] == ["grpc", "live", "grpc-1"]


def test_each_provider_of_a_shared_container_keeps_its_identity(operator_chart: Chart) -> None:
    """The container gets the command line that `eso-providers` reads, so each has the settings of its own pod."""
    objects = operator_chart(providers=SHARED)
    (container,) = at(objects, ("Deployment", "provider-shared", "spec", "template", "spec", "containers"))
    names, flags = split_names(container["args"])
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    webhook, generators = members_of(names, *parsed(names, flags, environment), environment)

    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = at(objects, ("Deployment", "provider-shared", "spec", "template", "spec", "volumes"))
    secrets = {each["name"]: each["secret"]["secretName"] for each in volumes if "secret" in each}
    for member, port in ((webhook, 8080), (generators, 8090)):
        assert member.options.listen == f"0.0.0.0:{port}"
        assert secrets[mounted[str(member.options.tls_dir)]] == f"provider-{member.name}-provider-tls"
        assert len(member.options.allowed_clients) == 1
        assert member.options.drain_seconds == 5
    assert webhook.options.call_auth is not None
    assert webhook.options.call_auth.audiences[0] == "external-secrets-provider/provider-webhook"
    assert generators.options.call_auth is None
    assert webhook.options.addresses != generators.options.addresses


def test_notes_name_the_account_of_a_shared_deployment(operator_chart: Chart) -> None:
    notes = str(operator_chart(notes=True, providers=SHARED, serviceAccount={"annotations": {ROLE: "shared"}}))

    assert "external-secrets:provider-shared" in notes
    assert "external-secrets:provider-webhook" not in notes


def test_a_shared_container_has_one_metrics_endpoint(operator_chart: Chart) -> None:
    shared = {**SHARED, "shared": {**SHARED["shared"], "metrics": {"service": {"enabled": True}}}}
    objects = operator_chart(providers=shared)

    metrics = [name for name in named(objects) if name.startswith("Service/") and name.endswith("-metrics")]
    assert [name.rpartition("external-secrets-")[2] for name in metrics if "provider" in name] == [
        "provider-shared-metrics"
    ]
    allowed = at(objects, ("NetworkPolicy", "provider-shared", "spec", "ingress"))
    assert [each["ports"][0]["port"] for each in allowed] == ["grpc", "live", "metrics", "grpc-1"]


AZURE = "azure.workload.identity/"


def test_azure_identities_bring_the_label_that_pods_need(operator_chart: Chart) -> None:
    own = {"enabled": True, "serviceAccount": {"annotations": {f"{AZURE}client-id": "own"}}}
    objects = operator_chart(providers={"azure": own, "fake": {"enabled": True}})
    inherited = operator_chart(
        providers={"azure": {"enabled": True}}, serviceAccount={"annotations": {f"{AZURE}client-id": "shared"}}
    )
    pod = ("spec", "template", "metadata", "labels")

    assert at(objects, ("Deployment", "provider-azure", *pod))[f"{AZURE}use"] == "true"
    assert f"{AZURE}use" not in at(objects, ("Deployment", "provider-fake", *pod))
    assert at(inherited, ("Deployment", "provider-azure", *pod))[f"{AZURE}use"] == "true"


def test_a_provider_may_have_the_account_that_trust_policies_name(operator_chart: Chart) -> None:
    """Without an API token: the cloud's webhook mounts one of its own."""
    values: JsonObject = {
        "providers": {"aws": {"enabled": True, "serviceAccount": {"create": False, "name": "external-secrets"}}},
        "serviceAccount": {"annotations": {ROLE: "arn"}},
    }
    objects = operator_chart(**values)
    pod = at(objects, ("Deployment", "provider-aws", "spec", "template", "spec"))

    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("external-secrets", False)
    assert [each for each in named(objects) if each.startswith("ServiceAccount")] == ["ServiceAccount/external-secrets"]
    assert "trust policy" not in str(operator_chart(notes=True, **values))


def test_what_was_set_for_the_backends_sake_reaches_providers(operator_chart: Chart) -> None:
    objects = operator_chart(
        providers={"vault": {"enabled": True, "extraEnv": [{"name": "OWN", "value": "x"}]}, "aws": {"enabled": True}},
        extraEnv=[{"name": "HTTPS_PROXY", "value": "http://proxy"}],
    )
    environment = {
        name: [each["name"] for each in at(objects, ("Deployment", f"provider-{name}", *CONTAINER[2:], "env"))]
        for name in ("aws", "vault")
    }

    assert environment == {"aws": ["HTTPS_PROXY"], "vault": ["OWN"]}


def test_providers_with_a_token_may_delegate_authentication_too(operator_chart: Chart) -> None:
    token = {"enabled": True, "serviceAccount": {"automount": True}}
    objects = operator_chart(systemAuthDelegator=True, providers={"vault": token, "aws": {"enabled": True}})

    subjects = at(objects, ("ClusterRoleBinding", "external-secrets-auth-delegator", "subjects"))
    assert [each["name"] for each in subjects] == ["external-secrets", "provider-vault"]


@pytest.mark.parametrize(
    ("memory", "warned"),
    [
        pytest.param("128Mi", True, id="little"),
        pytest.param("100000Ki", True, id="little, in kibibytes"),
        pytest.param("256Mi", False, id="enough"),
        pytest.param("1Gi", False, id="plenty"),
        pytest.param("1.5Gi", False, id="a fraction"),
    ],
)
def test_notes_warn_of_little_memory(operator_chart: Chart, memory: str, warned: bool) -> None:
    notes = str(operator_chart(notes=True, resources={"limits": {"memory": memory}}))

    assert (f"resources.limits.memory={memory} is little" in notes) is warned
    assert "is little" not in str(operator_chart(notes=True))


def test_the_operator_has_a_memory_limit_by_default(operator_chart: Chart) -> None:
    containers = at(operator_chart(), ("Deployment", "external-secrets", "spec", "template", "spec", "containers"))

    assert containers[0]["resources"]["limits"] == {"memory": "512Mi"}


def refusals() -> list[str]:
    texts = [path.read_text() for path in sorted((CHART / "templates").iterdir())]
    return [found for text in texts for found in re.findall(r'fail (?:\(printf )?"((?:[^"\\]|\\.)*)"', text)]


@pytest.mark.parametrize("sentence", refusals())
def test_a_refusal_is_one_sentence_that_names_the_value(sentence: str) -> None:
    known = {*yaml.safe_load((CHART / "values.yaml").read_text()), *GO, "%s"}

    assert sentence.endswith(".")
    assert ". " not in sentence
    assert any(re.search(rf"(^|\W){re.escape(name)}[.=]", sentence) for name in known)
    assert re.search(r"\b(set|remove|install|run|needs|leave|holds|has)\b", sentence)


def test_every_refusal_of_the_chart_is_read_here() -> None:
    written = sum(path.read_text().count("{{- fail") for path in (CHART / "templates").iterdir())

    assert len(refusals()) == written
