"""Asks the provider of a store whether its configuration works: resolve, bind, validate.

    store -> Resolver -> ResolvedTarget -> bind -> BoundTarget -> gateway.validate -> Verdict

Whatever goes wrong on the way is a verdict too, with the cause by name, and what the verdict depends on is remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, assert_never

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.providers.errors import StoreHealth, effect_of, is_infrastructure
from eso_operator.secretstore.kinds import StoreKind
from eso_operator.secretstore.outcome import INVALID_PROVIDER_CONFIG
from eso_operator.secretstore.verdict import Answer, Broken, Referent, Throttled, Unverified, Valid, Verdict
from eso_operator.stores.need import VALIDATION
from eso_operator.stores.target import BoundTarget, Reason, ResolutionError, ResolvedTarget, SecretTls, TlsSource
from eso_operator.sync.dependencies import ANY_PROVIDER, Dependency, OnLabel, on_connection, on_object
from eso_operator.sync.reporting import cause_of
from eso_operator.sync.resolver import Resolver
from eso_wire.errors import ProviderError
from eso_wire.values import KindRole, ObjectRef, Validation, ValidationState
from kuberun.meta import ObjectMeta

Bind = Callable[[ResolvedTarget], Awaitable[BoundTarget]]

_THROTTLE_SECONDS: Final = 30.0


class Validates(Protocol):
    """The part of the gateway that is needed here."""

    async def validate(self, bound: BoundTarget) -> Validation: ...


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, and what it depends on."""

    verdict: Verdict
    depends_on: frozenset[Dependency]


class Validator:
    """One for the whole process."""

    def __init__(self, resolver: Resolver, bind: Bind, gateway: Validates) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway

    async def find_out(self, kind: StoreKind, store: ObjectMeta) -> Finding:
        """What its provider thinks of a store, which never depends on itself: every write would wake it again."""
        finding = await self._found_out(kind, store)
        return Finding(finding.verdict, finding.depends_on - {on_object(_itself(kind, store))})

    async def _found_out(self, kind: StoreKind, store: ObjectMeta) -> Finding:
        target: ResolvedTarget | None = None
        sources: frozenset[Dependency] = frozenset()
        try:
            target = await self._resolver.resolve(_reference(kind, store), _itself(kind, store), VALIDATION)
            bound = await self._bind(target)
            sources = frozenset(on_object(source) for source in bound.sources)
            verdict = verdict_of(target, await self._gateway.validate(bound))
        except ResolutionError as error:
            return _unresolved(error, target)
        except ProviderError as error:
            return Finding(verdict_of_error(error), _of_target(target) | sources | _waiting(target, error))
        return Finding(verdict, _of_target(target) | sources)


def verdict_of(target: ResolvedTarget, validation: Validation) -> Verdict:
    """What a provider's word comes to."""
    known = target.operations if validation.operations is None else validation.operations & target.operations
    answer = Answer(known, _maintenance(target), validation.conditions, validation.warnings)
    error = validation.error
    match validation.state:
        case ValidationState.READY:
            return Valid(answer)
        case ValidationState.UNKNOWN:
            untold = "the provider can tell only when the store is used"
            return Referent(answer, untold) if error is None else Unverified(answer, error.message)
        case ValidationState.INVALID:
            untold = "the provider refuses this configuration and does not say why"
            return Broken(INVALID_PROVIDER_CONFIG, untold) if error is None else verdict_of_error(error)
        case _:
            assert_never(validation.state)


def verdict_of_error(error: ProviderError) -> Verdict:
    """What a failed call says about the store it was made for."""
    if effect_of(error).store_health is StoreHealth.THROTTLED:
        return Throttled(error.message, error.retry_after or _THROTTLE_SECONDS)
    return Broken(cause_of(error), error.message, error.retry_after)


def _unresolved(error: ResolutionError, target: ResolvedTarget | None) -> Finding:
    depends_on = _of_target(target) | {on_object(error.subject)}
    if error.reason is Reason.REFERENT_AUTH and target is not None:
        return Finding(Referent(Answer(target.operations, _maintenance(target)), error.message), depends_on)
    return Finding(Broken(error.reason.value, error.message), depends_on | {ANY_PROVIDER})


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
    """Who asks: the store. A cluster-scoped one asks from no namespace."""
    return ObjectRef(
        api_version=kind.resource.api_version,
        kind=kind.resource.kind,
        namespace=store.namespace,
        name=store.name,
        uid=store.uid,
        generation=store.generation,
    )


def _of_target(target: ResolvedTarget | None) -> frozenset[Dependency]:
    if target is None:
        return frozenset()
    provider: set[Dependency] = {on_connection(target.connection), OnLabel(target.endpoint.label)}
    return frozenset({*provider, *_certificates(target.tls), on_object(target.config.ref)})


def _certificates(tls: TlsSource) -> Iterator[Dependency]:
    """The Secret that somebody wrote; managed ones are seen to by the issuer."""
    if isinstance(tls, SecretTls):
        yield on_object(ObjectRef(api_version="v1", kind="Secret", namespace=tls.namespace, name=tls.name))


def _waiting(target: ResolvedTarget | None, error: ProviderError) -> frozenset[Dependency]:
    """A store without a connection hears of every provider that appears."""
    return frozenset({ANY_PROVIDER}) if target is None or is_infrastructure(error) else frozenset()


def _maintenance(target: ResolvedTarget) -> str:
    kinds = {info.kind: info for info in target.handshake.kinds}
    info = kinds.get(target.config.kind)
    return info.maintenance if info is not None else ""
