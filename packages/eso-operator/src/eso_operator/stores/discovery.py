"""Stage 7: the endpoint of the provider: by explicit address, else by class, else found by what it serves.

    1  the namespace of the store, if it has one: ProviderClasses; labelled Services, if it may have providers
    2  ClusterProviderClasses
    3  the shared provider namespaces: labelled Services; trusted Services
    4  Services by name, if that is turned on

The first level with a match decides. Only stores of the same namespace find the Service of a tenant. A cluster-scoped
store never does, because its credentials may belong to another team. A candidate that declares nothing needs a
handshake before it can be skipped, so that the result does not depend on which provider answered first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from eso_api.stores.projectproviders import REMOVED_UPSTREAM, STORES
from eso_api.v2.connection import ProviderConfig
from eso_operator.stores.access import check_namespace
from eso_operator.stores.addresses import author_of, endpoint_at
from eso_operator.stores.agreement import incompatible
from eso_operator.stores.classes import (
    PROVIDER_LABEL,
    Candidate,
    Class,
    class_candidates,
    class_endpoint,
    class_named,
    cluster_classes_at,
    service_candidate,
    service_candidates,
    trusted_candidates,
)
from eso_operator.stores.configuration import Configuration, Wanted, WantedGenerator, WantedKey, WantedKind
from eso_operator.stores.inputs import CLASS, CLUSTER_CLASS, SERVICE, ClusterView, ResolverSettings
from eso_operator.stores.loading import Referent
from eso_operator.stores.resolved import Endpoint, EndpointSource, Form, Reason, ResolutionError
from eso_wire.errors import RetryClass
from eso_wire.kinds import Handshake, ObjectRef
from kubebase.meta import ObjectKey, meta_of

_NAMED: Final = 3
"""The most Services that a message names."""


@dataclass(frozen=True, slots=True)
class Located:
    """The endpoint of the provider, and the class that names it, if any."""

    endpoint: Endpoint
    provider_class: Class | None = None


def locate(
    store: Referent,
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
    store: Referent, address: str, caller: ObjectRef, settings: ResolverSettings, view: ClusterView
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
    store: Referent
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
