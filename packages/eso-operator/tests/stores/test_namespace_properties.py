"""In any cluster state, a namespaced object gives no access to another namespace (R114, R115, R130)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import explain, resolve
from eso_operator.stores.resolved import ClusterView, ManagedTls, ResolutionError, ResolvedStore, SecretTls
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
)
from eso_wire.values import CredentialKind, CredentialPath, Handshake, KindId, KindInfo, KindRole, Operation
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject

NAMESPACES = ("team-a", "team-b", CORE)
STORES_V2, GENERATORS_V2 = "secretstore.external-secrets.io/v2alpha1", "generator.external-secrets.io/v2alpha1"
GENERATORS_V1, CORE_V1, CORE_ALPHA = (
    "generators.external-secrets.io/v1alpha1",
    "external-secrets.io/v1",
    "external-secrets.io/v1alpha1",
)
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
PASSWORD = KindId("provider.generator.external-secrets.io", "v2alpha1", "Password")
V1_PASSWORD = KindId("generators.external-secrets.io", "v1alpha1", "Password")
PATHS = (
    CredentialPath("/secret", CredentialKind.SECRET_KEY),
    CredentialPath("/many/*/ref", CredentialKind.WHOLE_SECRET),
    CredentialPath("/account", CredentialKind.SERVICE_ACCOUNT),
    CredentialPath("/caProvider", CredentialKind.CA_PROVIDER),
)
EVERYTHING = frozenset(Operation)
HANDSHAKE = Handshake(
    CURRENT,
    SUPPORTED,
    "test",
    "1",
    "i",
    (
        KindInfo(FAKE, KindRole.STORE, EVERYTHING, v1_provider_key="fake", credentials=PATHS),
        KindInfo(PASSWORD, KindRole.GENERATOR, EVERYTHING, credentials=PATHS),
        KindInfo(V1_PASSWORD, KindRole.GENERATOR, EVERYTHING, credentials=PATHS),
    ),
)

namespaces = st.sampled_from(NAMESPACES)
NOTHING: JsonObject = {}
maybe_namespace = st.one_of(st.just(NOTHING), namespaces.map(lambda name: {"namespace": name}))


def merged(*parts: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    return st.tuples(*parts).map(lambda found: {key: value for part in found for key, value in part.items()})


def optional(name: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    return st.one_of(st.just(NOTHING), value.map(lambda found: {name: found}))


reference = merged(st.just({"name": "s", "key": "k"}), maybe_namespace)
ca = merged(reference, st.sampled_from([{"type": "Secret"}, {"type": "ConfigMap"}]))
config_spec = merged(
    optional("secret", reference),
    optional("many", st.lists(st.fixed_dictionaries({"ref": reference}), max_size=2)),
    optional("account", reference),
    optional("caProvider", ca),
)
auth = merged(
    optional("clientCertificate", merged(optional("secretRef", reference))),
    optional("serviceAccountRef", reference),
)
place = st.one_of(
    st.just(NOTHING),
    st.sampled_from([{"classRef": {"name": "c"}}, {"classRef": {"name": "c", "kind": "ProviderClass"}}]),
    st.sampled_from([f"p.{name}.svc:8080" for name in NAMESPACES] + ["p:8080"]).map(lambda host: {"address": host}),
)


def provider_config(kind: str) -> st.SearchStrategy[JsonObject]:
    named = merged(st.just({"kind": kind, "name": "config"}), maybe_namespace).map(lambda ref: {"providerRef": ref})
    inline = config_spec.map(lambda spec: {"inline": {"kind": kind, "spec": spec}})
    return merged(place, optional("auth", auth), st.one_of(named, inline))


scope = st.sampled_from(
    [{}, {"authenticationScope": "ManifestNamespace"}, {"authenticationScope": "ProviderNamespace"}]
)
conditions = st.one_of(
    st.just(NOTHING), st.lists(namespaces, max_size=2).map(lambda names: {"conditions": [{"namespaces": names}]})
)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    """Every kind of store and generator, in two namespaces and cluster-scoped, configured alike at random."""
    spec, inner = draw(config_spec), draw(config_spec)
    stores, generators = draw(provider_config("Fake")), draw(provider_config("Password"))
    block = draw(st.sampled_from([{"fake": spec}, {"plugin": stores}]))
    users, whose = draw(conditions), draw(scope)
    tls = draw(st.sampled_from([{}, {"mode": "SecretRef"}])) | draw(optional("secretRef", reference))
    documents = [namespace_object(name) for name in NAMESPACES]
    for home in ("team-a", "team-b"):
        documents += [
            obj(CORE_V1, "SecretStore", "store", home, spec={"provider": block}, status=ready()),
            obj(STORES_V2, "SecretStore", "store", home, spec={"providerConfig": stores}),
            obj(CORE_ALPHA, "Provider", "store", home, spec={"config": stores}),
            obj(GENERATORS_V2, "Generator", "store", home, spec={"providerConfig": generators}),
            obj(GENERATORS_V1, "Password", "store", home, spec=spec),
            obj(FAKE.api_version, "Fake", "store", home, spec=spec),
        ]
    for home in NAMESPACES:
        documents += [
            obj(FAKE.api_version, "Fake", "config", home, spec=inner),
            obj(PASSWORD.api_version, "Password", "config", home, spec=inner),
            obj(CORE_ALPHA, "ProviderClass", "c", home, spec={"address": "p:8080", "tls": tls}),
        ]
    documents += [provider_service("p", home) for home in draw(st.sets(namespaces))]
    v2 = {"providerConfig": stores, **whose, **users}
    embedded = {"kind": "Password", "generator": {"passwordSpec": spec}}
    documents += [
        obj(CORE_V1, "ClusterSecretStore", "store", spec={"provider": block, **users}, status=ready()),
        obj(STORES_V2, "ClusterSecretStore", "store", spec=v2),
        obj(FAKE.api_version, "ClusterFake", "store", spec={**spec, "common": {**whose, **users}}),
        obj(GENERATORS_V1, "ClusterGenerator", "store", spec=embedded),
        obj(CORE_ALPHA, "ClusterProviderClass", "c", spec={"address": f"p.{CORE}.svc:8080"}),
    ]
    return cluster(*documents, handshakes=EveryConnection(HANDSHAKE))


NAMESPACED_REFS = [
    StoreRef(name="store"),
    StoreRef(api_version=STORES_V2, kind="SecretStore", name="store"),
    StoreRef(kind="Provider", name="store"),
    StoreRef(api_version=FAKE.api_version, kind="Fake", name="store"),
    GeneratorRef(api_version=GENERATORS_V2, kind="Generator", name="store"),
    GeneratorRef(kind="Password", name="store"),
]
CLUSTER_REFS = [
    StoreRef(kind="ClusterSecretStore", name="store"),
    StoreRef(api_version=STORES_V2, kind="ClusterSecretStore", name="store"),
    StoreRef(api_version=FAKE.api_version, kind="ClusterFake", name="store"),
    GeneratorRef(kind="ClusterGenerator", name="store"),
]


def used(ref: StoreRef | GeneratorRef, view: ClusterView, home: str) -> tuple[ResolvedStore | None, set[str]]:
    """The target, if there is one, and every namespace that credentials were read from on the way."""
    reader = NotedReads()
    try:
        target = resolve(ref, caller(home), need=ANYTHING, view=view, settings=SETTINGS)
        asyncio.run(bind(target, reader))
    except ResolutionError:
        return None, reader.namespaces
    return target, reader.namespaces


@settings(max_examples=100, deadline=None)
@given(view=clusters(), ref=st.sampled_from(NAMESPACED_REFS), home=st.sampled_from(["team-a", "team-b"]))
def test_a_namespaced_object_stays_in_its_namespace(view: ClusterView, ref: StoreRef | GeneratorRef, home: str) -> None:
    target, read = used(ref, view, home)

    assert read <= {home}
    if target is not None:
        assert {target.auth_namespace, target.config.ref.namespace, target.store.namespace} == {home}
        match target.tls:
            case SecretTls(namespace=namespace):
                assert namespace in (home, CORE)
                assert namespace == home or target.endpoint.label == "c", "only a class may use the operator's Secrets"
            case ManagedTls(service=service):
                assert service.namespace in (home, CORE)


@settings(max_examples=100, deadline=None)
@given(view=clusters(), ref=st.sampled_from(CLUSTER_REFS), home=st.sampled_from(["team-a", "team-b"]))
def test_a_cluster_scoped_object_reads_its_user_or_what_its_owner_wrote(
    view: ClusterView, ref: StoreRef | GeneratorRef, home: str
) -> None:
    target, read = used(ref, view, home)

    if target is None:
        return
    match target.config.rule:
        case "own namespace" | "auth namespace, whatever it says":
            assert read <= {target.auth_namespace, *(_token_namespace(target))}
        case _:
            assert not target.config.ref.namespace, "only a cluster-scoped configuration may name namespaces"
    service = target.endpoint.service
    explicit = target.endpoint.source == "explicit"
    assert service is None or service.namespace == CORE or explicit, (
        "a tenant's provider serves no cluster-scoped store"
    )


@pytest.mark.parametrize("ref", NAMESPACED_REFS + CLUSTER_REFS, ids=lambda ref: f"{ref.api_version} {ref.kind}")
def test_the_clusters_above_have_credentials_to_read(ref: StoreRef | GeneratorRef) -> None:
    """Otherwise the properties would hold for want of anything to read."""
    # It stops at the first such cluster; a hundred random ones may well have none.
    without_shrinking = settings(deadline=None, phases=[Phase.generate], max_examples=5_000)

    find(clusters(), lambda view: bool(used(ref, view, "team-a")[1]), settings=without_shrinking)


def _token_namespace(target: ResolvedStore) -> list[str]:
    return [target.call_token.namespace] if target.call_token else []


@settings(max_examples=60, deadline=None)
@given(view=clusters(), ref=st.sampled_from(NAMESPACED_REFS + CLUSTER_REFS))
def test_explain_and_resolve_agree(view: ClusterView, ref: StoreRef | GeneratorRef) -> None:
    stages = explain(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS)
    try:
        resolve(ref, caller(), need=ANYTHING, view=view, settings=SETTINGS)
        reason = None
    except ResolutionError as error:
        reason = error.reason

    assert stages[-1].reason is reason
