"""Discovery of a store's provider: classes, labelled Services, bridged v1 keys, names (R176, R187-R190)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from eso_api.references import StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import (
    Connection,
    EndpointSource,
    ManagedTls,
    Reason,
    ResolutionError,
    ResolvedStore,
    ResolverSettings,
    SecretTls,
    ServiceKey,
)
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    TENANTS_TOO,
    EveryConnection,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import Handshake, KindId, Limits
from kubebase.meta import JsonObject

STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
CORE_V1 = "external-secrets.io/v1"
CORE_ALPHA = "external-secrets.io/v1alpha1"
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
OTHER = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Other")
FAKES = serving(FAKE, v1_key="fake")
OTHERS = serving(OTHER, v1_key="other")
DEFAULT = {"external-secrets.io/provider-default": "true"}
SERVES = [{"group": FAKE.group, "version": FAKE.version, "kind": FAKE.kind}]

STORE_REF = StoreRef(api_version=STORES_V2, kind="SecretStore", name="store")
STORE = obj(
    STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": {"inline": {"kind": "Fake", "spec": {}}}}
)
CLUSTER_REF = StoreRef(api_version=STORES_V2, kind="ClusterSecretStore", name="store")
CLUSTER_STORE = obj(
    STORES_V2,
    "ClusterSecretStore",
    "store",
    spec={
        "providerConfig": {"inline": {"kind": "Fake", "spec": {}}},
        "authenticationScope": "ManifestNamespace",
    },
)
V1_STORE = obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {"fake": {}}}, status=ready())
V1_CLUSTER_STORE = obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": {"fake": {}}}, status=ready())


def resolved(
    ref: StoreRef,
    *documents: JsonObject,
    handshakes: Mapping[str, Handshake | str] | None = None,
    settings: ResolverSettings = TENANTS_TOO,
) -> ResolvedStore:
    answers = EveryConnection(FAKES) if handshakes is None else handshakes
    return resolve(ref, caller(), need=ANYTHING, view=cluster(*documents, handshakes=answers), settings=settings)


def refused(ref: StoreRef, *documents: JsonObject, **given: Any) -> ResolutionError:
    with pytest.raises(ResolutionError) as raised:
        resolved(ref, *documents, **given)
    return raised.value


def fake_service(name: str, namespace: str, **fields: Any) -> JsonObject:
    return provider_service(name, namespace, kinds=str(FAKE), v1_keys="fake", **fields)


def fake_class(name: str, address: str, namespace: str = "", **fields: Any) -> JsonObject:
    kind = "ProviderClass" if namespace else "ClusterProviderClass"
    spec = {"address": address, "serves": SERVES, "v1ProviderKeys": ["fake"], **fields.pop("spec", {})}
    return obj(CORE_ALPHA, kind, name, namespace, spec=spec, **fields)


LOCAL = fake_service("local", "team-a")
LOCAL_CLASS = fake_class("mine", "mine:8080", "team-a")
SHARED = fake_service("shared", CORE)
CLASS = fake_class("fake", f"classy.{CORE}.svc:8080")
FOREIGN = fake_service("foreign", "team-b")


@pytest.mark.parametrize(
    ("documents", "host", "source"),
    [
        pytest.param([LOCAL, CLASS, SHARED], "local.team-a", EndpointSource.LABEL, id="own Service first (R188)"),
        pytest.param([LOCAL_CLASS, CLASS, SHARED], "mine.team-a", EndpointSource.CLASS, id="own ProviderClass first"),
        pytest.param([CLASS, SHARED], f"classy.{CORE}", EndpointSource.CLASS, id="then classes"),
        pytest.param([SHARED, FOREIGN], f"shared.{CORE}", EndpointSource.LABEL, id="then shared Services (R190)"),
    ],
)
def test_levels_are_searched_in_order(documents: list[JsonObject], host: str, source: EndpointSource) -> None:
    endpoint = resolved(STORE_REF, STORE, *documents).endpoint

    assert endpoint.uri == f"dns:///{host}.svc:8080"
    assert endpoint.source is source


@pytest.mark.parametrize(("ref", "store"), [(STORE_REF, STORE), (StoreRef(name="store"), V1_STORE)])
def test_a_service_of_another_tenant_is_not_seen(ref: StoreRef, store: JsonObject) -> None:
    error = refused(ref, store, FOREIGN, fake_class("theirs", "theirs:8080", "team-b"))

    assert error.reason is Reason.NOT_INSTALLED


@pytest.mark.parametrize(
    ("ref", "store"),
    [
        pytest.param(CLUSTER_REF, CLUSTER_STORE, id="v2"),
        pytest.param(StoreRef(kind="ClusterSecretStore", name="store"), V1_CLUSTER_STORE, id="v1"),
    ],
)
def test_a_tenant_cannot_put_its_own_provider_behind_a_cluster_scoped_store(ref: StoreRef, store: JsonObject) -> None:
    """Otherwise the credentials of the store's owner would go to the tenant's process."""
    assert refused(ref, store, LOCAL, LOCAL_CLASS).reason is Reason.NOT_INSTALLED
    assert resolved(ref, store, LOCAL, SHARED).endpoint.service == ServiceKey(CORE, "shared")


def test_further_provider_namespaces_are_for_everybody() -> None:
    settings = replace(TENANTS_TOO, provider_namespaces=("providers",))

    target = resolved(STORE_REF, STORE, fake_service("far", "providers"), settings=settings)

    assert target.endpoint.service == ServiceKey("providers", "far")


@pytest.mark.parametrize(
    ("documents", "chosen"),
    [
        pytest.param([SHARED, fake_service("second", CORE)], None, id="two Services"),
        pytest.param([SHARED, fake_service("second", CORE, annotations=DEFAULT)], "second", id="one is the default"),
        pytest.param(
            [fake_service("a", CORE, annotations=DEFAULT), fake_service("b", CORE, annotations=DEFAULT)],
            None,
            id="two are the default",
        ),
        pytest.param([CLASS, fake_class("second", f"b.{CORE}.svc:8080")], None, id="two classes"),
        pytest.param(
            [CLASS, fake_class("second", f"b.{CORE}.svc:8080", annotations=DEFAULT)], "b", id="one class is the default"
        ),
        pytest.param(
            [fake_class("here", "local:8080", "team-a"), LOCAL], "local", id="a class and its own Service are one"
        ),
    ],
)
def test_two_candidates_on_one_level_are_ambiguous_unless_one_is_marked(
    documents: list[JsonObject], chosen: str | None
) -> None:
    if chosen is None:
        error = refused(STORE_REF, STORE, *documents)
        assert error.reason is Reason.AMBIGUOUS
        assert "provider-default" in error.message
    else:
        service = resolved(STORE_REF, STORE, *documents).endpoint.service
        assert service is not None
        assert service.name == chosen


def test_a_class_that_does_not_allow_the_namespace_is_no_rival() -> None:
    closed = fake_class("closed", f"b.{CORE}.svc:8080", spec={"allowedNamespaces": [{"namespaces": ["team-b"]}]})
    here = obj("v1", "Namespace", "team-a")

    assert resolved(STORE_REF, STORE, CLASS, closed, here).endpoint.label == "fake"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(fake_service("x", CORE, spec={"type": "ExternalName"}), id="ExternalName"),
        pytest.param(fake_service("x", CORE, spec={"ports": []}), id="no port"),
        pytest.param(fake_service("x", CORE, spec={"ports": [{"port": 1}, {"port": 2}]}), id="two ports, none grpc"),
        pytest.param(provider_service("x", CORE, kinds=str(OTHER)), id="another kind"),
        pytest.param(provider_service("x", CORE, kinds="nonsense,,Fake.v1"), id="another version"),
        pytest.param(fake_class("x", "not an address"), id="class without a usable address"),
        pytest.param(fake_class("x", "10.0.0.1:8080"), id="class with an address that is not allowed"),
    ],
)
def test_a_provider_that_cannot_serve_the_kind_does_not_count_as_a_candidate(document: JsonObject) -> None:
    answers = EveryConnection(OTHERS)

    assert refused(STORE_REF, STORE, document, handshakes=answers).reason is Reason.NOT_INSTALLED


def test_an_unlabelled_service_is_no_provider() -> None:
    plain = fake_service("x", CORE)
    plain["metadata"]["labels"] = {}

    assert refused(STORE_REF, STORE, plain).reason is Reason.NOT_INSTALLED


def test_a_missing_v1_provider_is_named_with_what_to_install() -> None:
    error = refused(StoreRef(name="store"), V1_STORE)

    assert error.reason is Reason.NOT_INSTALLED
    assert "spec.provider.fake" in error.message
    assert "eso-provider-fake" in error.message
    assert "v1ProviderKeys" in error.message


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(provider_service("p", CORE, v1_keys="aws, fake"), id="annotation"),
        pytest.param(provider_service("p", CORE), id="handshake of a labelled Service"),
        pytest.param(provider_service("p", CORE, kinds=str(FAKE)), id="handshake of a Service that lists kinds only"),
        pytest.param(fake_class("c", f"p.{CORE}.svc:8080"), id="class"),
        pytest.param(
            fake_class("c", f"p.{CORE}.svc:8080", spec={"v1ProviderKeys": []}), id="handshake of a class without keys"
        ),
    ],
)
def test_a_v1_store_is_bridged_unedited(document: JsonObject) -> None:
    """R60: the provider says which key it handles, the manifest stays as it is."""
    target = resolved(StoreRef(name="store"), V1_STORE, document)

    assert target.endpoint.service == ServiceKey(CORE, "p")
    assert target.endpoint.source is EndpointSource.BRIDGE
    assert target.config.kind == FAKE


def test_who_declares_nothing_is_asked_first() -> None:
    silent = provider_service("silent", CORE)

    error = refused(STORE_REF, STORE, silent, handshakes={})

    assert error.reason is Reason.NOT_CONNECTED
    assert error.retry == "BACKOFF"
    assert error.connection is not None
    assert error.connection.endpoint.service == ServiceKey(CORE, "silent")
    answered = resolved(STORE_REF, STORE, silent, handshakes={error.connection.key: FAKES})
    assert answered.connection.key == error.connection.key


def test_who_does_not_answer_is_named_and_passed_over() -> None:
    silent = provider_service("silent", CORE)
    requested = refused(STORE_REF, STORE, silent, handshakes={}).connection
    assert requested is not None

    error = refused(STORE_REF, STORE, silent, handshakes={requested.key: "connection refused"})

    assert error.reason is Reason.NOT_INSTALLED
    assert error.retry == "BACKOFF"
    assert f"{CORE}/silent: connection refused" in error.message


def test_trusted_services_need_no_object() -> None:
    trusted = ServiceKey(CORE, "provider-fake")
    settings = replace(TENANTS_TOO, trusted={trusted: "127.0.0.1:41234"})

    target = resolved(StoreRef(name="store"), V1_STORE, settings=settings)

    assert target.endpoint.uri == "ipv4:127.0.0.1:41234"
    assert target.tls == ManagedTls(trusted)


def test_an_expected_provider_is_asked_nothing_before_its_service_exists_and_then_found_by_it() -> None:
    """`eso up` finds the providers that it starts on demand in this way."""
    expected = ServiceKey(CORE, "provider-fake")
    settings = replace(TENANTS_TOO, trusted={expected: "127.0.0.1:41234"}, expected=frozenset({expected}))

    error = refused(StoreRef(name="store"), V1_STORE, settings=settings, handshakes={})
    target = resolved(StoreRef(name="store"), V1_STORE, fake_service("provider-fake", CORE), settings=settings)

    assert (error.reason, error.connection) == (Reason.NOT_INSTALLED, None)
    assert (target.endpoint.uri, target.tls) == ("ipv4:127.0.0.1:41234", ManagedTls(expected))


@pytest.mark.parametrize("name", ["fake-config", "provider-config"])
def test_services_by_name_only_when_turned_on(name: str) -> None:
    """R189."""
    store = obj(
        STORES_V2,
        "SecretStore",
        "store",
        "team-a",
        spec={"providerConfig": {"providerRef": {"kind": "Fake", "name": "config"}}},
    )
    config = obj("provider.secretstore.external-secrets.io/v2alpha1", "Fake", "config", "team-a", spec={})
    service = fake_service(name, CORE)
    service["metadata"]["labels"] = {}

    assert refused(STORE_REF, store, config, service).reason is Reason.NOT_INSTALLED
    target = resolved(STORE_REF, store, config, service, settings=replace(TENANTS_TOO, naming_convention=True))
    assert target.endpoint.source is EndpointSource.NAMING
    assert target.endpoint.service == ServiceKey(CORE, name)


# --- classes and certificates ----------------------------------------------------------------------------------------


def with_class(spec: JsonObject, *, auth: JsonObject | None = None) -> JsonObject:
    config = {"classRef": spec, "inline": {"kind": "Fake", "spec": {}}, "auth": auth or {}}
    return obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": config})


def test_a_store_that_names_its_class() -> None:
    endpoint = resolved(STORE_REF, with_class({"name": "fake"}), CLASS).endpoint

    assert (endpoint.source, endpoint.label) == (EndpointSource.CLASS, "fake")


def test_two_releases_of_a_provider_serve_side_by_side() -> None:
    """R65: each is a class of its own, and a store names the one it wants."""
    releases = [fake_class("fake-1", "fake-1.eso.svc:8080"), fake_class("fake-2", "fake-2.eso.svc:8080")]

    labels = [
        resolved(STORE_REF, with_class({"name": name}), *releases).endpoint.label for name in ("fake-1", "fake-2")
    ]

    assert labels == ["fake-1", "fake-2"]


@pytest.mark.parametrize(
    ("ref", "documents"),
    [
        pytest.param({"name": "gone"}, [CLASS], id="no such class"),
        pytest.param({"name": "fake", "kind": "ProviderClass"}, [CLASS], id="of the other kind"),
        pytest.param(
            {"name": "mine", "kind": "ProviderClass"}, [fake_class("mine", "mine:1", "team-b")], id="another tenant's"
        ),
    ],
)
def test_a_missing_class_is_named(ref: JsonObject, documents: list[JsonObject]) -> None:
    assert refused(STORE_REF, with_class(ref), *documents).reason is Reason.CLASS_NOT_FOUND


def test_a_cluster_scoped_store_has_no_namespaced_class() -> None:
    config = {"classRef": {"name": "mine", "kind": "ProviderClass"}, "inline": {"kind": "Fake", "spec": {}}}
    store = obj(
        STORES_V2,
        "ClusterSecretStore",
        "store",
        spec={"providerConfig": config, "authenticationScope": "ManifestNamespace"},
    )

    assert refused(CLUSTER_REF, store, LOCAL_CLASS).reason is Reason.CLASS_NOT_FOUND


OWN = {"clientCertificate": {"secretRef": {"name": "own"}}}
FOREIGN_SECRET = {"name": "x", "namespace": "team-b"}
SECRET_TLS = {"tls": {"mode": "SecretRef", "secretRef": {"name": "theirs"}, "serverName": "provider.example"}}


@pytest.mark.parametrize(
    ("store", "documents", "tls"),
    [
        pytest.param(
            with_class({"name": "fake"}), [CLASS], ManagedTls(ServiceKey(CORE, "classy")), id="managed unless said"
        ),
        pytest.param(
            with_class({"name": "fake"}),
            [fake_class("fake", f"p.{CORE}.svc:1", spec=SECRET_TLS)],
            SecretTls(CORE, "theirs"),
            id="those of the class, in the operator's namespace",
        ),
        pytest.param(
            with_class({"name": "mine", "kind": "ProviderClass"}),
            [fake_class("mine", "p:1", "team-a", spec=SECRET_TLS)],
            SecretTls("team-a", "theirs"),
            id="those of a namespaced class, in its namespace",
        ),
        pytest.param(
            with_class({"name": "fake"}, auth=OWN),
            [fake_class("fake", f"p.{CORE}.svc:1", spec=SECRET_TLS)],
            SecretTls("team-a", "own"),
            id="the store's own come first (R84, R193)",
        ),
        pytest.param(
            with_class({"name": "fake"}, auth={"clientCertificate": {}}),
            [CLASS],
            ManagedTls(ServiceKey(CORE, "classy")),
            id="an empty certificate means managed",
        ),
    ],
)
def test_where_certificates_come_from(store: JsonObject, documents: list[JsonObject], tls: object) -> None:
    assert resolved(STORE_REF, store, *documents).tls == tls


def test_the_class_names_the_server() -> None:
    cls = fake_class("fake", f"p.{CORE}.svc:1", spec=SECRET_TLS)

    assert resolved(STORE_REF, with_class({"name": "fake"}), cls).endpoint.server_name == "provider.example"


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        pytest.param({"mode": "SecretRef"}, Reason.INVALID_CONFIG, id="no Secret named"),
        pytest.param(
            {"mode": "SecretRef", "secretRef": {"name": "x", "namespace": "team-b"}},
            Reason.CROSS_NAMESPACE,
            id="a Secret of another namespace",
        ),
    ],
)
def test_a_class_with_unusable_certificates_is_refused(tls: JsonObject, reason: Reason) -> None:
    cls = fake_class("mine", "p:1", "team-a", spec={"tls": tls})

    assert refused(STORE_REF, with_class({"name": "mine", "kind": "ProviderClass"}), cls).reason is reason


def test_a_service_that_was_told_at_start_has_managed_certificates_whatever_a_store_brings() -> None:
    settings = replace(TENANTS_TOO, trusted={ServiceKey(CORE, "classy"): "127.0.0.1:41234"})

    target = resolved(STORE_REF, with_class({"name": "fake"}, auth=OWN), CLASS, settings=settings)

    assert target.tls == ManagedTls(ServiceKey(CORE, "classy"))


@pytest.mark.parametrize(
    "documents",
    [
        pytest.param(
            [with_class({"name": "fake"}, auth={"clientCertificate": {"secretRef": FOREIGN_SECRET}}), CLASS],
            id="in a store",
        ),
        pytest.param(
            [
                with_class({"name": "mine", "kind": "ProviderClass"}),
                fake_class(
                    "mine",
                    f"classy.{CORE}.svc:8080",
                    "team-a",
                    spec={"tls": {"mode": "SecretRef", "secretRef": FOREIGN_SECRET}},
                ),
            ],
            id="in a namespaced class",
        ),
    ],
)
def test_a_foreign_certificate_is_refused_also_where_managed_ones_are_used(documents: list[JsonObject]) -> None:
    """R114."""
    settings = replace(TENANTS_TOO, trusted={ServiceKey(CORE, "classy"): "127.0.0.1:41234"})

    assert refused(STORE_REF, *documents, settings=settings).reason is Reason.CROSS_NAMESPACE


def test_a_host_that_is_no_service_needs_certificates_of_its_own() -> None:
    settings = replace(TENANTS_TOO, allowed_addresses=("provider.example.com",))
    config = {"address": "provider.example.com:8443", "inline": {"kind": "Fake", "spec": {}}}

    def store(auth: JsonObject) -> JsonObject:
        return obj(STORES_V2, "SecretStore", "store", "team-a", spec={"providerConfig": {**config, "auth": auth}})

    assert refused(STORE_REF, store({}), settings=settings).reason is Reason.CERTIFICATE_REQUIRED
    assert resolved(STORE_REF, store(OWN), settings=settings).tls == SecretTls("team-a", "own")


def test_a_service_account_of_the_store_sends_its_token() -> None:
    """R85, R193; the audience names the provider, so that no other one can use the token."""
    plain = with_class({"name": "fake"}, auth={"serviceAccountRef": {"name": "caller"}})
    other = with_class({"name": "fake"}, auth={"serviceAccountRef": {"name": "caller", "audiences": ["x"]}})
    empty = with_class({"name": "fake"}, auth={"serviceAccountRef": {}})

    token = resolved(STORE_REF, plain, CLASS).call_token
    assert token is not None
    assert (token.namespace, token.name, token.audiences) == ("team-a", "caller", ("external-secrets-provider/fake",))
    said = resolved(STORE_REF, other, CLASS).call_token
    assert said is not None
    assert said.audiences == ("x",)
    assert resolved(STORE_REF, empty, CLASS).call_token is None


def test_connections_differ_by_their_certificates() -> None:
    """The effect of one tenant's broken certificate must not count as the state of the provider for all others."""
    managed = resolved(STORE_REF, with_class({"name": "fake"}), CLASS).connection
    own = resolved(STORE_REF, with_class({"name": "fake"}, auth=OWN), CLASS).connection

    assert managed.endpoint.uri == own.endpoint.uri
    assert managed.key != own.key
    assert Connection(managed.endpoint, managed.tls).key == managed.key


def test_a_class_may_tighten_the_limits_of_its_provider_and_not_widen_them() -> None:
    said = replace(FAKES, limits=Limits(max_batch_items=100, max_in_flight=5))
    cls = fake_class(
        "fake", f"p.{CORE}.svc:1", spec={"limits": {"maxBatchItems": 50, "maxInFlight": 20, "maxDeadline": "10s"}}
    )

    limits = resolved(STORE_REF, with_class({"name": "fake"}), cls, handshakes=EveryConnection(said)).handshake.limits

    assert limits == Limits(max_batch_items=50, max_in_flight=5, max_deadline=10.0)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        pytest.param("azurekv", "package eso-provider-azure, or providers.azure.enabled=true", id="the real package"),
        pytest.param("openBao", "package eso-provider-vault", id="a package of two keys"),
        pytest.param("conjur", 'a provider for "conjur" is not available yet; use another backend', id="none yet"),
        pytest.param("alibaba", 'upstream removed the backend "alibaba", and it is not available here', id="alibaba"),
        pytest.param("device42", 'upstream removed the backend "device42", and it is not', id="device42"),
    ],
)
def test_a_key_without_an_installed_provider_says_what_to_do(key: str, words: str) -> None:
    store = obj(CORE_V1, "SecretStore", "store", "team-a", spec={"provider": {key: {}}})

    error = refused(StoreRef(name="store"), store)

    assert error.reason is Reason.NOT_INSTALLED
    assert words in str(error)
    assert f"eso-provider-{key.lower()}" not in str(error)
