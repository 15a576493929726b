"""Generators as a source of values, resolved and called like stores.

A call that may need a clean-up is recorded before it is made. If its response gets lost, the record stays, and the
collector (`controllers/generatorstate/`) cleans up. A response that is too large for the object is cleaned up at once.
"""

from __future__ import annotations

from datetime import datetime

from eso_api.references import GeneratorRef
from eso_operator.dependencies import Dependency, OnLabel, on_connection, on_object
from eso_operator.generators.ledger import GeneratedValues, GeneratorLedger, Intent
from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.errors import UNSURE
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, Gate, Need
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Generated, GenerateRequest, ObjectRef, Operation
from kubebase.clock import Clock
from kuberun.errors import ApiError

GENERATION = Need(frozenset({Operation.GENERATE}), Gate.FULL)


class GeneratorSource:
    """Calls generators through the gateway."""

    def __init__(
        self, resolver: Resolver, bind: Bind, gateway: Gateway, *, clock: Clock, ledger: GeneratorLedger
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._gateway = gateway
        self._clock = clock
        self._ledger = ledger

    async def generate(
        self, caller: ObjectRef, index: int, ref: GeneratorRef, held: HeldBytes | None = None
    ) -> GeneratedValues:
        """Generate values; every call returns new ones. Raises ResolutionError, ProviderError."""
        resolved = await self._resolver.resolve(ref, caller, GENERATION)
        bound = await self._bind(resolved)
        intent = await self._intend(bound, index)
        try:
            request = GenerateRequest(idempotency_key=intent.idempotency_key)
            response = await self._gateway.generate(bound, request, held=held)
        except ProviderError as error:
            if error.reason not in UNSURE:
                await self._ledger.give_up(intent)
            raise
        generated = GeneratedValues(
            index=index,
            bound=bound,
            values=dict(response.data),
            state=response.state,
            depends_on=_dependencies(bound),
            refresh_within=_refresh_within(response, self._clock.now()),
            intent=intent,
        )
        await self._count(generated, response.size, held)
        return generated

    async def _count(self, generated: GeneratedValues, size: int, held: HeldBytes | None) -> None:
        """Count the response for the object, as its reads are. An object that may not hold it never uses its values."""
        try:
            if held is not None:
                held.add(size)
        except ProviderError:
            await self._ledger.roll_back((generated,))
            raise

    async def _intend(self, bound: BoundStore, index: int) -> Intent:
        try:
            return await self._ledger.intend(bound, index)
        except ApiError as problem:
            message = (
                f"the generator is not called, because the call cannot be recorded: {problem.reason or problem.code}"
            )
            raise ProviderError(ErrorReason.INTERNAL, message) from None


def _dependencies(bound: BoundStore) -> frozenset[Dependency]:
    resolved = bound.resolved
    of_target: set[Dependency] = {on_connection(resolved.connection), OnLabel(resolved.endpoint.label)}
    return frozenset(of_target | {on_object(ref) for ref in (resolved.config.ref, resolved.store, *bound.sources)})


def _refresh_within(response: Generated, now: datetime) -> float | None:
    """Return the seconds until the values are generated again: as the generator suggests, or 80 % of their life."""
    if response.metadata.suggested_refresh:
        return response.metadata.suggested_refresh
    if response.metadata.expires_at is None:
        return None
    return max((response.metadata.expires_at - now).total_seconds() * 0.8, 1.0)
