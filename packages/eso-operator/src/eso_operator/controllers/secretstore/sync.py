"""Validates the configuration of a store with its provider: resolve, bind, validate.

    store -> Resolver -> ResolvedStore -> bind -> BoundStore -> gateway.validate -> Verdict

Any failure on the way is a verdict too, with its cause. The dependencies of the verdict are returned with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.controllers.secretstore.status import (
    INVALID_PROVIDER_CONFIG,
    Broken,
    PerCaller,
    ProviderFacts,
    Starting,
    Throttled,
    Unverified,
    Valid,
    Verdict,
)
from eso_operator.dependencies import ANY_PROVIDER, Dependency, OnLabel, on_connection, on_object
from eso_operator.providers.errors import StoreHealth, cause_of, effect_of, is_infrastructure
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import (
    VALIDATION,
    Bind,
    Reason,
    ResolutionError,
    ResolvedStore,
    SecretTls,
    TlsSource,
)
from eso_wire.errors import ProviderError
from eso_wire.values import KindRole, ObjectRef, Validation, ValidationState
from kubebase.meta import ObjectMeta

_THROTTLE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Validated:
    """A verdict with its dependencies."""

    verdict: Verdict
    depends_on: frozenset[Dependency]


class Validator:
    """Validates stores. The process has one."""

    def __init__(self, resolver: Resolver, bind: Bind, gateway: Gateway) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway

    async def validate(self, kind: StoreKind, store: ObjectMeta) -> Validated:
        """Return the verdict of the provider.

        A store never depends on itself: every status write would wake it again.
        """
        validated = await self._validate(kind, store)
        return Validated(validated.verdict, validated.depends_on - {on_object(_itself(kind, store))})

    async def _validate(self, kind: StoreKind, store: ObjectMeta) -> Validated:
        resolved: ResolvedStore | None = None
        sources: frozenset[Dependency] = frozenset()
        try:
            resolved = await self._resolver.resolve(_reference(kind, store), _itself(kind, store), VALIDATION)
            bound = await self._bind(resolved)
            sources = frozenset(on_object(source) for source in bound.sources)
            verdict = verdict_of(resolved, await self._gateway.validate(bound))
        except ResolutionError as error:
            return _unresolved(error, resolved)
        except ProviderError as error:
            return Validated(verdict_of_error(error), _of_target(resolved) | sources | _waiting(resolved, error))
        return Validated(verdict, _of_target(resolved) | sources)


def verdict_of(resolved: ResolvedStore, validation: Validation) -> Verdict:
    """Return the verdict for the response of a provider."""
    known = resolved.operations if validation.operations is None else validation.operations & resolved.operations
    facts = ProviderFacts(known, _maintenance(resolved), validation.conditions, validation.warnings)
    error = validation.error
    match validation.state:
        case ValidationState.READY:
            return Valid(facts)
        case ValidationState.UNKNOWN:
            message = "the provider can tell only when the store is used"
            return PerCaller(facts, message) if error is None else Unverified(facts, error.message)
        case ValidationState.INVALID:
            message = "the provider refuses this configuration and does not say why"
            return Broken(INVALID_PROVIDER_CONFIG, message) if error is None else verdict_of_error(error)
        case _:
            assert_never(validation.state)


def verdict_of_error(error: ProviderError) -> Verdict:
    """Return the verdict for a failed call."""
    if effect_of(error).store_health is StoreHealth.THROTTLED:
        return Throttled(error.message, error.retry_after or _THROTTLE_SECONDS)
    return Broken(cause_of(error), error.message, error.retry_after)


def _unresolved(error: ResolutionError, resolved: ResolvedStore | None) -> Validated:
    depends_on = _of_target(resolved) | {on_object(error.subject)}
    if error.reason is Reason.REFERENT_AUTH and resolved is not None:
        return Validated(
            PerCaller(ProviderFacts(resolved.operations, _maintenance(resolved)), error.message), depends_on
        )
    depends_on |= {ANY_PROVIDER}
    if error.waits > 0:
        return Validated(Starting(error.reason.value, error.message, error.waits), depends_on)
    return Validated(Broken(error.reason.value, error.message), depends_on)


def _reference(kind: StoreKind, store: ObjectMeta) -> StoreRef | GeneratorRef:
    api_version, name = kind.resource.api_version, kind.resource.kind
    match kind.role:
        case KindRole.STORE:
            return StoreRef(api_version=api_version, kind=name, name=store.name)
        case KindRole.GENERATOR:
            return GeneratorRef(api_version=api_version, kind=name, name=store.name)
        case _:
            assert_never(kind.role)


def _itself(kind: StoreKind, store: ObjectMeta) -> ObjectRef:
    """Return the store as the caller. A cluster-scoped store has no namespace."""
    return ObjectRef(
        api_version=kind.resource.api_version,
        kind=kind.resource.kind,
        namespace=store.namespace,
        name=store.name,
        uid=store.uid,
        generation=store.generation,
    )


def _of_target(resolved: ResolvedStore | None) -> frozenset[Dependency]:
    if resolved is None:
        return frozenset()
    provider: set[Dependency] = {on_connection(resolved.connection), OnLabel(resolved.endpoint.label)}
    return frozenset({*provider, *_certificates(resolved.tls), on_object(resolved.config.ref)})


def _certificates(tls: TlsSource) -> Iterator[Dependency]:
    """Yield the Secret that a user wrote; the issuer takes care of managed ones."""
    if isinstance(tls, SecretTls):
        yield on_object(ObjectRef(api_version="v1", kind="Secret", namespace=tls.namespace, name=tls.name))


def _waiting(resolved: ResolvedStore | None, error: ProviderError) -> frozenset[Dependency]:
    """Return the dependency on the appearance of any provider, for a store without a connection."""
    return frozenset({ANY_PROVIDER}) if resolved is None or is_infrastructure(error) else frozenset()


def _maintenance(resolved: ResolvedStore) -> str:
    kinds = {info.kind: info for info in resolved.handshake.kinds}
    info = kinds.get(resolved.config.kind)
    return info.maintenance if info is not None else ""
