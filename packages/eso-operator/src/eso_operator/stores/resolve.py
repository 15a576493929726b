"""From a reference to a target: eleven stages, each pure over a snapshot, each with reasons of its own.

    reference -> form -> object -> controller class -> namespace -> configuration -> endpoint -> credentials
              -> channel -> gate -> handshake

`resolve` gives the target or raises the first stage's error; `explain` tells the story stage by stage. All rules about
namespaces are enforced here at run time, whatever was or was not checked when the objects were written.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.access import check_controller, check_use
from eso_operator.stores.agreement import agree, bind_config, limited
from eso_operator.stores.authentication import Authentication, authenticate
from eso_operator.stores.channel import call_token, secure
from eso_operator.stores.configuration import Configuration, configure
from eso_operator.stores.discovery import Located, locate
from eso_operator.stores.gate import check_ready
from eso_operator.stores.loading import load
from eso_operator.stores.need import Need
from eso_operator.stores.reference import normalise, pick
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.snapshot import Snapshot
from eso_operator.stores.store import Store
from eso_operator.stores.target import CallToken, Connection, Reason, ResolutionError, ResolvedTarget, TlsSource
from eso_wire.values import ObjectRef

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
    """One stage as `explain` shows it. `reason` is None when it passed."""

    name: str
    detail: str
    reason: Reason | None = None


def resolve(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    snapshot: Snapshot,
    settings: ResolverSettings,
) -> ResolvedTarget:
    """Everything about how a provider is called for one reference and one caller."""
    return _result(_to_target(ref, caller, need, snapshot, settings))


def explain(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    snapshot: Snapshot,
    settings: ResolverSettings,
) -> tuple[Stage, ...]:
    """Every stage with what it found, up to the one that failed."""
    passed: list[Stage] = []
    try:
        for detail in _to_target(ref, caller, need, snapshot, settings):
            passed.append(Stage(STAGES[len(passed)], detail))
    except ResolutionError as error:
        passed.append(Stage(STAGES[len(passed)], error.message, error.reason))
    return tuple(passed)


@dataclass(frozen=True, slots=True)
class _Channel:
    """What the first nine stages found."""

    store: Store
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
    snapshot: Snapshot,
    settings: ResolverSettings,
) -> Generator[str, None, _Channel]:
    """Stages 1 to 9. Each yields what to show once it has passed."""
    reference = normalise(ref, caller)
    yield f"{reference.kind.kind} {reference.name} for {caller.kind} {caller.namespace}/{caller.name}"

    picked = pick(reference, snapshot)
    yield f"{picked.form}, {picked.scope}"

    store = load(reference, picked, snapshot)
    yield f"{store} of {store.ref.api_version}, generation {store.ref.generation}"

    check_controller(store, settings)
    yield store.behaviour.controller or "any"

    check_use(store, caller, need, snapshot)
    yield f"{caller.namespace or 'none'} is allowed"

    configuration = configure(store, caller, snapshot)
    yield f"{configuration.wanted} in {configuration.ref.kind} {configuration.ref.namespace}/{configuration.ref.name}"

    located = locate(store, caller, configuration=configuration, settings=settings, snapshot=snapshot)
    yield f"{located.endpoint.target} ({located.endpoint.source}: {located.endpoint.label})"

    authentication = authenticate(store, caller, configuration, located)
    yield f"from namespace {authentication.namespace or 'of each user'}; references: {configuration.rule}"

    tls = secure(store, located, settings)
    token = call_token(store, located, authentication.namespace)
    yield f"{tls}, {'with' if token else 'without'} a token"

    return _Channel(store, configuration, located, tls, authentication, token)


def _to_target(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    need: Need,
    snapshot: Snapshot,
    settings: ResolverSettings,
) -> Generator[str, None, ResolvedTarget]:
    """All stages."""
    channel = yield from _to_channel(ref, caller, need, snapshot, settings)
    store, configuration, connection = channel.store, channel.configuration, channel.connection

    check_ready(store, need, settings)
    yield f"{store.behaviour.gating}: open"

    agreement = agree(store, connection, configuration, need, snapshot)
    config = bind_config(store, configuration, agreement.info)
    handshake = limited(agreement.handshake, channel.located.provider_class)
    yield f"{handshake.provider_name} {handshake.provider_version}, protocol {handshake.selected}"

    return ResolvedTarget(
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


def _result(stages: Generator[str, None, T]) -> T:
    while True:
        try:
            next(stages)
        except StopIteration as done:
            result: T = done.value
            return result
