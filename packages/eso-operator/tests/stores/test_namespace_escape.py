"""A namespaced object never reaches another namespace, by any reference field of any kind (R114, R130, R156).

The fields are found by walking the types. A new field is tested, or fails `test_every_reference_is_classified` until it
is classified. The object is in `team-a`, its reference names `team-b`; the resolver and the binder must not read
anything outside of `team-a`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect
import pytest

from eso_api.crd import CustomKind
from eso_api.externalsecret import Find, Target
from eso_api.generators.clustergenerator import SPEC_FIELDS
from eso_api.generators.gitlab import GitlabDeployTokenSpec
from eso_api.generators.tokens import GrafanaServiceAccount
from eso_api.kinds import installed_kinds
from eso_api.pushsecret import PushStoreRef, SecretSource
from eso_api.references import (
    GENERATORS_GROUP,
    CaProvider,
    GeneratorRef,
    RequiredSecretKeySelector,
    SecretKeySelector,
    SecretSelector,
    ServiceAccountSelector,
    StoreRef,
)
from eso_api.stores.kubernetes import CrdRule
from eso_api.stores.onepassword import OnePasswordIntegration
from eso_api.stores.vault import OpenBaoAuth, OpenBaoProvider, VaultAuth, VaultProvider
from eso_api.stores.webhook import WebhookSecret
from eso_api.template import TemplateSource
from eso_api.v2.connection import ChannelServiceAccount, ClassRef, ProviderRef
from eso_operator.stores.credentials import bind
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Reason, ResolutionError, SecretTls
from eso_testkit.operator.clusters import (
    ANYTHING,
    CORE,
    SETTINGS,
    EveryConnection,
    NotedReads,
    caller,
    cluster,
    obj,
    provider_service,
    ready,
    serving,
)
from eso_wire.values import CredentialKind, CredentialPath, Handshake, KindId, KindRole
from kubebase.meta import JsonObject

HOME, AWAY = "team-a", "team-b"

# Followed by the binder, which asks the rule of the configuration.
CREDENTIALS: dict[type, CredentialKind] = {
    SecretKeySelector: CredentialKind.SECRET_KEY,
    RequiredSecretKeySelector: CredentialKind.SECRET_KEY,
    SecretSelector: CredentialKind.WHOLE_SECRET,
    ServiceAccountSelector: CredentialKind.SERVICE_ACCOUNT,
    CaProvider: CredentialKind.CA_PROVIDER,
}
# Followed by the resolver itself.
CONNECTIONS: set[type] = {ProviderRef, ChannelServiceAccount, ClassRef}
# References that have no namespace to name: what they mean is looked up in the namespace of the object they stand in.
WITHOUT_NAMESPACE: set[type] = {StoreRef, GeneratorRef, PushStoreRef, TemplateSource, SecretSource, ClassRef}
# No references to objects of this cluster, although they have a name or a namespace.
OF_THE_BACKEND: dict[type, str] = {
    VaultAuth: "a namespace of Vault",
    VaultProvider: "a namespace of Vault",
    OpenBaoAuth: "a namespace of OpenBao",
    OpenBaoProvider: "a namespace of OpenBao",
    CrdRule: "expressions for names and namespaces of the remote cluster",
    GrafanaServiceAccount: "a service account of Grafana",
    GitlabDeployTokenSpec: "the name of a token at GitLab",
    OnePasswordIntegration: "the name under which calls appear at 1Password",
    WebhookSecret: "the name under which templates see a Secret; the Secret is in secretRef",
    Find: "an expression for names of remote secrets",
    Target: "the object that is written, always in the namespace of the ExternalSecret",
}
OTHER_NAMESPACE_FIELDS = {
    **{
        (name, "remoteNamespace"): "a namespace of the remote cluster, read with the store's credentials"
        for name in ("KubernetesProvider", "KubernetesSpec", "ClusterKubernetesSpec")
    },
    **{
        (
            name,
            "allowedRemoteNamespaces",
        ): "namespaces of the remote cluster that pushes through a cluster store may name"
        for name in ("KubernetesProvider", "KubernetesSpec", "ClusterKubernetesSpec")
    },
    ("ClusterGeneratorV2Spec", "authenticationNamespace"): "one of two words",
    ("ClusterExternalSecretSpec", "namespaceSelector"): "where a cluster-scoped object writes",
    ("ClusterExternalSecretSpec", "namespaceSelectors"): "where a cluster-scoped object writes",
    ("ClusterExternalSecretSpec", "namespaces"): "where a cluster-scoped object writes",
    ("ClusterPushSecretSpec", "namespaceSelectors"): "where a cluster-scoped object writes",
    ("NamespaceCondition", "namespaceSelector"): "who may use an object",
    ("NamespaceCondition", "namespaces"): "who may use an object",
    ("NamespaceCondition", "namespaceRegexes"): "who may use an object",
    ("ProviderClassSpec", "allowedNamespaces"): "who may use an object",
}

Field = tuple[CustomKind[Any], tuple[str, ...], type]
"""A kind, the path below its spec (`*` for every entry), and the type of what is there."""


def structs(info: msgspec.inspect.Type, path: tuple[str, ...], inside: tuple[type, ...]) -> Iterator[Any]:
    """Every struct reachable from a type, with its path."""
    match info:
        case msgspec.inspect.Metadata(extra={"fragment": fragment}):
            yield from structs(msgspec.inspect.type_info(fragment), path, inside)
        case msgspec.inspect.Metadata():
            yield from structs(info.type, path, inside)
        case msgspec.inspect.UnionType():
            for member in info.types:
                yield from structs(member, path, inside)
        case msgspec.inspect.ListType():
            yield from structs(info.item_type, (*path, "*"), inside)
        case msgspec.inspect.DictType():
            yield from structs(info.value_type, (*path, "*"), inside)
        case msgspec.inspect.StructType() if info.cls not in inside:
            yield path, info
            for field in info.fields:
                yield from structs(field.type, (*path, field.encode_name), (*inside, info.cls))
        case _:
            return


def spec_structs(kind: CustomKind[Any]) -> Iterator[Any]:
    info = msgspec.inspect.type_info(kind.type)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        if field.encode_name == "spec":
            yield from structs(field.type, (), ())


KINDS = installed_kinds()
NAMED: list[Field] = [
    (kind, path, info.cls)
    for kind in KINDS
    for path, info in spec_structs(kind)
    if {"name", "namespace"} & {field.encode_name for field in info.fields}
]


def test_every_reference_is_classified() -> None:
    # The spec of a provider's own kind is the block of v1 with `common` added.
    found = {next((base for base in OF_THE_BACKEND if issubclass(type_, base)), type_) for _, _, type_ in NAMED}

    known = {*CREDENTIALS, *CONNECTIONS, *WITHOUT_NAMESPACE, *OF_THE_BACKEND}
    assert found == known


def test_references_without_a_namespace_have_none() -> None:
    for type_ in WITHOUT_NAMESPACE:
        fields = msgspec.structs.fields(type_)
        assert not [field.encode_name for field in fields if "namespace" in field.encode_name.lower()], type_


def test_every_other_field_about_namespaces_is_known() -> None:
    found = {
        (info.cls.__name__, field.encode_name)
        for kind in KINDS
        for _, info in spec_structs(kind)
        for field in info.fields
        if "namespace" in field.encode_name.lower() and field.encode_name != "namespace"
    }

    assert found == set(OTHER_NAMESPACE_FIELDS)


# --- credentials -----------------------------------------------------------------------------------------------------


def reference(type_: type) -> JsonObject:
    """Something of another namespace."""
    return {"name": "theirs", "key": "k", "namespace": AWAY, **({"type": "Secret"} if type_ is CaProvider else {})}


def nested(path: tuple[str, ...], value: Any) -> Any:
    """A document with that value at that path."""
    if not path:
        return value
    inner = nested(path[1:], value)
    return [inner] if path[0] == "*" else {path[0]: inner}


def pointer(path: tuple[str, ...]) -> str:
    return "".join(f"/{part}" for part in path)


async def read_namespaces(
    ref: StoreRef | GeneratorRef, handshake: Handshake, *documents: JsonObject
) -> tuple[set[str], Reason | None]:
    """Every namespace that something was read from, and why it ended, if it did."""
    view = cluster(*documents, handshakes=EveryConnection(handshake))
    reader = NotedReads()
    try:
        target = resolve(ref, caller(HOME), need=ANYTHING, view=view, settings=SETTINGS)
        await bind(target, reader)
    except ResolutionError as error:
        return reader.namespaces, error.reason
    touched = {target.auth_namespace, target.config.ref.namespace}
    if isinstance(target.tls, SecretTls):
        touched.add(target.tls.namespace)
    return reader.namespaces | touched, None


def credential_fields(*groups: str, below: str = "") -> list[Any]:
    """Every field of those groups that refers to a credential, as a parameter set."""
    return [
        pytest.param(kind, path, type_, id=f"{kind.name}.{'.'.join(path)}")
        for kind, path, type_ in NAMED
        if kind.group in groups and type_ in CREDENTIALS and kind.namespaced and (not below or path[0] == below)
        if "providerConfig" not in path and "plugin" not in path
    ]


def credentials_at(path: tuple[str, ...], type_: type) -> tuple[CredentialPath, ...]:
    return (CredentialPath(pointer(path), CREDENTIALS[type_]),)


V1_FIELDS = [
    field
    for field in credential_fields("external-secrets.io", below="provider")
    if field.values[0].name == "SecretStore"
]
GENERATOR_FIELDS = [field for field in credential_fields(GENERATORS_GROUP) if field.values[0].name in SPEC_FIELDS]
OWNED_FIELDS = [
    pytest.param(kind, path, type_, id=f"{kind.name}.{'.'.join(path)}")
    for kind, path, type_ in NAMED
    if kind.namespaced and "provider." in kind.group and type_ in CREDENTIALS
]


def test_the_walk_finds_what_it_should() -> None:
    assert len(V1_FIELDS) > 30
    assert len(GENERATOR_FIELDS) > 40
    assert len(OWNED_FIELDS) > 5


@pytest.mark.parametrize(("kind", "path", "type_"), V1_FIELDS)
async def test_v1_store(kind: CustomKind[Any], path: tuple[str, ...], type_: type) -> None:
    key, inner = path[1], path[2:]
    store = obj("external-secrets.io/v1", kind.name, "store", HOME, status=ready())
    store["spec"] = nested(path, reference(type_))
    bridged = serving(KindId("x.example.com", "v1", "X"), v1_key=key, credentials=credentials_at(inner, type_))

    namespaces, reason = await read_namespaces(StoreRef(name="store"), bridged, store, provider_service("p", CORE))

    assert (namespaces, reason) == (set(), Reason.CROSS_NAMESPACE)


@pytest.mark.parametrize(("kind", "path", "type_"), GENERATOR_FIELDS)
@pytest.mark.parametrize("embedded", [False, True], ids=["namespaced", "ClusterGenerator"])
async def test_v1alpha1_generator(kind: CustomKind[Any], path: tuple[str, ...], type_: type, embedded: bool) -> None:
    api_version, spec = f"{GENERATORS_GROUP}/v1alpha1", nested(path, reference(type_))
    name = "ClusterGenerator" if embedded else kind.name
    made = serving(
        KindId(GENERATORS_GROUP, "v1alpha1", kind.name),
        role=KindRole.GENERATOR,
        credentials=credentials_at(path, type_),
    )
    generator = (
        obj(api_version, name, "g", spec={"kind": kind.name, "generator": {SPEC_FIELDS[kind.name]: spec}})
        if embedded
        else obj(api_version, name, "g", HOME, spec=spec)
    )

    namespaces, reason = await read_namespaces(
        GeneratorRef(api_version=api_version, kind=name, name="g"), made, generator, provider_service("p", CORE)
    )

    if type_ is CaProvider:
        assert (namespaces, reason) == (set(), Reason.CROSS_NAMESPACE)
    else:
        assert (namespaces, reason) == ({HOME}, None)


@pytest.mark.parametrize(("kind", "path", "type_"), OWNED_FIELDS)
@pytest.mark.parametrize("through", ["direct", "store", "inline"])
async def test_kind_of_a_provider(kind: CustomKind[Any], path: tuple[str, ...], type_: type, through: str) -> None:
    named = KindId(kind.group, kind.versions[0], kind.name)
    making = kind.group.startswith("provider.generator")
    made = serving(
        named, role=KindRole.GENERATOR if making else KindRole.STORE, credentials=credentials_at(path, type_)
    )
    config = obj(named.api_version, kind.name, "mine", HOME, spec=nested(path, reference(type_)))
    outer = ("generator.external-secrets.io/v2alpha1", "Generator") if making else V2_STORE
    placed = {"apiVersion": named.api_version, "kind": kind.name}
    source = (
        {"inline": {**placed, "spec": config["spec"]}}
        if through == "inline"
        else {"providerRef": {**placed, "name": "mine"}}
    )
    store = obj(*outer, "mine", HOME, spec={"providerConfig": source})
    api_version, name = (named.api_version, kind.name) if through == "direct" else outer
    ref_type = GeneratorRef if making else StoreRef

    namespaces, reason = await read_namespaces(
        ref_type(api_version=api_version, kind=name, name="mine"), made, config, store, provider_service("p", CORE)
    )

    assert (namespaces, reason) == (set(), Reason.CROSS_NAMESPACE)


# --- connections -----------------------------------------------------------------------------------------------------

V2_STORE = ("secretstore.external-secrets.io/v2alpha1", "SecretStore")
FAKE = KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
PASSWORD = KindId("provider.generator.external-secrets.io", "v2alpha1", "Password")

Case = tuple[StoreRef | GeneratorRef, list[JsonObject], KindId]
"""A reference, the objects it means, and the kind of the configuration."""

CONNECTION_FIELDS = [
    pytest.param(kind, path, type_, id=f"{kind.name}.{'.'.join(path)}")
    for kind, path, type_ in NAMED
    if kind.namespaced and (type_ in CONNECTIONS or (type_ is SecretSelector and path[-1] == "secretRef"))
    if "auth" in path[-3:] or path[-1] in ("classRef", "providerRef") or path[0] == "tls"
    if "workloadIdentityFederation" not in path
]


def test_the_walk_finds_the_connections() -> None:
    """Four in each of v2 SecretStore, Generator and v1 plugin, eight in Provider (two spellings), one in a class."""
    assert len(CONNECTION_FIELDS) == 4 + 4 + 4 + 8 + 1


def _elsewhere() -> list[JsonObject]:
    """Everything of the same name in both namespaces, so that only the rules decide."""
    there = []
    for namespace in (HOME, AWAY):
        there += [
            obj(FAKE.api_version, "Fake", "theirs", namespace, spec={}),
            obj(PASSWORD.api_version, "Password", "theirs", namespace, spec={}),
        ]
    address = f"p.{CORE}.svc:8080"
    foreign = obj("external-secrets.io/v1alpha1", "ProviderClass", "theirs", AWAY, spec={"address": address})
    return [*there, foreign, provider_service("p", CORE)]


@pytest.mark.parametrize(("kind", "path", "type_"), CONNECTION_FIELDS)
async def test_connection(kind: CustomKind[Any], path: tuple[str, ...], type_: type) -> None:
    if kind.name == "ProviderClass":
        ref, documents, config_kind = _store_of_a_class(reference(type_))
    else:
        ref, documents, config_kind = _outer_object(kind, path, type_)
    role = KindRole.GENERATOR if config_kind is PASSWORD else KindRole.STORE

    namespaces, reason = await read_namespaces(ref, serving(config_kind, role=role), *documents, *_elsewhere())

    assert namespaces <= {HOME}
    assert reason is (Reason.CLASS_NOT_FOUND if type_ is ClassRef else Reason.CROSS_NAMESPACE)


def _outer_object(kind: CustomKind[Any], path: tuple[str, ...], type_: type) -> Case:
    """A store, provider or generator with that one reference, and a configuration of its own unless that is it."""
    making = kind.name == "Generator"
    config_kind = PASSWORD if making else FAKE
    spec = nested(path, reference(type_) | {"kind": "ProviderClass" if type_ is ClassRef else config_kind.kind})
    holder = spec
    for part in path[: path.index("auth")] if "auth" in path else path[:-1]:
        holder = holder[part]
    holder.setdefault("providerRef", {"kind": config_kind.kind, "name": "theirs"})
    api_version = f"{kind.group}/{kind.versions[0]}"
    ref = (GeneratorRef if making else StoreRef)(api_version=api_version, kind=kind.name, name="store")
    return ref, [obj(api_version, kind.name, "store", HOME, spec=spec, status=ready())], config_kind


def _store_of_a_class(secret_ref: JsonObject) -> Case:
    """A store whose class names that Secret."""
    tls = {"mode": "SecretRef", "secretRef": secret_ref}
    cls = obj("external-secrets.io/v1alpha1", "ProviderClass", "mine", HOME)
    cls["spec"] = {"address": f"p.{CORE}.svc:8080", "tls": tls}
    config = {
        "classRef": {"name": "mine", "kind": "ProviderClass"},
        "providerRef": {"kind": "Fake", "name": "theirs"},
    }
    store = obj(*V2_STORE, "store", HOME, spec={"providerConfig": config})
    return StoreRef(api_version=V2_STORE[0], kind=V2_STORE[1], name="store"), [cls, store], FAKE
