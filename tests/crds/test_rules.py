"""The objects that the API server rejects, with its messages: schemas and rules of our CRDs on a running server."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.externalsecret import MAX_DATA
from eso_api.kinds import AnyKind, installed_kinds
from kuberun.testing.rawapi import RawApi

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("our_crds")]

BY_NAME: dict[str, AnyKind] = {kind.crd_name: kind for kind in installed_kinds()}
CORE = "external-secrets.io"
GENERATORS = "generators.external-secrets.io"
ACCEPTED = ""
NO_DURATION = "spec.refreshInterval in body should match '^[-+]?(0|("
NO_POSITIVE_DURATION = "spec.refreshInterval in body should match '^[+]?(0|("
NO_STORE = 'kind: Unsupported value: "{}": supported values: "SecretStore", "ClusterSecretStore", "Provider"'

NO_PART = "templateFrom[0].target in body should match '(?i)^(|data|annotations|labels)$'"
NO_GENERATOR = 'spec.dataFrom[0].sourceRef.generatorRef.kind: Unsupported value: "Odd": supported values: "ACRAccess'

DATA = [{"secretKey": "password", "remoteRef": {"key": "app"}}]
GENERATOR = {"generatorRef": {"kind": "Password", "name": "p"}}
TOKEN_TYPE = "kubernetes.io/service-account-token"
REF = {"providerRef": {"kind": "Fake", "name": "f"}}


async def create(api: RawApi, crd: str, spec: dict[str, Any], *, namespace: str, version: str = "") -> str:
    """Create an object as a dry run; return the error, empty if the server would store it."""
    kind = BY_NAME[crd]
    resource = kind.resource(version)
    body = {"apiVersion": resource.api_version, "kind": kind.name, "metadata": {"name": "probe"}, "spec": spec}
    reply = await api.post(f"{resource.path(namespace)}?dryRun=All", body)
    assert reply.status in (201, 422), reply.body
    return "" if reply.status == 201 else f"{reply.reason}: {reply.message}"


def keys(count: int, *, length: int = 8) -> list[dict[str, Any]]:
    return [{"secretKey": str(number).rjust(length, "k"), "remoteRef": {"key": "app"}} for number in range(count)]


def target(**fields: Any) -> dict[str, Any]:
    return {"data": DATA, "target": fields}


def template_from(where: str, **template: Any) -> dict[str, Any]:
    return {"templateFrom": [{"literal": "a: b", "target": where}], **template}


EXTERNAL_SECRETS = [
    pytest.param({"data": DATA}, ACCEPTED, id="a plain object"),
    pytest.param({"refreshInterval": 0, "data": DATA}, ACCEPTED, id="R23 integer zero"),
    pytest.param({"refreshInterval": "0", "data": DATA}, ACCEPTED, id="R23 zero as text"),
    pytest.param({"refreshInterval": "1h30m", "data": DATA}, ACCEPTED, id="a Go duration"),
    pytest.param({"refreshInterval": "1d", "data": DATA}, NO_DURATION, id="no days in Go durations"),
    pytest.param({"refreshInterval": "60", "data": DATA}, NO_DURATION, id="no text without a unit"),
    pytest.param({"refreshInterval": "-5m", "data": DATA}, ACCEPTED, id="less than zero means once, as in Go"),
    pytest.param({"refreshInterval": True, "data": DATA}, "spec.refreshInterval", id="not a boolean"),
    pytest.param({"refreshPolicy": "Sometimes", "data": DATA}, "Unsupported value", id="unknown refresh policy"),
    pytest.param({"refreshTrigger": "Push", "data": DATA}, "Unsupported value", id="unknown refresh trigger"),
    pytest.param(target(deletionPolicy="Delete", creationPolicy="Merge"), "creationPolicy Merge", id="R42"),
    pytest.param(target(deletionPolicy="Delete", creationPolicy="None"), "creationPolicy None", id="R43"),
    pytest.param(target(deletionPolicy="Merge", creationPolicy="None"), "creationPolicy None", id="R44"),
    pytest.param(
        target(deletionPolicy="Delete", creationPolicy="CreateOrMerge"), "CreateOrMerge", id="delete, create-or-merge"
    ),
    pytest.param(target(deletionPolicy="Delete"), ACCEPTED, id="delete with the default owner"),
    pytest.param(target(deletionPolicy="Delete", creationPolicy="Orphan"), ACCEPTED, id="delete with orphan"),
    pytest.param(target(deletionPolicy="Merge", creationPolicy="Merge"), ACCEPTED, id="merge with merge"),
    pytest.param(target(creationPolicy="None"), ACCEPTED, id="none with the default retain"),
    pytest.param({"secretStoreRef": {"kind": "Provider", "name": "p"}}, ACCEPTED, id="R180 fetches nothing"),
    pytest.param({"secretStoreRef": {"kind": "ClusterProvider", "name": "p"}}, ACCEPTED, id="R181"),
    pytest.param(
        {"secretStoreRef": {"apiVersion": "aws.provider.external-secrets.io/v2alpha1", "kind": "SecretsManager",
                            "name": "team-blue-eu-west-2"}},
        ACCEPTED,
        id="R184",
    ),
    pytest.param(
        {"secretStoreRef": {"kind": "SecretsManager", "name": "s"}},
        NO_STORE.format("SecretsManager"),
        id="other kind by name alone",
    ),
    pytest.param(
        {"secretStoreRef": {"apiVersion": "secretstore.external-secrets.io/v2alpha1", "name": "s"}, "data": DATA},
        ACCEPTED,
        id="R95",
    ),
    pytest.param(
        {"dataFrom": [{"sourceRef": {"storeRef": {"kind": "Odd"}}, "extract": {"key": "a"}}]},
        f"spec.dataFrom[0].sourceRef.storeRef.{NO_STORE.format('Odd')}",
        id="other kind in one entry",
    ),
    pytest.param({"dataFrom": [{"sourceRef": GENERATOR}]}, ACCEPTED, id="R21"),
    pytest.param(
        {"dataFrom": [{"sourceRef": {"generatorRef": {"kind": "Odd", "name": "g"}}}]}, NO_GENERATOR, id="odd"
    ),
    pytest.param(
        {"dataFrom": [{"sourceRef": {"generatorRef": {"apiVersion": "generators.external-secrets.io/v1alpha1",
                                                      "kind": "Odd", "name": "g"}}}]},
        NO_GENERATOR,
        id="odd with the apiVersion of our generators",
    ),
    pytest.param(
        {"dataFrom": [{"sourceRef": {"generatorRef": {"apiVersion": "generator.external-secrets.io/v2alpha1",
                                                      "kind": "Generator", "name": "g"}}}]},
        ACCEPTED,
        id="R92 v2 generator",
    ),
    pytest.param({"dataFrom": [{}]}, "one of extract, find", id="an entry without source"),
    pytest.param({"dataFrom": [{"extract": {"key": "a"}, "find": {}}]}, "only one of extract, find", id="two sources"),
    pytest.param(
        {"dataFrom": [{"extract": {"key": "a"}, "sourceRef": GENERATOR}]}, "only one of extract", id="and a generator"
    ),
    pytest.param({"dataFrom": [{"sourceRef": {}}]}, "spec.dataFrom[0].sourceRef", id="an empty source"),
    pytest.param({"dataFrom": [{"extract": {"key": "a"}, "rewrite": [{}]}]}, "rewrite[0]", id="an empty rewrite"),
    pytest.param({"data": DATA * 2}, ACCEPTED, id="the same key twice, which the operator refuses"),
    pytest.param({"data": DATA * 2, "target": {"deletionPolicy": "Merge"}}, ACCEPTED, id="the same key with merge"),
    pytest.param({"data": keys(3000, length=253)}, ACCEPTED, id="thousands of long keys"),
    pytest.param({"data": keys(MAX_DATA + 1)}, "spec.data", id="too many keys"),
    pytest.param({"data": [{"secretKey": "a b", "remoteRef": {"key": "a"}}]}, "spec.data[0].secretKey", id="a bad key"),
    pytest.param({"data": [{"secretKey": "a"}]}, "remoteRef", id="no remote reference"),
    pytest.param(target(template={"type": "bootstrap.kubernetes.io/token"}), "is not allowed", id="bootstrap token"),
    pytest.param(
        target(template={"type": TOKEN_TYPE,
                         "metadata": {"annotations": {"kubernetes.io/service-account.name": "admin"}}}),
        "may not set the annotation",
        id="token of a chosen service account",
    ),
    pytest.param(
        target(template=template_from("ANNOTATIONS", type=TOKEN_TYPE)), "may not take annotations", id="token"
    ),
    pytest.param(target(template=template_from("data", type=TOKEN_TYPE)), ACCEPTED, id="token with templated data"),
    pytest.param(target(template=template_from("labels")), ACCEPTED, id="labels, any case"),
    pytest.param(target(template=template_from("")), ACCEPTED, id="an empty target"),
    pytest.param(target(template=template_from("metadata.ownerReferences")), NO_PART, id="a path into a Secret"),
    pytest.param(
        target(template=template_from("spec.a"), manifest={"apiVersion": "v1", "kind": "ConfigMap"}),
        ACCEPTED,
        id="a path into another kind",
    ),
    pytest.param(
        target(template=template_from("type"), manifest={"apiVersion": "v1", "kind": "Secret"}),
        NO_PART,
        id="a Secret spelled as manifest",
    ),
    pytest.param(target(template={"engineVersion": "v1"}), "Unsupported value", id="template engine v1"),
    pytest.param(
        {"data": DATA, "syncWindows": {"kind": "allow", "windows": [{"schedule": "* * * *", "duration": "1h"}]}},
        "schedule",
        id="four cron fields",
    ),
]  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(("spec", "refusal"), EXTERNAL_SECRETS)
async def test_external_secret(api: RawApi, namespace: str, spec: dict[str, Any], refusal: str, version: str) -> None:
    answer = await create(api, f"externalsecrets.{CORE}", spec, namespace=namespace, version=version)

    assert_answer(answer, refusal)


async def test_the_rules_hold_inside_a_cluster_external_secret(api: RawApi) -> None:
    spec = {"externalSecretSpec": target(deletionPolicy="Delete", creationPolicy="None")}

    assert "creationPolicy None" in await create(api, f"clusterexternalsecrets.{CORE}", spec, namespace="")


def push(**fields: Any) -> dict[str, Any]:
    return {"secretStoreRefs": [{"name": "store"}], "selector": {"secret": {"name": "source"}}, **fields}


REWRITE = {"regexp": {"source": "a", "target": "b"}}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        pytest.param(push(), ACCEPTED, id="a plain object"),
        pytest.param(push(updatePolicy="Replace"), ACCEPTED, id="R1 replace"),
        pytest.param(push(updatePolicy="IfNotExists"), ACCEPTED, id="R1 if not exists"),
        pytest.param(push(updatePolicy="Merge"), "Unsupported value", id="R11 merge is for later"),
        pytest.param(push(selector={}), "spec.selector", id="no source"),
        pytest.param(push(selector={"secret": {"name": "s"}, **GENERATOR}), "spec.selector", id="two sources"),
        pytest.param(push(secretStoreRefs=[{"kind": "Odd", "name": "s"}]), NO_STORE.format("Odd"), id="an odd store"),
        pytest.param(
            push(secretStoreRefs=[{"apiVersion": "a.b/v1", "kind": "Odd", "name": "s"}]), ACCEPTED, id="R95 R191"
        ),
        pytest.param(push(dataTo=[{}]), "name or a labelSelector", id="dataTo without store"),
        pytest.param(push(dataTo=[{"storeRef": {"kind": "SecretStore"}}]), "name or a labelSelector", id="kind alone"),
        pytest.param(
            push(dataTo=[{"storeRef": {"name": "store"}, "remoteKey": "all", "rewrite": [REWRITE]}]),
            "exclude each other",
            id="one remote secret and a rewrite",
        ),
        pytest.param(
            push(dataTo=[{"storeRef": {"name": "store"}, "remoteKey": "all", "rewrite": []}]),
            ACCEPTED,
            id="one remote secret and no rewrite",
        ),
        pytest.param(
            push(dataTo=[{"storeRef": {"name": "store"}, "rewrite": [{}]}]), "exactly one of regexp", id="empty rewrite"
        ),
        pytest.param(push(data=[{"match": {"secretKey": "a"}}]), "remoteRef", id="no destination"),
    ],
)
async def test_push_secret(api: RawApi, namespace: str, spec: dict[str, Any], refusal: str) -> None:
    answer = await create(api, f"pushsecrets.{CORE}", spec, namespace=namespace)

    assert_answer(answer, refusal)


FAKE: dict[str, Any] = {"provider": {"fake": {"data": []}}}
AWS = {"service": "SecretsManager", "region": "eu"}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        pytest.param({"provider": {"fake": {"data": []}}}, ACCEPTED, id="fake"),
        pytest.param({"provider": {}}, "spec.provider", id="no provider"),
        pytest.param({"provider": {"fake": {"data": []}, "aws": AWS}}, "spec.provider", id="two providers"),
        pytest.param({"provider": {"aws": {"region": "eu"}}}, "service", id="aws without service"),
        pytest.param({"provider": {"aws": {**AWS, "customSessionTags": {"team": "b"}}}}, ACCEPTED, id="aws tags"),
        pytest.param(
            {"provider": {"aws": {**AWS, "customSessionTags": {"esoNamespace": "b"}}}},
            "set by the operator",
            id="aws reserved tags",
        ),
        pytest.param(
            {"provider": {"aws": {**AWS, "secretsManager": {"recoveryWindowInDays": 3}}}},
            "between 7 and 30",
            id="aws recovery window",
        ),
        pytest.param({"provider": {"chef": {"any": {"thing": 1}}}}, ACCEPTED, id="a block kept as it is"),
        pytest.param(
            {"provider": {"kubernetes": {"auth": {"serviceAccount": {"name": "a"}}, "authRef": {"name": "k"}}}},
            "at most one of auth, authRef",
            id="kubernetes with two logins",
        ),
        pytest.param({"provider": {"kubernetes": {"auth": {}}}}, "provider.kubernetes.auth", id="kubernetes no login"),
        pytest.param({"provider": {"plugin": {"address": "p:1", **REF}}}, ACCEPTED, id="R165 plugin"),
        pytest.param(
            {"provider": {"plugin": {"address": "p:1"}}}, "exactly one of providerRef", id="plugin, no config"
        ),
        pytest.param({"provider": {"fake": {"data": []}}, "refreshInterval": 60}, ACCEPTED, id="seconds"),
        pytest.param({"provider": {"fake": {"data": []}}, "refreshInterval": "5m"}, ACCEPTED, id="a duration"),
        pytest.param(FAKE | {"refreshInterval": -1}, "should be greater than or equal to 0", id="negative"),
        pytest.param(FAKE | {"refreshInterval": "-5m"}, NO_POSITIVE_DURATION, id="negative text"),
        pytest.param(FAKE | {"refreshInterval": "1d"}, NO_POSITIVE_DURATION, id="no days"),
    ],
)
async def test_secret_store(api: RawApi, namespace: str, spec: dict[str, Any], refusal: str) -> None:
    answers = [
        await create(api, f"secretstores.{CORE}", spec, namespace=namespace, version="v1"),
        await create(api, f"secretstores.{CORE}", spec, namespace=namespace, version="v1beta1"),
        await create(api, f"clustersecretstores.{CORE}", spec, namespace=""),
    ]

    for answer in answers:
        assert_answer(answer, refusal)


SEED_STORE = {
    "refreshInterval": "1m",
    "controller": "dev",
    "gatingPolicy": "Enabled",
    "retrySettings": {"maxRetries": 3, "retryInterval": "10s"},
    "providerConfig": {
        "address": "http+unix:///path/to/aws.sock",
        "auth": {"clientCertificate": {}, "serviceAccountRef": {}},
        "providerRef": {"name": "my-aws-store", "namespace": "default", "kind": "AWSSecretManager"},
    },
}
SEED_CONDITIONS: list[dict[str, Any]] = [{"namespaceSelector": {}, "namespaces": [], "namespaceRegexes": []}]


@pytest.mark.parametrize(
    ("crd", "spec", "refusal"),
    [
        pytest.param("secretstores.secretstore", SEED_STORE, ACCEPTED, id="R77-R87 as the proposal writes it"),
        pytest.param(
            "clustersecretstores.secretstore",
            {**SEED_STORE, "authenticationScope": "ProviderNamespace", "conditions": SEED_CONDITIONS},
            ACCEPTED,
            id="R89-R91 as the proposal writes it",
        ),
        pytest.param(
            "generators.generator", {"gatingPolicy": "Enabled", "providerConfig": REF}, ACCEPTED, id="R92 generator"
        ),
        pytest.param(
            "clustergenerators.generator",
            {"providerConfig": REF, "authenticationNamespace": "ProviderReference", "conditions": SEED_CONDITIONS},
            ACCEPTED,
            id="R93 R94 as the proposal writes it",
        ),
        pytest.param(
            "clustergenerators.generator",
            {"providerConfig": REF, "authenticationNamespace": "ProviderReference",
             "authenticationScope": "ProviderNamespace"},
            "at most one of",
            id="R94 both spellings",
        ),
        pytest.param("secretstores.secretstore", {"providerConfig": {}}, "exactly one of providerRef", id="no config"),
        pytest.param(
            "secretstores.secretstore",
            {"providerConfig": {**REF, "address": "p:1", "classRef": {"name": "c"}}},
            "at most one of address",
            id="R111 address and class",
        ),
        pytest.param(
            "secretstores.secretstore", {"providerConfig": REF, "gatingPolicy": "Maybe"}, "Unsupported value", id="R80"
        ),
        pytest.param(
            "clustersecretstores.secretstore",
            {"providerConfig": REF, "authenticationScope": "Everywhere"},
            "Unsupported value",
            id="R89 unknown scope",
        ),
        pytest.param("secretstores.secretstore", {"provider": {"fake": {}}}, "providerConfig", id="R77 no provider"),
        pytest.param("providers", {"address": "grpc://p:1", **REF}, ACCEPTED, id="R180 R182"),
        pytest.param("providers", {"config": {"address": "grpc://p:1", **REF}}, ACCEPTED, id="R180 earlier spelling"),
        pytest.param("providers", {"address": "grpc://p:1"}, "providerRef", id="R180 without configuration"),
        pytest.param("providers", {"config": REF, **REF}, "providerRef", id="R180 both spellings"),
        pytest.param("providers", {"config": REF, "address": "p:1"}, "below config", id="R180 mixed spellings"),
        pytest.param(
            "clusterproviders",
            {**REF, "authenticationScope": "ManifestNamespace", "conditions": [{"namespaces": ["a"]}]},
            ACCEPTED,
            id="R181 common fields",
        ),
        pytest.param(
            "clusterproviderclasses",
            {"address": "p:1", "serves": [{"group": "g", "version": "v1", "kind": "K"}]},
            ACCEPTED,
            id="class",
        ),
        pytest.param("clusterproviderclasses", {}, "address", id="class without address"),
    ],
)  # fmt: skip
async def test_v2(api: RawApi, namespace: str, crd: str, spec: dict[str, Any], refusal: str) -> None:
    name = f"{crd}.{CORE}"

    answer = await create(api, name, spec, namespace=namespace if BY_NAME[name].namespaced else "")

    assert_answer(answer, refusal)


GITLAB = {"name": "n", "scopes": ["read_registry"], "auth": {"token": {"secretRef": {"name": "g", "key": "t"}}}}


@pytest.mark.parametrize(
    ("plural", "spec", "refusal"),
    [
        pytest.param("passwords", {}, ACCEPTED, id="R18 password by default"),
        pytest.param("passwords", {"secretKeys": []}, "secretKeys", id="R18 no key"),
        pytest.param("passwords", {"encoding": "rot13"}, "Unsupported value", id="R18 odd encoding"),
        pytest.param("uuids", {}, ACCEPTED, id="R19 uuid"),
        pytest.param("ecrauthorizationtokens", {}, "region", id="R20 no region"),
        pytest.param("sshkeys", {"keyType": "rsa", "keySize": 128}, "keySize", id="short key"),
        pytest.param("gitlabdeploytokens", {**GITLAB, "projectID": "1"}, ACCEPTED, id="gitlab project"),
        pytest.param("gitlabdeploytokens", GITLAB, "exactly one of projectID, groupID", id="gitlab neither"),
        pytest.param(
            "gitlabdeploytokens", {**GITLAB, "projectID": "1", "groupID": "2"}, "exactly one of", id="gitlab both"
        ),
        pytest.param("gitlabdeploytokens", {**GITLAB, "projectID": "1", "scopes": []}, "scopes", id="gitlab no scope"),
        pytest.param("grafanas", {"url": "u", "auth": {}}, "serviceAccount", id="grafana without account"),
        pytest.param(
            "clustergenerators",
            {"kind": "Password", "generator": {"passwordSpec": {}}},
            ACCEPTED,
            id="cluster password",
        ),
        pytest.param(
            "clustergenerators",
            {"kind": "Password", "generator": {"uuidSpec": {}}},
            "named by kind",
            id="cluster mismatch",
        ),
        pytest.param(
            "clustergenerators",
            {"kind": "UUID", "generator": {"uuidSpec": {}, "passwordSpec": {}}},
            "spec.generator",
            id="cluster with two specs",
        ),
    ],
)
async def test_generator(api: RawApi, namespace: str, plural: str, spec: dict[str, Any], refusal: str) -> None:
    name = f"{plural}.{GENERATORS}"

    answer = await create(api, name, spec, namespace=namespace if BY_NAME[name].namespaced else "")

    assert_answer(answer, refusal)


def assert_answer(answer: str, refusal: str) -> None:
    if refusal == ACCEPTED:
        assert answer == ""
    else:
        assert answer.startswith("Invalid: ")
        assert refusal in answer
