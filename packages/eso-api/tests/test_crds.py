"""The CRDs as a whole: how an API server and kubectl treat them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from eso_api.crd import crd_yaml, crds
from eso_api.kinds import (
    GENERATOR_KINDS,
    KINDS,
    V2_KINDS,
    AnyKind,
    KindClashError,
    installed_kinds,
    kinds_by_name,
    provider_kinds,
)
from eso_api.references import GENERATOR_KINDS as GENERATOR_NAMES
from eso_api.secretstore import CLUSTER_SECRET_STORE, SECRET_STORE

ALL = [pytest.param(kind, id=kind.crd_name) for kind in installed_kinds()]
READY = '.status.conditions[?(@.type=="Ready")]'
AGE = ("AGE", "date", ".metadata.creationTimestamp")

# Size at which client-side `kubectl apply` fails is 262144 bytes of JSON; YAML users look at the file.
MAX_YAML_BYTES = 200_000


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema inside a schema, with its path."""
    yield path, schema
    for name, nested in schema.get("properties", {}).items():
        yield from nodes(nested, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


@cache
def crd_of(kind: AnyKind) -> dict[str, Any]:
    return kind.crd()


def test_the_crds_of_all_kinds_together_are_those_of_each_kind() -> None:
    together = list(crds(KINDS))

    assert together == [crd_of(kind) for kind in KINDS]


def test_a_change_of_one_crd_changes_no_other() -> None:
    first, second = crds((SECRET_STORE, CLUSTER_SECRET_STORE))

    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clear()

    assert second == CLUSTER_SECRET_STORE.crd()


def schemas(kind: AnyKind) -> Iterator[tuple[str, dict[str, Any]]]:
    for version in crd_of(kind)["spec"]["versions"]:
        yield from nodes(version["schema"]["openAPIV3Schema"], version["name"])


def version_of(kind: AnyKind, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = crd_of(kind)["spec"]["versions"][index]
    return found


def by_name(name: str) -> AnyKind:
    return next(kind for kind in installed_kinds() if kind.crd_name == name)


def columns(kind: AnyKind) -> list[tuple[str, str, str]]:
    found = version_of(kind).get("additionalPrinterColumns", [])
    return [(column["name"], column["type"], column["jsonPath"]) for column in found if "priority" not in column]


@pytest.mark.parametrize("kind", ALL)
def test_no_schema_writes_defaults_into_what_users_store(kind: AnyKind) -> None:
    assert [path for path, schema in schemas(kind) if "default" in schema] == []


VALUE_VALIDATIONS = {"anyOf", "enum", "items", "not", "pattern", "properties", "required"}
"""The keywords that a structural schema may have inside anyOf, as far as we use them."""


def keywords(alternatives: Any) -> Iterator[str]:
    """Yield the keywords inside alternatives, at any depth."""
    for schema in alternatives:
        yield from schema
        yield from keywords(schema.get("properties", {}).values())
        yield from keywords([schema[name] for name in ("items", "not") if name in schema])


@pytest.mark.parametrize("kind", ALL)
def test_every_schema_is_structural(kind: AnyKind) -> None:
    loose = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
    untyped = [
        path for path, schema in schemas(kind) if "type" not in schema and not any(key in schema for key in loose)
    ]

    assert untyped == []
    assert not [path for path, schema in schemas(kind) if "$ref" in schema]
    assert {name for _, schema in schemas(kind) for name in keywords(schema.get("anyOf", []))} <= VALUE_VALIDATIONS


@pytest.mark.parametrize("kind", ALL)
def test_a_crd_is_small_enough_for_client_side_apply(kind: AnyKind) -> None:
    assert len(crd_yaml(kind).encode()) < MAX_YAML_BYTES
    assert len(json.dumps(crd_of(kind)).encode()) < 262_144


@pytest.mark.parametrize("kind", ALL)
def test_yaml_holds_the_crd_without_links(kind: AnyKind) -> None:
    text = crd_yaml(kind)

    assert yaml.load(text, Loader=yaml.CSafeLoader) == crd_of(kind)
    assert "*id0" not in text


@pytest.mark.parametrize("kind", ALL)
def test_the_first_version_is_stored_and_every_version_is_served(kind: AnyKind) -> None:
    versions = crd_of(kind)["spec"]["versions"]

    assert [version["name"] for version in versions] == list(kind.versions)
    assert [version["served"] for version in versions] == [True] * len(versions)
    assert [version["storage"] for version in versions] == [True] + [False] * (len(versions) - 1)
    assert [bool(version.get("deprecated")) for version in versions] == [False] + [True] * (len(versions) - 1)


@pytest.mark.parametrize("kind", ALL)
def test_older_versions_have_the_same_schema_without_its_text(kind: AnyKind) -> None:
    def bare(schema: Any) -> Any:
        match schema:
            case dict():
                return {key: bare(value) for key, value in schema.items() if not _is_text(key, value)}
            case list():
                return [bare(value) for value in schema]
            case _:
                return schema

    stored, *older = (version["schema"]["openAPIV3Schema"] for version in crd_of(kind)["spec"]["versions"])

    assert older == [bare(stored)] * (len(kind.versions) - 1)


def _is_text(key: str, value: object) -> bool:
    return key == "description" and isinstance(value, str)


@pytest.mark.parametrize("kind", ALL)
def test_kubectl_get_finds_the_kind_by_category(kind: AnyKind) -> None:
    crd = crd_of(kind)

    assert "external-secrets" in crd["spec"]["names"]["categories"]
    assert crd["metadata"]["labels"] == {"external-secrets.io/component": "controller"}
    assert crd["metadata"]["name"] == f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"


@pytest.mark.parametrize("kind", ALL)
def test_kubectl_explain_has_words_for_every_field_of_the_spec(kind: AnyKind) -> None:
    described = schemas(kind)
    silent = [
        path
        for path, schema in described
        if path.startswith(f"{kind.versions[0]}.spec.")
        and not path.endswith(("[]", "{}"))
        and "description" not in schema
        and not _untyped_provider(path)
    ]

    assert silent == []


def _untyped_provider(path: str) -> bool:
    """Whether the path is an untyped provider block, whose description is only its name."""
    return ".spec.provider." in path and path.count(".") == 3


@pytest.mark.parametrize("kind", ALL)
def test_conditions_of_status_are_keyed_by_type(kind: AnyKind) -> None:
    conditions = [schema for path, schema in schemas(kind) if path.endswith(".status.conditions")]
    keyed = [(schema["x-kubernetes-list-type"], schema["x-kubernetes-list-map-keys"]) for schema in conditions]

    assert keyed == [("map", ["type"])] * (0 if is_v1_generator(kind) else len(kind.versions))


def is_v1_generator(kind: AnyKind) -> bool:
    """Their objects are only read: no component writes a status to them."""
    return kind.group == "generators.external-secrets.io" and kind.name != "GeneratorState"


@pytest.mark.parametrize("kind", ALL)
def test_a_status_subresource_guards_the_status(kind: AnyKind) -> None:
    expected: object = None if kind.name == "GeneratorState" else {"status": {}}

    assert [version.get("subresources") for version in crd_of(kind)["spec"]["versions"]] == [expected] * len(
        kind.versions
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "externalsecrets.external-secrets.io",
            [
                ("StoreType", "string", ".*.secretStoreRef.kind"),
                ("Store", "string", ".*.secretStoreRef.name"),
                ("Refresh Interval", "string", ".*.refreshInterval"),
                ("Status", "string", f"{READY}.reason"),
                ("Ready", "string", f"{READY}.status"),
                ("Last Sync", "date", ".status.refreshTime"),
            ],
            id="R30 ExternalSecret",
        ),
        pytest.param(
            "clusterexternalsecrets.external-secrets.io",
            [
                ("Store", "string", ".*.externalSecretSpec.secretStoreRef.name"),
                ("Refresh Interval", "string", ".*.refreshTime"),
                ("Ready", "string", f"{READY}.status"),
            ],
            id="R30 ClusterExternalSecret",
        ),
        *[
            pytest.param(
                f"{plural}.external-secrets.io",
                [
                    AGE,
                    ("Status", "string", f"{READY}.reason"),
                    ("Capabilities", "string", ".status.capabilities"),
                    ("Ready", "string", f"{READY}.status"),
                ],
                id=plural,
            )
            for plural in ("secretstores", "clustersecretstores")
        ],
        pytest.param(
            "pushsecrets.external-secrets.io",
            [AGE, ("Status", "string", f"{READY}.reason"), ("Last Sync", "date", ".status.refreshTime")],
            id="PushSecret",
        ),
        pytest.param(
            "clusterpushsecrets.external-secrets.io",
            [AGE, ("Status", "string", f"{READY}.reason")],
            id="ClusterPushSecret",
        ),
        pytest.param(
            "generatorstates.generators.external-secrets.io",
            [
                ("GC Deadline", "string", ".spec.garbageCollectionDeadline"),
                ("Age", "date", ".metadata.creationTimestamp"),
            ],
            id="GeneratorState",
        ),
        pytest.param("passwords.generators.external-secrets.io", [], id="generators have none"),
    ],
)
def test_kubectl_get_shows_the_columns_people_know(name: str, expected: list[tuple[str, str, str]]) -> None:
    assert columns(by_name(name)) == expected


@pytest.mark.parametrize("kind", ALL)
def test_a_wide_listing_shows_why_an_object_is_not_ready(kind: AnyKind) -> None:
    found = version_of(kind).get("additionalPrinterColumns", [])

    wide = [(column["name"], column["jsonPath"]) for column in found if column.get("priority") == 1]

    ready = any(path.startswith(READY) for _, _, path in columns(kind))
    assert wide == ([("Message", f"{READY}.message")] if ready else [])


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("externalsecrets.external-secrets.io", ["es"]),
        ("clusterexternalsecrets.external-secrets.io", ["ces"]),
        ("pushsecrets.external-secrets.io", ["ps"]),
        ("secretstores.external-secrets.io", ["ss"]),
        ("clustersecretstores.external-secrets.io", ["css"]),
        ("generatorstates.generators.external-secrets.io", ["gs"]),
    ],
)
def test_short_names_are_those_people_type(name: str, short: list[str]) -> None:
    assert crd_of(by_name(name))["spec"]["names"]["shortNames"] == short


def test_no_two_kinds_share_a_short_name() -> None:
    names = [short for kind in installed_kinds() for short in kind.short_names]

    assert len(names) == len(set(names))


def test_external_secrets_can_be_selected_by_store_and_target() -> None:
    kind = by_name("externalsecrets.external-secrets.io")

    # refreshInterval cannot be selected: the API server selects strings, booleans and integers, and it is "either".
    assert version_of(kind)["selectableFields"] == [
        {"jsonPath": ".spec.secretStoreRef.name"},
        {"jsonPath": ".spec.secretStoreRef.kind"},
        {"jsonPath": ".spec.target.name"},
    ]
    assert "selectableFields" not in version_of(kind, 1)


@pytest.mark.parametrize(
    ("api_version", "names"),
    [
        pytest.param(
            "external-secrets.io/v1",
            {"ExternalSecret", "ClusterExternalSecret", "SecretStore", "ClusterSecretStore"},
            id="core v1",
        ),
        pytest.param(
            "external-secrets.io/v1beta1",
            {"ExternalSecret", "ClusterExternalSecret", "SecretStore", "ClusterSecretStore"},
            id="R35 core v1beta1",
        ),
        pytest.param(
            "external-secrets.io/v1alpha1",
            {"PushSecret", "ClusterPushSecret", "Provider", "ClusterProvider", "ProviderClass", "ClusterProviderClass"},
            id="R178 R180 R181 core v1alpha1",
        ),
        pytest.param(
            "secretstore.external-secrets.io/v2alpha1",
            {"SecretStore", "ClusterSecretStore"},
            id="R66 R67 R178 v2 stores",
        ),
        pytest.param(
            "generator.external-secrets.io/v2alpha1", {"Generator", "ClusterGenerator"}, id="R68 R69 v2 generators"
        ),
        pytest.param(
            "generators.external-secrets.io/v1alpha1", {*GENERATOR_NAMES, "GeneratorState"}, id="R18-R20 generators"
        ),
        pytest.param(
            "provider.secretstore.external-secrets.io/v2alpha1",
            {
                "Fake",
                "ClusterFake",
                "AWSSecretManager",
                "Akeyless",
                "ClusterAkeyless",
                "Doppler",
                "ClusterDoppler",
                "GCPSecretManager",
                "ClusterGCPSecretManager",
                "OnePassword",
                "ClusterOnePassword",
                "OnePasswordSDK",
                "ClusterOnePasswordSDK",
                "GitHub",
                "ClusterGitHub",
                "GitLab",
                "ClusterGitLab",
                "Infisical",
                "ClusterInfisical",
                "BitwardenSecretsManager",
                "ClusterBitwardenSecretsManager",
                "Vault",
                "ClusterVault",
                "OpenBao",
                "ClusterOpenBao",
                "Kubernetes",
                "ClusterKubernetes",
                "CustomResource",
                "ClusterCustomResource",
                "Webhook",
                "ClusterWebhook",
            },
            id="R87 R88 R177 owned by store providers",
        ),
        pytest.param(
            "provider.generator.external-secrets.io/v2alpha1",
            {
                "Password",
                "UUID",
                "SSHKey",
                "MFA",
                "Fake",
                "Webhook",
                "VaultDynamicSecret",
                "ECRAuthorizationToken",
                "GCRAccessToken",
                "GithubAccessToken",
                "GitlabDeployToken",
                "STSSessionToken",
                "ACRAccessToken",
                "QuayAccessToken",
                "CloudsmithAccessToken",
                "Grafana",
                "BeyondtrustWorkloadCredentialsDynamicSecret",
            },
            id="R92 R177 owned by generator providers",
        ),
        pytest.param(
            "azure.provider.external-secrets.io/v2alpha1",
            {"KeyVault", "ClusterKeyVault"},
            id="of Azure, named directly",
        ),
        pytest.param(
            "aws.provider.external-secrets.io/v2alpha1",
            {
                "SecretsManager",
                "ClusterSecretsManager",
                "ParameterStore",
                "ClusterParameterStore",
                "CertificateManager",
                "ClusterCertificateManager",
            },
            id="R177 R178 R184 R185 named directly",
        ),
    ],
)
def test_every_group_serves_its_kinds(api_version: str, names: set[str]) -> None:
    served = {
        kind.name
        for kind in installed_kinds()
        for version in kind.versions
        if kind.resource(version).api_version == api_version
    }

    assert served == names


def test_cluster_kinds_are_cluster_scoped_and_the_others_are_not() -> None:
    clusterwide = {kind.crd_name for kind in installed_kinds() if crd_of(kind)["spec"]["scope"] == "Cluster"}

    assert clusterwide == {kind.crd_name for kind in installed_kinds() if kind.name.startswith("Cluster")}


def test_there_are_seventeen_generators() -> None:
    assert len(GENERATOR_KINDS) == 17


def test_each_kind_belongs_to_the_core_or_to_one_provider() -> None:
    by_provider = provider_kinds()

    assert {"vault", "aws", "generators"} <= set(by_provider)
    assert sorted(kind.crd_name for kind in by_provider["vault"]) == [
        "clusteropenbaos.provider.secretstore.external-secrets.io",
        "clustervaults.provider.secretstore.external-secrets.io",
        "openbaos.provider.secretstore.external-secrets.io",
        "vaultdynamicsecrets.provider.generator.external-secrets.io",
        "vaults.provider.secretstore.external-secrets.io",
    ]
    parts = [*KINDS, *(kind for kinds in by_provider.values() for kind in kinds)]
    assert sorted(kind.crd_name for kind in parts) == [kind.crd_name for kind in installed_kinds()]


def test_the_core_has_every_kind_of_the_operator_in_go_and_eight_of_its_own() -> None:
    of_go = [kind for kind in KINDS if kind.group in {"external-secrets.io", "generators.external-secrets.io"}]

    assert len([kind for kind in of_go if kind not in V2_KINDS]) == 25
    assert len(KINDS) == 33


def test_the_core_lists_no_kind_of_a_provider() -> None:
    assert {kind.type.__module__.split(".")[0] for kind in KINDS} == {"eso_api"}


def test_two_distributions_with_the_same_crd_are_refused() -> None:
    kind = by_name("passwords.generators.external-secrets.io")
    twin = type(kind)(kind.type, group=kind.group, plural=kind.plural, versions=kind.versions)

    with pytest.raises(KindClashError, match="passwords"):
        kinds_by_name({}, [kind, twin])


def test_an_unknown_version_of_a_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="has no version v7"):
        by_name("externalsecrets.external-secrets.io").resource("v7")
