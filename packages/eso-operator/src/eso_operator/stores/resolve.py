"""Resolves a reference to a store in eleven stages. Each is a pure function of a snapshot with its own error reasons.

    reference -> form -> object -> controller class -> namespace -> configuration -> endpoint -> credentials
              -> channel -> gate -> handshake

`resolve` returns the store or raises the error of the stage that failed; `explain` returns the results of all stages.
All namespace rules are enforced here, at run time; admission checks are not relied on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.access import check_controller, check_ready, check_use
from eso_operator.stores.agreement import agree, bind_config, limited
from eso_operator.stores.authentication import Authentication, authenticate, call_token, secure
from eso_operator.stores.configuration import Configuration, configure
from eso_operator.stores.discovery import Located, locate
from eso_operator.stores.inputs import SERVICE, ClusterView, Need, ResolverSettings
from eso_operator.stores.loading import Referent, load_or_suggest, named
from eso_operator.stores.reference import check_gate, normalise, pick
from eso_operator.stores.resolved import CallToken, Connection, Reason, ResolutionError, ResolvedStore, TlsSource
from eso_wire.kinds import ObjectRef
from kubebase.meta import ObjectKey

T = TypeVar("T")

STAGES: Final = (
    "reference",
    "form",
    "object",
    "controller class",
    "namespace",
    "configuration",
    "endpoint",
    "credentials",
    "channel",
    "gate",
    "handshake",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage as `explain` shows it. `reason` is None if the stage passed."""

    name: str
    detail: str
    reason: Reason | None = None
    subject: ObjectRef | None = None
    """The object that the stage found, or that its error is about."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """The description of a stage that passed, and the object that it found."""

    detail: str
    subject: ObjectRef | None = None


def resolve(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> ResolvedStore:
    """Return the resolved store for one reference and one caller. Raises ResolutionError."""
    return _result(_to_store(ref, caller, need, view, settings))


def explain(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> tuple[Stage, ...]:
    """Return every stage with its result, up to the one that failed."""
    passed: list[Stage] = []
    try:
        for found in _to_store(ref, caller, need, view, settings):
            passed.append(Stage(STAGES[len(passed)], found.detail, subject=found.subject))
    except ResolutionError as error:
        passed.append(Stage(STAGES[len(passed)], error.message, error.reason, error.subject))
    return tuple(passed)


@dataclass(frozen=True, slots=True)
class _Channel:
    """The results of the first nine stages."""

    store: Referent
    configuration: Configuration
    located: Located
    tls: TlsSource
    authentication: Authentication
    token: CallToken | None

    @property
    def connection(self) -> Connection:
        return Connection(self.located.endpoint, self.tls)


def _to_channel(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> Generator[_Passed, None, _Channel]:
    """Run stages 1 to 9. Each yields a description after it has passed."""
    reference = normalise(ref, caller)
    yield _Passed(f"{reference.kind.kind} {reference.name} for {caller.kind} {caller.namespace}/{caller.name}")

    check_gate(reference, v2_stores=settings.v2_stores)
    picked = pick(reference, view)
    yield _Passed(f"{picked.form}, {picked.scope}")

    store = load_or_suggest(reference, picked, view)
    yield _Passed(f"{store} of {store.ref.api_version}, generation {store.ref.generation}", store.ref)

    check_controller(store, settings)
    yield _Passed(store.behaviour.controller or "any")

    check_use(store, caller, need, view)
    yield _Passed(f"{caller.namespace or 'none'} is allowed")

    configuration = configure(store, caller, view)
    config = configuration.ref
    yield _Passed(f"{configuration.wanted} in {config.kind} {config.namespace}/{config.name}", config)

    located = locate(store, caller, configuration=configuration, settings=settings, view=view)
    endpoint = located.endpoint
    yield _Passed(f"{endpoint.uri} ({endpoint.source}: {endpoint.label})", _provider_of(located))

    authentication = authenticate(store, caller, configuration, located)
    yield _Passed(f"from namespace {authentication.namespace or 'of each user'}; references: {configuration.rule}")

    tls = secure(store, located, settings)
    token = call_token(store, located, authentication.namespace)
    yield _Passed(f"{tls}, {'with' if token else 'without'} a token")

    return _Channel(store, configuration, located, tls, authentication, token)


def _to_store(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> Generator[_Passed, None, ResolvedStore]:
    """Run all stages. Each yields a description after it has passed."""
    channel = yield from _to_channel(ref, caller, need, view, settings)
    store, configuration, connection = channel.store, channel.configuration, channel.connection

    check_ready(store, need, settings, connection)
    yield _Passed(f"{store.behaviour.gating}: open")

    agreement = agree(store, connection, configuration, need, view)
    config = bind_config(store, configuration, agreement.info)
    handshake = limited(agreement.handshake, channel.located.provider_class)
    yield _Passed(f"{handshake.provider_name} {handshake.provider_version}, protocol {handshake.selected}")

    return ResolvedStore(
        form=store.form,
        role=store.role,
        store=store.ref,
        caller=caller,
        endpoint=connection.endpoint,
        tls=connection.tls,
        call_token=channel.token,
        config=config,
        auth_namespace=channel.authentication.namespace,
        pinned=channel.authentication.pinned,
        policy=store.behaviour.policy,
        handshake=handshake,
        operations=agreement.info.operations,
    )


def _provider_of(located: Located) -> ObjectRef | None:
    """Return the class of a provider, else its Service; None for an address outside the cluster."""
    if located.provider_class is not None:
        return located.provider_class.ref
    service = located.endpoint.service
    return None if service is None else named(SERVICE, ObjectKey(service.namespace, service.name))


def _result(stages: Generator[_Passed, None, T]) -> T:
    while True:
        try:
            next(stages)
        except StopIteration as done:
            result: T = done.value
            return result
