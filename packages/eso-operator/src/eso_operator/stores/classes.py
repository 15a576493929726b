"""Provider classes and labelled Services: the candidates for a provider, with what each declares to serve.

`discovery.py` chooses among them. This module opens no connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from eso_api.v2.connection import ClassRef
from eso_api.v2.providerclass import ClusterProviderClass, ProviderClass, ProviderClassSpec
from eso_operator.stores.access import check_namespace
from eso_operator.stores.addresses import author_of, endpoint_at, is_alias, service_endpoint
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS, SERVICE, ClusterView, ResolverSettings
from eso_operator.stores.loading import identified, identity, named, plain, typed
from eso_operator.stores.resolved import (
    Connection,
    Endpoint,
    EndpointSource,
    ManagedTls,
    Reason,
    ResolutionError,
    SecretTls,
    ServiceKey,
    TlsSource,
)
from eso_wire.kinds import KindId, ObjectRef
from kubebase.meta import JsonObject, ObjectKey, meta_of

PROVIDER_LABEL: Final = "external-secrets.io/provider"
KINDS_ANNOTATION: Final = "external-secrets.io/provider-kinds"
V1_KEYS_ANNOTATION: Final = "external-secrets.io/provider-v1-keys"
DEFAULT_ANNOTATION: Final = "external-secrets.io/provider-default"
PORT_NAME: Final = "grpc"

_TYPES: Final[dict[KindId, type[ProviderClass | ClusterProviderClass]]] = {
    CLASS: ProviderClass,
    CLUSTER_CLASS: ClusterProviderClass,
}


@dataclass(frozen=True, slots=True)
class Class:
    """A ProviderClass or ClusterProviderClass."""

    ref: ObjectRef
    spec: ProviderClassSpec


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible provider. If it declares nothing, only its handshake tells what it serves."""

    ref: ObjectRef
    endpoint: Endpoint
    tls: TlsSource
    kinds: frozenset[KindId] = frozenset()
    v1_keys: frozenset[str] = frozenset()
    default: bool = False
    provider_class: Class | None = None

    @property
    def connection(self) -> Connection:
        return Connection(self.endpoint, self.tls)


# --- classes ---------------------------------------------------------------------------------------------------------


def class_named(ref: ClassRef, namespace: str, subject: ObjectRef, view: ClusterView) -> Class:
    """Return the class that an object names. A ProviderClass is looked up in the namespace of the object."""
    kind = CLASS if ref.kind == CLASS.kind else CLUSTER_CLASS
    if kind is CLASS and not namespace:
        raise ResolutionError(
            Reason.CLASS_NOT_FOUND,
            f"{subject.kind} {subject.name} is cluster-scoped and has no namespace for ProviderClass {ref.name}: name a"
            " ClusterProviderClass",
            subject=subject,
        )
    key = ObjectKey(namespace if kind is CLASS else "", ref.name)
    found = view.objects.get(kind, key)
    if found is None:
        raise ResolutionError(
            Reason.CLASS_NOT_FOUND,
            f"{subject.kind} {subject.name} names {kind.kind} {key}, which does not exist: create it, or correct"
            " classRef",
            subject=named(kind, key),
        )
    return _class(kind, found)


def class_endpoint(cls: Class, *, settings: ResolverSettings, view: ClusterView) -> Endpoint:
    """Return the endpoint that a class names."""
    endpoint = endpoint_at(
        cls.spec.address,
        author_of(cls.ref, settings),
        source=EndpointSource.CLASS,
        settings=settings,
        view=view,
    )
    server_name = cls.spec.tls.server_name if cls.spec.tls else ""
    return replace(endpoint, label=cls.ref.name, server_name=server_name or endpoint.server_name)


def class_tls(cls: Class, endpoint: Endpoint, settings: ResolverSettings) -> TlsSource:
    """Return the certificates that a class asks for."""
    tls = cls.spec.tls
    if tls is None or tls.mode != "SecretRef":
        return managed_tls(endpoint, cls.ref)
    if tls.secret_ref is None:
        raise ResolutionError(
            Reason.INVALID_CONFIG,
            f"{cls.ref.kind} {cls.ref.name}: tls.mode SecretRef needs tls.secretRef",
            subject=cls.ref,
        )
    given = tls.secret_ref.namespace
    if cls.ref.namespace and given not in ("", cls.ref.namespace):
        raise ResolutionError(
            Reason.CROSS_NAMESPACE,
            f"{cls.ref.kind} {cls.ref.name}: tls.secretRef names namespace {given}; a namespaced object may only use"
            f" its own namespace {cls.ref.namespace}",
            subject=cls.ref,
        )
    if endpoint.service in settings.trusted:
        return managed_tls(endpoint, cls.ref)
    return SecretTls(cls.ref.namespace or given or settings.core_namespace, tls.secret_ref.name)


def managed_tls(endpoint: Endpoint, subject: ObjectRef) -> ManagedTls:
    """Return managed certificates. Raises ResolutionError if the endpoint is not a Service: none can be issued."""
    if endpoint.service is None:
        raise ResolutionError(
            Reason.CERTIFICATE_REQUIRED,
            f"{subject.kind} {subject.name}: its address is not a Service, so no certificate can be issued for it: name"
            " a Secret with tls.crt, tls.key and ca.crt in auth.clientCertificate.secretRef (class: tls.secretRef)",
            subject=subject,
        )
    return ManagedTls(endpoint.service)


def class_connection(kind: KindId, obj: Any, *, settings: ResolverSettings, view: ClusterView) -> Connection:
    """Return the connection to the provider of a class, for the controller of classes."""
    cls = _class(kind, obj)
    check_namespace(cls.spec.allowed_namespaces, "", cls.ref, view)
    endpoint = class_endpoint(cls, settings=settings, view=view)
    return Connection(endpoint, class_tls(cls, endpoint, settings))


def cluster_classes_at(endpoint: Endpoint, *, settings: ResolverSettings, view: ClusterView) -> Iterator[Class]:
    """Yield the ClusterProviderClasses of the provider at an endpoint, including those with unusable TLS settings."""
    for obj in view.objects.list(CLUSTER_CLASS):
        try:
            cls = _class(CLUSTER_CLASS, obj)
            place = class_endpoint(cls, settings=settings, view=view)
        except ResolutionError:
            continue
        if place.uri == endpoint.uri:
            yield cls


def class_candidates(
    kind: KindId, namespace: str, *, settings: ResolverSettings, view: ClusterView
) -> Iterator[Candidate]:
    """Yield the classes of one kind (in one namespace), without those that cannot be used."""
    for obj in view.objects.list(kind, namespace):
        try:
            cls = _class(kind, obj)
            endpoint = class_endpoint(cls, settings=settings, view=view)
            tls = class_tls(cls, endpoint, settings)
        except ResolutionError:
            continue
        yield Candidate(
            ref=cls.ref,
            endpoint=endpoint,
            tls=tls,
            kinds=frozenset(KindId(served.group, served.version, served.kind) for served in cls.spec.serves),
            v1_keys=frozenset(cls.spec.v1_provider_keys),
            default=_is_default(meta_of(obj).annotations),
            provider_class=cls,
        )


def _class(kind: KindId, obj: Any) -> Class:
    ref = identity(kind, obj)
    return Class(ref, typed(obj, _TYPES[kind], ref).spec)


# --- Services --------------------------------------------------------------------------------------------------------


def service_candidates(namespace: str, settings: ResolverSettings, view: ClusterView) -> Iterator[Candidate]:
    """Yield the labelled Services of one namespace, if it may have providers."""
    if not settings.may_have_providers(namespace):
        return
    for obj in view.objects.list(SERVICE, namespace):
        if meta_of(obj).labels.get(PROVIDER_LABEL) == "true" and (found := service_candidate(obj, settings)):
            yield found


def service_candidate(
    obj: Any, settings: ResolverSettings, source: EndpointSource = EndpointSource.LABEL
) -> Candidate | None:
    """Return a Service as a candidate; None if it has no port for gRPC or is an alias."""
    meta = meta_of(obj)
    ref = identified(SERVICE, meta)
    port = _port(plain(obj, ref))
    if port is None:
        return None
    service = ServiceKey(meta.namespace, meta.name)
    kinds, v1_keys = announced(meta.annotations)
    return Candidate(
        ref=ref,
        endpoint=service_endpoint(service, port, source, settings),
        tls=ManagedTls(service),
        kinds=kinds,
        v1_keys=v1_keys,
        default=_is_default(meta.annotations),
    )


def announced(annotations: Mapping[str, str]) -> tuple[frozenset[KindId], frozenset[str]]:
    """Return the kinds and the keys of v1 stores that a Service says its provider serves."""
    kinds = frozenset(_kinds(annotations.get(KINDS_ANNOTATION, "")))
    return kinds, frozenset(_listed(annotations.get(V1_KEYS_ANNOTATION, "")))


def trusted_candidates(settings: ResolverSettings) -> Iterator[Candidate]:
    """Yield the Services of `--trusted-provider`. They need no Service object: a handshake tells what they serve."""
    for service in (service for service in settings.trusted if service not in settings.expected):
        ref = ObjectRef(api_version="v1", kind="Service", namespace=service.namespace, name=service.name)
        yield Candidate(
            ref=ref,
            endpoint=service_endpoint(service, 0, EndpointSource.LABEL, settings),
            tls=ManagedTls(service),
        )


def _port(service: JsonObject) -> int | None:
    spec = service.get("spec")
    if not isinstance(spec, dict) or is_alias(service):
        return None
    ports = [entry for entry in spec.get("ports") or () if isinstance(entry, dict)]
    chosen = [entry for entry in ports if entry.get("name") == PORT_NAME] or (ports if len(ports) == 1 else [])
    port = chosen[0].get("port") if chosen else None
    return port if isinstance(port, int) else None


def _kinds(annotation: str) -> Iterator[KindId]:
    """Parse `Kind.version.group, …`; skip invalid entries."""
    for entry in _listed(annotation):
        kind, _, rest = entry.partition(".")
        version, _, group = rest.partition(".")
        if kind and version and group:
            yield KindId(group, version, kind)


def _listed(annotation: str) -> list[str]:
    return [entry.strip() for entry in annotation.split(",") if entry.strip()]


def _is_default(annotations: dict[str, str]) -> bool:
    return annotations.get(DEFAULT_ANNOTATION) == "true"
