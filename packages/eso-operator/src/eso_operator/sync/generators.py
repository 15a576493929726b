"""Generators as a source: resolved and called like stores, through the same door.

A call that leaves something to clean up is on record before it is made. An answer that gets lost leaves the record
behind, and the collector (`generatorstate/`) cleans up after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from eso_api.references import GeneratorRef
from eso_operator.stores.need import Gate, Need
from eso_operator.stores.target import BoundTarget, ResolvedTarget
from eso_operator.sync.dependencies import Dependency, OnLabel, on_connection, on_object
from eso_operator.sync.errors import UNSURE
from eso_operator.sync.generate import Intent, Intents, Made
from eso_operator.sync.resolver import Resolver
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, ObjectRef, Operation
from kuberun.clock import Clock
from kuberun.errors import ApiError

Bind = Callable[[ResolvedTarget], Awaitable[BoundTarget]]

GENERATION = Need(frozenset({Operation.GENERATE}), Gate.FULL)


class Generates(Protocol):
    """The part of the gateway that is needed here."""

    async def generate(self, bound: BoundTarget, request: GenerateRequest) -> Generated: ...


class GeneratorSource:
    """Implements `sync.generate.Generators`."""

    def __init__(self, resolver: Resolver, bind: Bind, gateway: Generates, *, clock: Clock, intents: Intents) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway
        self._clock = clock
        self._intents = intents

    async def generate(self, caller: ObjectRef, index: int, ref: GeneratorRef) -> Made:
        """New values; every call makes others."""
        target = await self._resolver.resolve(ref, caller, GENERATION)
        bound = await self._bind(target)
        intent = await self._intended(bound, index)
        try:
            made = await self._gateway.generate(bound, GenerateRequest(idempotency_key=intent.idempotency_key))
        except ProviderError as error:
            if error.reason not in UNSURE:
                await self._intents.give_up(intent)
            raise
        return Made(
            index=index,
            bound=bound,
            values=dict(made.data),
            state=made.state,
            depends_on=_dependencies(bound),
            refresh_within=_ends_within(made, self._clock.now()),
            intent=intent,
        )

    async def _intended(self, bound: BoundTarget, index: int) -> Intent:
        try:
            return await self._intents.intend(bound, index)
        except ApiError as problem:
            message = f"the call is not made: it cannot be put on record: {problem.reason or problem.code}"
            raise ProviderError(ErrorReason.INTERNAL, message) from None


def _dependencies(bound: BoundTarget) -> frozenset[Dependency]:
    target = bound.target
    of_target: set[Dependency] = {on_connection(target.connection), OnLabel(target.endpoint.label)}
    return frozenset(of_target | {on_object(ref) for ref in (target.config.ref, target.store, *bound.sources)})


def _ends_within(made: Generated, now: datetime) -> float | None:
    """Seconds until the values should be made anew: what the generator suggests, or most of their life."""
    if made.metadata.suggested_refresh:
        return made.metadata.suggested_refresh
    if made.metadata.expires_at is None:
        return None
    return max((made.metadata.expires_at - now).total_seconds() * 0.8, 1.0)
