"""Access to a store: controller class, conditions of cluster-scoped stores, classes, and the namespace rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.discovery import class_connection
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import (
    CLUSTER_CLASS,
    VALIDATION,
    Gate,
    Need,
    Reason,
    ResolutionError,
    ResolvedStore,
    SecretTls,
)
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    namespace_object,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import KindId, KindRole, ObjectRef, Operation
from kubebase.meta import JsonObject

GENERATORS_V2 = "generator.external-secrets.io/v2alpha1"
STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
CORE_V1 = "external-secrets.io/v1"
CORE_ALPHA = "external-secrets.io/v1alpha1"
CONFIGS = "provider.secretstore.external-secrets.io/v2alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
ADDRESS = f"provider-fake.{CORE}.svc:8080"
SERVICE = provider_service("provider-fake", CORE, kinds=str(FAKE), v1_keys="fake")
PASSWORD = KindId("provider.generator.external-secrets.io", "v2alpha1", "Password")
FAKES, PASSWORDS = serving(FAKE, v1_key="fake"), serving(PASSWORD, role=KindRole.GENERATOR)
HANDSHAKES = EveryConnection(replace(FAKES, kinds=FAKES.kinds + PASSWORDS.kinds))


def resolved(
    ref: StoreRef | GeneratorRef, *documents: JsonObject, by: ObjectRef | None = None, need: Need = ANYTHING
) -> ResolvedStore:
    view = cluster(SERVICE, *documents, handshakes=HANDSHAKES)
    return resolve(ref, by or caller(), need=need, view=view, settings=SETTINGS)


def refused(
    ref: StoreRef, *documents: JsonObject, by: ObjectRef | None = None, need: Need = ANYTHING
) -> ResolutionError:
    with pytest.raises(ResolutionError) as raised:
        resolved(ref, *documents, by=by, need=need)
    return raised.value


def cluster_store(**spec: object) -> JsonObject:
    return obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": {"fake": {}}, **spec}, status=ready())


CLUSTER_STORE = StoreRef(kind="ClusterSecretStore", name="store")
TEAM = namespace_object("team-a", team="blue")


@pytest.mark.parametrize("said", ["", "default"])
def test_a_store_of_our_class_or_of_none_is_ours(said: str) -> None:
    assert resolved(CLUSTER_STORE, cluster_store(controller=said)).store.name == "store"


@pytest.mark.parametrize(
    ("ref", "document"),
    [
        pytest.param(CLUSTER_STORE, cluster_store(controller="other"), id="v1 store"),
        pytest.param(
            StoreRef(api_version=STORES_V2, kind="SecretStore", name="store"),
            obj(STORES_V2, "SecretStore", "store", "team-a", spec={"controller": "other", "providerConfig": {}}),
            id="v2 store",
        ),
        pytest.param(
            StoreRef(api_version=CONFIGS, kind="Fake", name="store"),
            obj(CONFIGS, "Fake", "store", "team-a", spec={"common": {"controller": "other"}}),
            id="direct reference",
        ),
    ],
)
def test_a_store_of_another_controller_class_is_not_ours(ref: StoreRef, document: JsonObject) -> None:
    """R79."""
    error = refused(ref, document)

    assert error.reason is Reason.UNMANAGED
    assert '"other"' in error.message


CONDITIONS = [
    pytest.param([], True, id="no conditions allow every namespace"),
    pytest.param([{}], False, id="an empty condition matches nothing"),
    pytest.param([{"namespaceSelector": {}}], True, id="an empty selector matches everything"),
    pytest.param([{"namespaceSelector": {"matchLabels": {"team": "blue"}}}], True, id="label"),
    pytest.param([{"namespaceSelector": {"matchLabels": {"team": "red"}}}], False, id="another label"),
    pytest.param(
        [{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}], True, id="expression"
    ),
    pytest.param([{"namespaces": ["team-a"]}], True, id="name"),
    pytest.param([{"namespaces": ["team"]}], False, id="a name is matched as a whole"),
    pytest.param([{"namespaceRegexes": ["eam"]}], True, id="an expression matches anywhere in the name"),
    pytest.param([{"namespaceRegexes": ["^eam"]}], False, id="unless it is anchored"),
    pytest.param([{"namespaceRegexes": ["^team-[a-c]$"]}], True, id="anchored expression"),
    pytest.param([{"namespaces": ["other"]}, {"namespaceRegexes": ["^team-"]}], True, id="one condition is enough"),
    pytest.param(
        [{"namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "blue"}}}],
        True,
        id="one part of a condition is enough",
    ),
    pytest.param([{"namespaces": ["other"]}, {}], False, id="an empty one does not widen the others"),
]


@pytest.mark.parametrize(("conditions", "allowed"), CONDITIONS)
def test_conditions_of_a_cluster_scoped_store(conditions: list[JsonObject], allowed: bool) -> None:
    """R90, R93, R132, R181; the same rule in every form that has conditions."""
    config = {"address": ADDRESS, "inline": {"kind": "Fake", "spec": {}}}
    maker = {"address": ADDRESS, "inline": {"kind": "Password", "spec": {}}}
    scoped = {"conditions": conditions, "authenticationScope": "ManifestNamespace"}
    forms: dict[str, tuple[StoreRef | GeneratorRef, JsonObject]] = {
        "v1": (CLUSTER_STORE, cluster_store(conditions=conditions)),
        "v2": (
            StoreRef(api_version=STORES_V2, kind="ClusterSecretStore", name="store"),
            obj(STORES_V2, "ClusterSecretStore", "store", spec={"providerConfig": config, **scoped}),
        ),
        "provider": (
            StoreRef(kind="ClusterProvider", name="store"),
            obj(CORE_ALPHA, "ClusterProvider", "store", spec={"config": config, **scoped}),
        ),
        "direct": (
            StoreRef(api_version=CONFIGS, kind="ClusterFake", name="store"),
            obj(CONFIGS, "ClusterFake", "store", spec={"common": {"conditions": conditions}}),
        ),
        "generator": (
            GeneratorRef(api_version=GENERATORS_V2, kind="ClusterGenerator", name="store"),
            obj(GENERATORS_V2, "ClusterGenerator", "store", spec={"providerConfig": maker, **scoped}),
        ),
    }

    for form, (ref, document) in forms.items():
        try:
            resolved(ref, document, TEAM)
            outcome: Reason | None = None
        except ResolutionError as error:
            outcome = error.reason
        assert outcome == (None if allowed else Reason.NAMESPACE_DENIED), form


@pytest.mark.parametrize(("conditions", "allowed"), CONDITIONS)
def test_allowed_namespaces_of_a_class(conditions: list[JsonObject], allowed: bool) -> None:
    """By classRef, by address, by discovery, and by a class in the own namespace: the class cannot be bypassed."""
    serves = {"serves": [{"group": FAKE.group, "version": FAKE.version, "kind": FAKE.kind}]}
    spec = {"address": ADDRESS, "allowedNamespaces": conditions, **serves}
    cls = obj(CORE_ALPHA, "ClusterProviderClass", "fake", spec=spec)
    own = obj(CORE_ALPHA, "ProviderClass", "own", "team-a", spec={"address": ADDRESS, **serves})
    inline = {"inline": {"kind": "Fake", "spec": {}}}
    ways: dict[str, tuple[JsonObject, list[JsonObject]]] = {
        "class": ({"classRef": {"name": "fake"}}, []),
        "address": ({"address": ADDRESS}, []),
        "found": ({}, []),
        "own class": ({"classRef": {"name": "own", "kind": "ProviderClass"}}, [own]),
        "own class found": ({}, [own]),
    }

    for way, (where, further) in ways.items():
        store = obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": {**where, **inline}})
        ref = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")
        try:
            resolved(ref, store, cls, TEAM, *further)
            outcome: Reason | None = None
        except ResolutionError as error:
            outcome = error.reason
        assert outcome == (None if allowed else Reason.NAMESPACE_DENIED), way


def test_a_class_that_cannot_be_used_still_says_who_may_use_its_provider() -> None:
    spec = {"address": ADDRESS, "allowedNamespaces": [{"namespaces": ["other"]}], "tls": {"mode": "SecretRef"}}
    cls = obj(CORE_ALPHA, "ClusterProviderClass", "fake", spec=spec)
    config = {"address": ADDRESS, "inline": {"kind": "Fake", "spec": {}}}
    store = obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": config})

    error = refused(StoreRef(api_version=STORES_V2, kind="SecretStore", name="store"), store, cls, TEAM)

    assert error.reason is Reason.NAMESPACE_DENIED


def test_conditions_of_a_namespaced_v1_store_are_ignored() -> None:
    store = obj(
        CORE_V1,
        "SecretStore",
        "store",
        "team-a",
        spec={"provider": {"fake": {}}, "conditions": [{"namespaces": ["other"]}]},
        status=ready(),
    )

    assert resolved(StoreRef(name="store"), store).auth_namespace == "team-a"


def test_an_unknown_namespace_is_denied_until_it_is_known() -> None:
    error = refused(CLUSTER_STORE, cluster_store(conditions=[{"namespaces": ["team-a"]}]))

    assert error.reason is Reason.NAMESPACE_DENIED
    assert error.retry == "BACKOFF"


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param({"namespaceRegexes": ["("]}, id="expression"),
        pytest.param({"namespaceRegexes": ["(?=x)"]}, id="no RE2"),
        pytest.param({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, id="selector"),
    ],
)
def test_a_broken_condition_is_named_even_when_another_one_matches(condition: JsonObject) -> None:
    error = refused(CLUSTER_STORE, cluster_store(conditions=[{"namespaces": ["team-a"]}, condition]), TEAM)

    assert error.reason is Reason.MALFORMED


@pytest.mark.parametrize("condition", [{"namespaceRegexes": ["("]}, {"namespaceRegexes": ["(?=x)"]}], ids=str)
def test_a_broken_condition_is_named_on_the_store_and_on_the_class_itself(condition: JsonObject) -> None:
    """R111: the author must see it, not only the rejected users."""
    no_caller = replace(caller(), namespace="")
    spec = {"address": ADDRESS, "allowedNamespaces": [condition]}
    cls = obj(CORE_ALPHA, "ClusterProviderClass", "fake", spec=spec)

    error = refused(CLUSTER_STORE, cluster_store(conditions=[condition]), by=no_caller, need=VALIDATION)
    with pytest.raises(ResolutionError) as raised:
        class_connection(CLUSTER_CLASS, cls, settings=SETTINGS, view=cluster())

    assert error.reason is Reason.MALFORMED
    assert raised.value.reason is Reason.MALFORMED


def test_conditions_that_read_do_not_keep_a_cluster_store_from_being_validated() -> None:
    no_caller, nowhere = replace(caller(), namespace=""), cluster_store(conditions=[{"namespaces": ["other"]}, {}])

    assert resolved(CLUSTER_STORE, nowhere, by=no_caller, need=VALIDATION).store.name == "store"


def test_only_a_validation_comes_without_a_namespace() -> None:
    no_caller = replace(caller(), namespace="")

    assert refused(CLUSTER_STORE, cluster_store(), by=no_caller).reason is Reason.NAMESPACE_DENIED
    assert resolved(CLUSTER_STORE, cluster_store(), by=no_caller, need=VALIDATION).auth_namespace == ""


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        pytest.param(Need(frozenset({Operation.GET})), Reason.BEING_DELETED, id="reads"),
        pytest.param(Need(frozenset({Operation.PUSH}), Gate.POLICY), Reason.BEING_DELETED, id="pushes"),
        pytest.param(Need(frozenset({Operation.DELETE}), Gate.POLICY), None, id="but what was pushed can be removed"),
        pytest.param(VALIDATION, None, id="and it is still validated"),
    ],
)
def test_a_v2_store_that_is_being_deleted_serves_nothing_new(need: Need, reason: Reason | None) -> None:
    spec = {"providerConfig": {"address": ADDRESS, "inline": {"kind": "Fake", "spec": {}}}}
    store = obj(STORES_V2, "SecretStore", "store", "team-a", spec=spec, deletionTimestamp="2030-01-01T00:00:00Z")
    ref = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")

    if reason is None:
        assert resolved(ref, store, need=need).store.name == "store"
    else:
        assert refused(ref, store, need=need).reason is reason


def test_a_store_of_another_namespace_cannot_even_be_named() -> None:
    """R114, R130: a reference has no namespace, so the lookup stays in the caller's."""
    elsewhere = obj(CORE_V1, "SecretStore", "store", "team-b", spec={"provider": {"fake": {}}}, status=ready())

    assert refused(StoreRef(name="store"), elsewhere).reason is Reason.NOT_FOUND


PROVIDER_REF = {"kind": "Fake", "name": "config"}
OTHER = {**PROVIDER_REF, "namespace": "team-b"}
CONFIG_OBJECTS = [obj(CONFIGS, "Fake", "config", namespace, spec={}) for namespace in ("team-a", "team-b")]


def v2(kind: str, namespace: str, config: JsonObject, **spec: object) -> tuple[StoreRef, JsonObject]:
    document = obj(STORES_V2, kind, "store", namespace, spec={"providerConfig": {"address": ADDRESS, **config}, **spec})
    return StoreRef(api_version=STORES_V2, kind=kind, name="store"), document


def provider(kind: str, namespace: str, config: JsonObject, **spec: object) -> tuple[StoreRef, JsonObject]:
    document = obj(CORE_ALPHA, kind, "store", namespace, spec={"address": ADDRESS, **config, **spec})
    return StoreRef(kind=kind, name="store"), document


def plugin(kind: str, namespace: str, config: JsonObject) -> tuple[StoreRef, JsonObject]:
    block = {"provider": {"plugin": {"address": ADDRESS, **config}}}
    return StoreRef(kind=kind, name="store"), obj(CORE_V1, kind, "store", namespace, spec=block, status=ready())


CERTIFICATE = {"clientCertificate": {"secretRef": {"name": "tls", "namespace": "team-b"}}}
ACCOUNT = {"serviceAccountRef": {"name": "caller", "namespace": "team-b"}}


@pytest.mark.parametrize(
    ("made", "reason", "says"),
    [
        pytest.param(
            v2("SecretStore", "team-a", {"providerRef": OTHER}), Reason.CROSS_NAMESPACE, "team-b", id="v2 store"
        ),
        pytest.param(
            provider("Provider", "team-a", {"providerRef": OTHER}), Reason.CROSS_NAMESPACE, "team-b", id="Provider"
        ),
        pytest.param(
            plugin("SecretStore", "team-a", {"providerRef": OTHER}), Reason.CROSS_NAMESPACE, "team-b", id="v1 plugin"
        ),
        pytest.param(
            v2("SecretStore", "team-a", {"providerRef": PROVIDER_REF, "auth": CERTIFICATE}),
            Reason.CROSS_NAMESPACE,
            "clientCertificate",
            id="client certificate",
        ),
        pytest.param(
            v2("SecretStore", "team-a", {"providerRef": PROVIDER_REF, "auth": ACCOUNT}),
            Reason.CROSS_NAMESPACE,
            "serviceAccountRef",
            id="service account of the channel",
        ),
        pytest.param(
            v2("ClusterSecretStore", "", {"providerRef": PROVIDER_REF}),
            Reason.CONFIG_NAMESPACE_REQUIRED,
            "needs a namespace",
            id="ProviderNamespace without a namespace",
        ),
        pytest.param(
            provider("ClusterProvider", "", {"providerRef": PROVIDER_REF}),
            Reason.CONFIG_NAMESPACE_REQUIRED,
            "needs a namespace",
            id="ClusterProvider, ProviderNamespace without a namespace",
        ),
        pytest.param(
            v2("ClusterSecretStore", "", {"inline": {"kind": "Fake", "spec": {}}}),
            Reason.CONFIG_NAMESPACE_REQUIRED,
            "inline",
            id="ProviderNamespace with an inline configuration",
        ),
        pytest.param(
            v2("ClusterSecretStore", "", {"providerRef": OTHER}, authenticationScope="Elsewhere"),
            Reason.MALFORMED,
            "authenticationScope",
            id="unknown scope",
        ),
    ],
)
def test_every_violation_of_a_namespace_rule_has_its_reason(
    made: tuple[StoreRef, JsonObject], reason: Reason, says: str
) -> None:
    """R114, R115, R130."""
    ref, document = made

    error = refused(ref, document, *CONFIG_OBJECTS)

    assert error.reason is reason
    assert says in error.message


def test_a_cluster_scoped_store_may_name_its_namespaces() -> None:
    """R131: each for itself."""
    auth = {
        "clientCertificate": {"secretRef": {"name": "tls", "namespace": "team-c"}},
        "serviceAccountRef": {"name": "caller", "namespace": "team-d"},
    }
    ref, document = v2("ClusterSecretStore", "", {"providerRef": OTHER, "auth": auth})

    target = resolved(ref, document, *CONFIG_OBJECTS)

    assert target.config.ref.namespace == target.auth_namespace == "team-b"
    assert target.tls == SecretTls("team-c", "tls")
    assert target.call_token is not None
    assert target.call_token.namespace == "team-d"


@pytest.mark.parametrize(
    ("kind", "namespace", "common", "expected"),
    [
        pytest.param("ClusterFake", "", {"gatingPolicy": "Disabled"}, (CORE, True), id="it says none"),
        pytest.param(
            "ClusterFake", "", {"authenticationScope": "ManifestNamespace"}, ("team-a", False), id="its own word counts"
        ),
        pytest.param("Fake", "team-a", {}, ("team-a", False), id="a namespaced one has its own namespace only"),
    ],
)
def test_a_direct_reference_takes_its_scope_from_the_class_when_it_says_none(
    kind: str, namespace: str, common: JsonObject, expected: tuple[str, bool]
) -> None:
    """R186."""
    cls = obj(
        CORE_ALPHA,
        "ClusterProviderClass",
        "fake",
        spec={
            "address": ADDRESS,
            "authenticationScope": "ProviderNamespace",
            "serves": [{"group": FAKE.group, "version": FAKE.version, "kind": FAKE.kind}],
        },
    )
    direct = obj(CONFIGS, kind, "store", namespace, spec={"common": common})

    target = resolved(StoreRef(api_version=CONFIGS, kind=kind, name="store"), direct, cls)

    assert (target.auth_namespace, target.pinned) == expected


@pytest.mark.parametrize("kind", ["providerRef", "serviceAccountRef"])
async def test_a_store_whose_namespace_is_its_users_is_known_before_it_is_used(kind: str) -> None:
    """Its provider, operations and class are found without a user; only reading says that a user is missing."""
    config: JsonObject = {"providerRef": OTHER if kind != "providerRef" else PROVIDER_REF}
    if kind == "serviceAccountRef":
        config["auth"] = {"serviceAccountRef": {"name": "caller"}}
    ref, document = v2("ClusterSecretStore", "", config, authenticationScope="ManifestNamespace")

    target = resolved(ref, document, *CONFIG_OBJECTS, by=replace(caller(), namespace=""), need=VALIDATION)

    assert Operation.GET in target.operations
    with pytest.raises(ResolutionError) as raised:
        await bind(target, NotedReads())
    assert raised.value.reason is Reason.REFERENT_AUTH
