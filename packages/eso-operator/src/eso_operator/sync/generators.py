"""Generators as a source: resolved and called like stores, through the same door."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from eso_api.references import GeneratorRef
from eso_operator.stores.need import Gate, Need
from eso_operator.stores.target import BoundTarget, ResolvedTarget
from eso_operator.sync.dependencies import Dependency, OnLabel, on_connection, on_object
from eso_operator.sync.generate import Made
from eso_operator.sync.resolver import Resolver
from eso_wire.values import Generated, GenerateRequest, ObjectRef, Operation
from kuberun.clock import Clock

Bind = Callable[[ResolvedTarget], Awaitable[BoundTarget]]

GENERATION = Need(frozenset({Operation.GENERATE}), Gate.FULL)


class Generates(Protocol):
    """The part of the gateway that is needed here."""

    async def generate(self, bound: BoundTarget, request: GenerateRequest) -> Generated: ...


class GeneratorSource:
    """Implements `sync.generate.Generators`."""

    def __init__(self, resolver: Resolver, bind: Bind, gateway: Generates, clock: Clock) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway
        self._clock = clock

    async def generate(self, caller: ObjectRef, index: int, ref: GeneratorRef) -> Made:
        """New values; every call makes others."""
        target = await self._resolver.resolve(ref, caller, GENERATION)
        bound = await self._bind(target)
        made = await self._gateway.generate(bound, GenerateRequest(idempotency_key=uuid.uuid4().hex))
        return Made(
            index=index,
            bound=bound,
            values=dict(made.data),
            state=made.state,
            depends_on=_dependencies(bound),
            refresh_within=_ends_within(made, self._clock.now()),
        )


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
