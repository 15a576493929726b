"""Stage 7: the endpoint of the provider: by explicit address, else by class, else found by what it serves.

    1  the namespace of the store, if it has one: ProviderClasses; labelled Services, if it may have providers
    2  ClusterProviderClasses
    3  the shared provider namespaces: labelled Services; trusted Services
    4  Services by name, if that is turned on

The first level with a match decides. Only stores of the same namespace find the Service of a tenant. A cluster-scoped
store never does, because its credentials may belong to another team. A candidate that declares nothing needs a
handshake before it can be skipped, so that the result does not depend on which provider answered first. This module
opens no connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Final

from eso_api.stores.projectproviders import REMOVED_UPSTREAM, STORES
from eso_api.v2.connection import ClassRef, ProviderConfig
from eso_api.v2.providerclass import ClusterProviderClass, ProviderClass, ProviderClassSpec
from eso_operator.stores.access import check_namespace
from eso_operator.stores.addresses import author_of, endpoint_at, is_alias, service_endpoint
from eso_operator.stores.configuration import (
    Configuration,
    Wanted,
    WantedGenerator,
    WantedKey,
    WantedKind,
    incompatible,
)
from eso_operator.stores.loading import LoadedStore, identified, identity, named, plain, seconds_of, typed
from eso_operator.stores.resolved import (
    CLASS,
    CLUSTER_CLASS,
    SERVICE,
    ClusterView,
    Connection,
    Endpoint,
    EndpointSource,
    Form,
    ManagedTls,
    Reason,
    ResolutionError,
    ResolverSettings,
    SecretTls,
    ServiceKey,
    TlsSource,
)
from eso_wire.errors import RetryClass
from eso_wire.kinds import Handshake, KindId, Limits, ObjectRef
from kubebase.meta import JsonObject, ObjectKey, meta_of

# --- candidates: classes ---------------------------------------------------------------------------------------------

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


# --- choice ----------------------------------------------------------------------------------------------------------

_NAMED: Final = 3
"""The most Services that a message names."""


@dataclass(frozen=True, slots=True)
class Located:
    """The endpoint of the provider, and the class that names it, if any."""

    endpoint: Endpoint
    provider_class: Class | None = None


def locate(
    store: LoadedStore,
    caller: ObjectRef,
    *,
    configuration: Configuration,
    settings: ResolverSettings,
    view: ClusterView,
) -> Located:
    """Return the provider of a store. Raises ResolutionError if there is none or this caller may not use it."""
    config = store.source if isinstance(store.source, ProviderConfig) else None
    if config is not None and config.address:
        return _explicit(store, config.address, caller, settings, view)
    if config is not None and config.class_ref is not None:
        cls = class_named(config.class_ref, store.ref.namespace, store.ref, view)
        check_namespace(cls.spec.allowed_namespaces, caller.namespace, cls.ref, view)
        endpoint = class_endpoint(cls, settings=settings, view=view)
        _check_classes_of(endpoint, cls, caller, settings, view)
        return Located(endpoint, cls)
    found = _Search(store, caller, configuration, settings, view).run()
    endpoint = found.endpoint
    _check_classes_of(endpoint, found.provider_class, caller, settings, view)
    if store.form in (Form.V1, Form.V1_GENERATOR):
        endpoint = replace(endpoint, source=EndpointSource.BRIDGE)
    return Located(endpoint, found.provider_class)


def _explicit(
    store: LoadedStore, address: str, caller: ObjectRef, settings: ResolverSettings, view: ClusterView
) -> Located:
    endpoint = endpoint_at(
        address,
        author_of(store.ref, settings),
        source=EndpointSource.EXPLICIT,
        settings=settings,
        view=view,
    )
    _check_classes_of(endpoint, None, caller, settings, view)
    return Located(endpoint)


def _check_classes_of(
    endpoint: Endpoint, by: Class | None, caller: ObjectRef, settings: ResolverSettings, view: ClusterView
) -> None:
    """Refuse a caller that no ClusterProviderClass of this provider allows.

    The check also covers callers that reach the provider by address, by Service or by a ProviderClass, which they
    could otherwise use to bypass `allowedNamespaces`.
    """
    if by is not None and not by.ref.namespace:
        return
    refusal: ResolutionError | None = None
    for cls in cluster_classes_at(endpoint, settings=settings, view=view):
        try:
            check_namespace(cls.spec.allowed_namespaces, caller.namespace, cls.ref, view)
        except ResolutionError as error:
            refusal = error
        else:
            return  # one class that allows the caller is enough
    if refusal is not None:
        raise refusal


class _Verdict(Enum):
    YES = auto()
    NO = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class _Unreached:
    """A candidate that was not reached, so that it is unknown what it serves."""

    candidate: Candidate
    why: str

    def __str__(self) -> str:
        return f"{self.candidate.endpoint.label}: {self.why}"


_Failure = _Unreached | ResolutionError
"""Why a candidate was skipped: it was not reached, or it serves this kind with an incompatible protocol."""


@dataclass(frozen=True, slots=True)
class _Search:
    store: LoadedStore
    caller: ObjectRef
    configuration: Configuration
    settings: ResolverSettings
    view: ClusterView

    def run(self) -> Candidate:
        failures: list[_Failure] = []
        for level in self._levels():
            if found := self._choose(_without_doubles(level), failures):
                return found
        for failure in failures:
            if isinstance(failure, ResolutionError):
                raise failure
        raise self._not_installed([failure for failure in failures if isinstance(failure, _Unreached)])

    def _levels(self) -> Iterator[Iterable[Candidate]]:
        settings, view, namespace = self.settings, self.view, self.store.ref.namespace
        if namespace:
            yield [
                *class_candidates(CLASS, namespace, settings=settings, view=view),
                *service_candidates(namespace, settings, view),
            ]
        yield class_candidates(CLUSTER_CLASS, "", settings=settings, view=view)
        shared = [
            found for namespace in settings.shared_namespaces for found in service_candidates(namespace, settings, view)
        ]
        yield [*shared, *trusted_candidates(settings)]
        if settings.naming_convention:
            yield from ([found] for found in self._by_name(namespace))

    def _choose(self, level: Sequence[Candidate], failures: list[_Failure]) -> Candidate | None:
        verdicts = [(found, self._verdict(found, failures)) for found in level]
        matching = [found for found, verdict in verdicts if verdict is _Verdict.YES]
        if matching:
            return self._only(_allowed(matching, self.caller.namespace, self.view))
        for found, verdict in verdicts:
            if verdict is _Verdict.UNKNOWN:
                raise ResolutionError(
                    Reason.NOT_CONNECTED,
                    f"{self.store}: {found.endpoint.label} has not said yet what it serves",
                    subject=found.ref,
                    retry=RetryClass.BACKOFF,
                    connection=found.connection,
                )
        return None

    def _verdict(self, candidate: Candidate, failures: list[_Failure]) -> _Verdict:
        if candidate.endpoint.source is EndpointSource.NAMING:
            return _Verdict.YES
        wanted = self.configuration.wanted
        declared = _declared(candidate, wanted)
        if declared is not None:
            return _Verdict.YES if declared else _Verdict.NO
        match self.view.handshakes.get(candidate.connection.key):
            case None:
                return _Verdict.UNKNOWN
            case Handshake() as handshake:
                if wanted.served(handshake, self.configuration.spec) is None:
                    return _Verdict.NO
                if handshake.selected is None:
                    failures.append(incompatible(self.store, candidate.endpoint.label, handshake))
                    return _Verdict.NO
                return _Verdict.YES
            case str() as failure:
                failures.append(_Unreached(candidate, failure))
                return _Verdict.NO

    def _only(self, matching: Sequence[Candidate]) -> Candidate:
        marked = [found for found in matching if found.default]
        if len(marked) == 1:
            return marked[0]
        if len({found.endpoint.uri for found in matching}) == 1:
            return matching[0]  # classes of one provider
        names = ", ".join(sorted(_shown(found.ref) for found in matching))
        raise ResolutionError(
            Reason.AMBIGUOUS,
            f"{self.store}: {self.configuration.wanted} is served by {names}: name one in classRef or address, or mark"
            ' exactly one with the annotation external-secrets.io/provider-default: "true"',
            subject=self.store.ref,
        )

    def _by_name(self, namespace: str) -> Iterator[Candidate]:
        wanted = self.configuration.wanted
        match wanted:
            case WantedKey(key=key):
                names = [f"provider-{key.lower()}"]
            case WantedKind(kind=kind) | WantedGenerator(kind=kind):
                names = [
                    f"{kind.kind.lower()}-{self.configuration.ref.name}",
                    f"provider-{self.configuration.ref.name}",
                ]
        own = [namespace] if namespace and self.settings.may_have_providers(namespace) else []
        for searched in dict.fromkeys((*own, *self.settings.shared_namespaces)):
            for name in names:
                obj = self.view.objects.get(SERVICE, ObjectKey(searched, name))
                found = service_candidate(obj, self.settings, EndpointSource.NAMING) if obj is not None else None
                if found is not None:
                    yield found

    def _not_installed(self, failures: list[_Unreached]) -> ResolutionError:
        wanted = self.configuration.wanted
        match wanted:
            case WantedKey(key=key):
                how = _remedy(key)
            case _:
                how = "install it, name its address or class, or list the kind in serves of its ClusterProviderClass"
        unreachable = f"; not reached: {'; '.join(map(str, failures))}" if failures else ""
        return ResolutionError(
            Reason.NOT_INSTALLED,
            f"{self.store}: no installed provider handles {wanted}: {how}{unreachable}{self._ignored()}",
            subject=self.store.ref,
            retry=RetryClass.BACKOFF if failures else RetryClass.AFTER_CHANGE,
            unreached=tuple(failure.candidate.connection for failure in failures),
            expected=str(wanted) if self._may_start() else "",
        )

    def _may_start(self) -> bool:
        """Return whether `eso up` can start another provider: one that is expected and has no Service yet."""
        services = (ObjectKey(service.namespace, service.name) for service in self.settings.expected)
        return any(self.view.objects.get(SERVICE, key) is None for key in services)

    def _ignored(self) -> str:
        """Return a hint about labelled Services in the store's namespace, which may not have providers."""
        namespace = self.store.ref.namespace
        if not namespace or self.settings.may_have_providers(namespace):
            return ""
        metas = [meta_of(obj) for obj in self.view.objects.list(SERVICE, namespace)]
        names = sorted(meta.name for meta in metas if meta.labels.get(PROVIDER_LABEL) == "true")
        if not names:
            return ""
        return (
            f"; Service {', '.join(names[:_NAMED])} of namespace {namespace} is ignored: the operator uses providers of"
            f" {', '.join(self.settings.shared_namespaces)} (--provider-namespace, --namespaced-providers)"
        )


def _remedy(key: str) -> str:
    """Say how a store with a key that no provider handles can work."""
    if key in REMOVED_UPSTREAM:
        return (
            f'upstream removed the backend "{key}", and it is not available here; move the values to another backend,'
            " and change spec.provider"
        )
    own = "list the key in v1ProviderKeys of the ClusterProviderClass of a provider that handles it"
    if (name := STORES.get(key)) is None:
        return f'a provider for "{key}" is not available yet; use another backend, or {own}'
    return (
        f'install the provider for "{key}": package eso-provider-{name}, or providers.{name}.enabled=true of the chart'
        f" external-secrets; or {own}"
    )


def _declared(candidate: Candidate, wanted: Wanted) -> bool | None:
    """Return whether the candidate declares to serve this; None if it declares nothing."""
    match wanted:
        case WantedKey():
            return wanted.declared(candidate.v1_keys) if candidate.v1_keys else None
        case WantedKind() | WantedGenerator():
            return wanted.declared(candidate.kinds) if candidate.kinds else None


def _allowed(candidates: Sequence[Candidate], namespace: str, view: ClusterView) -> list[Candidate]:
    """Return the candidates that the namespace may use. Raises the last refusal if there are none."""
    allowed = []
    refusal: ResolutionError | None = None
    for found in candidates:
        try:
            if found.provider_class is not None:
                check_namespace(found.provider_class.spec.allowed_namespaces, namespace, found.ref, view)
            allowed.append(found)
        except ResolutionError as error:
            refusal = error
    if not allowed and refusal is not None:
        raise refusal
    return allowed


def _without_doubles(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Drop Services that a class also names: both are one provider, and the class decides.

    All classes of one provider stay: each may be for other kinds or namespaces.
    """
    classes: list[Candidate] = []
    services: dict[str, Candidate] = {}
    for found in candidates:
        if found.provider_class is not None:
            classes.append(found)
        else:
            services.setdefault(found.endpoint.uri, found)
    spoken_for = {found.endpoint.uri for found in classes}
    return [*classes, *(found for resolved, found in services.items() if resolved not in spoken_for)]


def _shown(ref: ObjectRef) -> str:
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def limited(handshake: Handshake, cls: Class | None) -> Handshake:
    """Return the handshake with the tighter of the provider's limits and those of the class."""
    given = cls.spec.limits if cls is not None else None
    if cls is None or given is None:
        return handshake
    own = handshake.limits
    deadline = seconds_of(given.max_deadline, "spec.limits.maxDeadline", cls.ref)
    limits = Limits(
        max_batch_items=int(_tighter(own.max_batch_items, given.max_batch_items)),
        max_message_bytes=int(_tighter(own.max_message_bytes, given.max_message_bytes)),
        max_in_flight=int(_tighter(own.max_in_flight, given.max_in_flight)),
        max_deadline=_tighter(own.max_deadline, deadline),
    )
    return replace(handshake, limits=limits)


def _tighter(own: float, given: float | None) -> float:
    """Return the smaller limit. 0 and None mean no limit."""
    return min((limit for limit in (own, given) if limit), default=0)
