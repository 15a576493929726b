"""Each manifest of the two design documents resolves to the same target as its v2-store twin (R77-R95, R176-R191).

The manifests are those of `examples/stores-v2` and `examples/out-of-process`, unchanged. A twin is the v2 store that
says the same: a Provider's fields under `providerConfig`, a provider's own object as its `providerRef`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import EndpointSource, Form, Reason, ResolutionError, ResolvedStore, ServiceKey
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    caller,
    cluster,
    namespace_object,
    obj,
    provider_service,
    ready,
)
from eso_wire.values import Handshake, KindId, KindInfo, KindRole, Operation
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.meta import JsonObject

EXAMPLES = Path(__file__).parents[4] / "examples"
FOLDERS = ("stores-v2", "out-of-process")
STORES_V2 = "secretstore.external-secrets.io/v2alpha1"
AWS = "aws.provider.external-secrets.io/v2alpha1"
SETTINGS_DEV = replace(SETTINGS, controller_class="dev")
SETTINGS_DEFAULT = SETTINGS


def manifests() -> list[JsonObject]:
    files = sorted(file for folder in FOLDERS for file in (EXAMPLES / folder).glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def stores(*kinds: str) -> list[KindInfo]:
    aws = [
        KindId("aws.provider.external-secrets.io", "v2alpha1", kind) for kind in ("SecretsManager", "ParameterStore")
    ]
    named = [*aws, *(KindId("provider.secretstore.external-secrets.io", "v2alpha1", kind) for kind in kinds)]
    return [KindInfo(kind, KindRole.STORE, frozenset(Operation)) for kind in named]


PASSWORD = KindId("provider.generator.external-secrets.io", "v2alpha1", "Password")
HANDSHAKE = Handshake(
    CURRENT,
    SUPPORTED,
    "all",
    "1",
    "i",
    (*stores("AWSSecretManager"), KindInfo(PASSWORD, KindRole.GENERATOR, frozenset(Operation))),
)
MANIFESTS = manifests()
AROUND = [
    namespace_object("default"),
    namespace_object(CORE, team="blue"),
    # Named by the documents' manifests, and not written down in them.
    obj(AWS, "SecretsManager", "eu", "platform", spec={"region": "eu-west-1"}),
]


def resolved(
    ref: StoreRef | GeneratorRef, namespace: str, *more: JsonObject, kind: str = "ExternalSecret"
) -> ResolvedStore:
    documents = [_served(document) for document in (*MANIFESTS, *AROUND, *more)]
    view = cluster(*documents, handshakes=EveryConnection(HANDSHAKE))
    settings = SETTINGS_DEV if namespace == "default" else SETTINGS_DEFAULT
    return resolve(ref, caller(namespace, kind), need=ANYTHING, view=view, settings=settings)


def _served(document: JsonObject) -> JsonObject:
    """As an API server has it, with v1 stores validated."""
    metadata = {"uid": f"uid-{document['metadata']['name']}", "generation": 1, **document["metadata"]}
    status = ready() if document["apiVersion"] == "external-secrets.io/v1" else document.get("status", {})
    return {**document, "metadata": metadata, "status": status}


def references(document: Any, found: list[StoreRef | GeneratorRef]) -> list[StoreRef | GeneratorRef]:
    """Every store and generator reference of a manifest, wherever it stands."""
    match document:
        case dict():
            for name, value in document.items():
                match name:
                    case "secretStoreRef" | "storeRef":
                        found.append(msgspec.convert(value, StoreRef))
                    case "secretStoreRefs":
                        found += [msgspec.convert(entry, StoreRef) for entry in value]
                    case "generatorRef":
                        found.append(msgspec.convert(value, GeneratorRef))
                    case _:
                        references(value, found)
        case list():
            for entry in document:
                references(entry, found)
    return found


CONSUMERS = [
    pytest.param(manifest, ref, id=f"{manifest['kind']} {manifest['metadata']['name']} -> {ref.kind} {ref.name}")
    for manifest in MANIFESTS
    if manifest["kind"] in ("ExternalSecret", "PushSecret")
    for ref in references(manifest["spec"], [])
]


@pytest.mark.parametrize(("manifest", "ref"), CONSUMERS)
def test_every_reference_of_the_documents_resolves(manifest: JsonObject, ref: StoreRef | GeneratorRef) -> None:
    """R95, R191: for ExternalSecret and PushSecret alike."""
    target = resolved(ref, manifest["metadata"]["namespace"], kind=manifest["kind"])

    assert target.endpoint.service is not None
    assert target.endpoint.service.namespace == CORE


def twin_of(document: JsonObject) -> JsonObject:
    """The v2 store that says the same."""
    spec, kind = document["spec"], document["kind"]
    common = {key: value for key, value in spec.items() if key in ("authenticationScope", "conditions")}
    match kind:
        case "Provider" | "ClusterProvider":
            config = {key: spec[key] for key in ("address", "providerRef")}
        case "SecretStore":
            config = spec["provider"]["plugin"]
        case _:
            ref = {"apiVersion": document["apiVersion"], "kind": kind, "name": document["metadata"]["name"]}
            config = {"providerRef": ref}
    scope = "ClusterSecretStore" if kind.startswith("Cluster") else "SecretStore"
    metadata = {**document["metadata"], "name": "twin"}
    return {
        "apiVersion": STORES_V2,
        "kind": scope,
        "metadata": metadata,
        "spec": {"providerConfig": config, **common},
    }


def reference_to(document: JsonObject) -> StoreRef:
    own = document["apiVersion"].startswith("external-secrets.io/")
    return StoreRef(
        api_version="" if own else document["apiVersion"], kind=document["kind"], name=document["metadata"]["name"]
    )


def one(kind: str, name: str) -> JsonObject:
    return next(document for document in MANIFESTS if (document["kind"], document["metadata"]["name"]) == (kind, name))


@pytest.mark.parametrize(
    ("kind", "name", "form"),
    [
        pytest.param("Provider", "aws-provider", Form.PROVIDER, id="option 1: Provider (R180, R182)"),
        pytest.param("ClusterProvider", "aws-cluster-provider", Form.PROVIDER, id="option 1: ClusterProvider (R181)"),
        pytest.param("SecretsManager", "team-blue-eu-west-2", Form.DIRECT, id="option 2: direct reference (R184)"),
        pytest.param("ParameterStore", "team-blue-parameters", Form.DIRECT, id="option 2: another kind (R184)"),
        pytest.param("SecretStore", "through-plugin", Form.V1_PLUGIN, id="v1 plugin (R133, R165)"),
    ],
)
def test_a_manifest_is_its_twin(kind: str, name: str, form: Form) -> None:
    """R196: whichever option is taken, it is a store with everything left out that has a default."""
    document = one(kind, name)
    namespace = document["metadata"].get("namespace", CORE)
    twin = twin_of(document)

    target = resolved(reference_to(document), namespace)
    same = resolved(StoreRef(api_version=STORES_V2, kind=twin["kind"], name="twin"), namespace, twin)

    assert target.form is form
    assert same.form is Form.STORE
    assert essence(target) == essence(same)


def essence(target: ResolvedStore) -> tuple[Any, ...]:
    """Return the facts that determine the call: endpoint, configuration and credentials."""
    endpoint = replace(target.endpoint, source=EndpointSource.EXPLICIT)
    return endpoint, target.tls, target.config, target.auth_namespace, target.pinned, target.operations


@pytest.mark.parametrize("name", ["shared-eu-west-2", "shared-parameters"])
def test_a_cluster_scoped_twin_of_a_providers_kind_uses_its_users_credentials(name: str) -> None:
    """R185, R186: option 2 without a store; the class and `spec.common` are the home of shared behaviour."""
    document = next(found for found in MANIFESTS if found["metadata"]["name"] == name)

    target = resolved(reference_to(document), CORE)

    assert (target.auth_namespace, target.pinned) == (CORE, False)
    assert target.endpoint.label == "aws"
    assert target.config.kind.kind == document["kind"].removeprefix("Cluster")


def test_conditions_of_the_documents_are_enforced() -> None:
    """R132, R179: on ClusterProvider, on a class's store, and on a provider's own cluster-scoped kind."""
    refs = [
        StoreRef(kind="ClusterProvider", name="aws-cluster-provider"),
        StoreRef(api_version=STORES_V2, kind="ClusterSecretStore", name="aws-shared"),
        StoreRef(api_version=AWS, kind="ClusterSecretsManager", name="shared-eu-west-2"),
    ]

    for ref in refs:
        assert resolved(ref, CORE).store.name == ref.name
        with pytest.raises(ResolutionError) as raised:
            resolved(ref, "team-red", namespace_object("team-red"))
        assert raised.value.reason is Reason.NAMESPACE_DENIED


def test_a_class_says_where_the_provider_is() -> None:
    target = resolved(StoreRef(api_version=STORES_V2, kind="ClusterSecretStore", name="aws-shared"), CORE)

    assert target.endpoint.source is EndpointSource.CLASS
    assert target.endpoint.service == ServiceKey(CORE, "provider-aws")
    assert (target.config.ref.namespace, target.auth_namespace) == ("platform", CORE)


@pytest.mark.parametrize(
    ("kind", "name", "address"),
    [
        pytest.param("SecretStore", "my-aws-store", "http+unix:///path/to/aws.sock", id="SecretStore"),
        pytest.param("ClusterSecretStore", "my-cluster-store", "http+unix:///path/to/socket.sock", id="cluster"),
    ],
)
def test_the_documents_unix_sockets_parse_and_are_refused(kind: str, name: str, address: str) -> None:
    """R83: as the document writes them, before the correction of the examples."""
    document = one(kind, name)
    spec = {**document["spec"], "providerConfig": {**document["spec"]["providerConfig"], "address": address}}

    with pytest.raises(ResolutionError) as raised:
        resolved(StoreRef(api_version=STORES_V2, kind=kind, name=name), "default", {**document, "spec": spec})

    assert raised.value.reason is Reason.FEATURE_DISABLED


def test_discovery_by_label_gives_the_direct_reference_the_same_target() -> None:
    """R188: without any class, by a labelled Service alone."""
    label = provider_service("provider-aws", CORE, kinds=f"SecretsManager.v2alpha1.{AWS.partition('/')[0]}")
    config = one("SecretsManager", "team-blue-eu-west-2")
    view = cluster(config, label, handshakes=EveryConnection(HANDSHAKE))

    target = resolve(reference_to(config), caller(CORE), need=ANYTHING, view=view, settings=SETTINGS_DEFAULT)

    by_class = resolved(reference_to(config), CORE)
    assert target.endpoint.uri == by_class.endpoint.uri
    assert target.endpoint.source is EndpointSource.LABEL
