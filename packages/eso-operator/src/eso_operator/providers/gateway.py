"""The door to providers: every call of the operator goes through here, with a target that is resolved and bound.

Answers match what was asked; everything that fails is a ProviderError whose message names the cause and no value.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from eso_operator.providers import transport as methods
from eso_operator.providers.client import ChangeStream
from eso_operator.providers.dispatch import Dispatcher, FailureListener, Job, Materials, Route, Seams
from eso_operator.providers.doors import Doors, OpenDoors
from eso_operator.providers.errors import incompatible
from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.retries import Repeat, repeat_of
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.providers.valve import Urgency
from eso_operator.stores.target import BoundTarget, CallPolicy, Connection, Endpoint, TlsSource
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
    DeleteResult,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Hello,
    KindRole,
    PushBatch,
    PushResult,
    SubscribeOpen,
    Validation,
    ValidationMode,
    WatchItem,
)
from eso_wire.versions import CURRENT, SUPPORTED
from kuberun.clock import Clock

_OF_IDENTITY = frozenset(
    {
        ErrorReason.RATE_LIMITED,
        ErrorReason.CREDENTIALS_NOT_FOUND,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.BACKEND_UNAVAILABLE,
        ErrorReason.BACKEND_TIMEOUT,
    }
)
"""What an item may say that is true of all items."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """An open stream of changes; to be ended soon after `draining` is set."""

    changes: ChangeStream
    draining: asyncio.Event


class Gateway:
    """`within`: seconds that the caller has left, where it has less time than the policy gives."""

    def __init__(
        self,
        materials: Materials,
        clock: Clock,
        *,
        settings: RuntimeSettings,
        metrics: RuntimeMetrics,
        seams: Seams = Seams(),  # noqa: B008 - a frozen value
        doors: Doors | None = None,
    ) -> None:
        self._settings = settings
        self._dispatcher = Dispatcher(
            materials, clock, settings=settings, metrics=metrics, seams=seams, doors=doors or OpenDoors()
        )

    async def run(self) -> None:
        """Keep the channels fresh; until cancelled. `close` is for whoever knows that nobody calls any more."""
        await self._dispatcher.pool.run()

    async def close(self) -> None:
        """End every channel, calls on their way included."""
        await self._dispatcher.pool.close()

    def listen(self, listener: FailureListener) -> None:
        """Call it when a call (not a handshake) found the provider away or changed; it must not block."""
        self._dispatcher.listeners.append(listener)

    def renew(self, tls: TlsSource, fingerprint: str) -> None:
        """Certificates have changed: drain the channels that use older ones, so that streams move too."""
        self._dispatcher.renew(tls, fingerprint)

    async def handshake(self, endpoint: Endpoint, tls: TlsSource) -> Handshake:
        """What the provider says about itself; an error when no protocol version is common."""
        hello = Hello(self._settings.core_version, SUPPORTED, cluster_id=self._settings.cluster_id)
        answer = await self._dispatcher.run(
            Route(Connection(endpoint, tls), CallPolicy(gated=False)),
            Job(
                methods.HANDSHAKE,
                lambda client: client.handshake(hello),
                _request_id(),
                urgency=Urgency.NOW,
                within=self._settings.calls.handshake_timeout,
            ),
        )
        if answer.selected not in SUPPORTED:
            raise incompatible(endpoint.label, answer, SUPPORTED)
        return answer

    async def get(
        self, bound: BoundTarget, items: Sequence[GetItem], *, within: float | None = None
    ) -> tuple[GetResult, ...]:
        """One call for all items; their number is the caller's concern (`ReadPlanner` splits)."""
        context = self._context(bound)
        job = Job(
            methods.GET,
            lambda client: client.get(context, items),
            context.request_id,
            trouble=lambda results: _trouble(each.outcome for each in results),
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def find(self, bound: BoundTarget, query: FindQuery, *, within: float | None = None) -> tuple[Found, ...]:
        context = self._context(bound)
        job = Job(methods.FIND, lambda client: client.find(context, query), context.request_id, within=within)
        return await self._dispatcher.run(_route(bound), job)

    async def check(
        self, bound: BoundTarget, items: Sequence[GetItem], *, within: float | None = None
    ) -> tuple[CheckResult, ...]:
        context = self._context(bound)
        job = Job(
            methods.CHECK,
            lambda client: client.check(context, items),
            context.request_id,
            trouble=lambda results: _trouble(each.error for each in results),
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def push(
        self, bound: BoundTarget, batch: PushBatch, *, within: float | None = None
    ) -> tuple[PushResult, ...]:
        """Repeated on failure only if the batch has an idempotency key."""
        context = self._context(bound)
        job = Job(
            methods.PUSH,
            lambda client: client.push(context, batch),
            context.request_id,
            repeat=repeat_of(batch.idempotency_key),
            trouble=lambda results: _trouble(each.outcome for each in results),
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def delete(
        self, bound: BoundTarget, batch: DeleteBatch, *, within: float | None = None
    ) -> tuple[DeleteResult, ...]:
        """Repeated on failure only if the batch has an idempotency key."""
        context = self._context(bound)
        job = Job(
            methods.DELETE,
            lambda client: client.delete(context, batch),
            context.request_id,
            repeat=repeat_of(batch.idempotency_key),
            trouble=lambda results: _trouble(each.error for each in results),
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def validate(
        self, bound: BoundTarget, mode: ValidationMode = ValidationMode.FULL, *, within: float | None = None
    ) -> Validation:
        """Asks even for an identity that is refused now: whoever validates paces itself, and success opens it again."""
        context = self._context(bound)
        job = Job(
            methods.VALIDATE if bound.target.role is KindRole.STORE else methods.VALIDATE_GENERATOR,
            lambda client: client.validate(context, mode, bound.target.role),
            context.request_id,
            urgency=Urgency.NOW,
            trouble=lambda validation: validation.error,
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def generate(self, bound: BoundTarget, request: GenerateRequest, *, within: float | None = None) -> Generated:
        """Repeated on failure only if the request has an idempotency key."""
        context = self._context(bound)
        job = Job(
            methods.GENERATE,
            lambda client: client.generate(context, request),
            context.request_id,
            repeat=repeat_of(request.idempotency_key),
            within=within,
        )
        return await self._dispatcher.run(_route(bound), job)

    async def cleanup(
        self, bound: BoundTarget, request: CleanupRequest, *, within: float | None = None
    ) -> CleanupOutcome:
        """Cleaning up what is gone does no harm, so it is repeated."""
        context = self._context(bound)
        job = Job(methods.CLEANUP, lambda client: client.cleanup(context, request), context.request_id, within=within)
        return await self._dispatcher.run(_route(bound), job)

    @asynccontextmanager
    async def subscribe(
        self, bound: BoundTarget, items: Sequence[WatchItem], *, resume_token: str = ""
    ) -> AsyncIterator[Subscription]:
        """An open stream. `subscriptions.py` keeps one alive."""
        context = self._context(bound)
        opening = SubscribeOpen(context, tuple(items), resume_token)
        job = Job(
            methods.SUBSCRIBE,
            lambda client: client.subscribe(opening),
            context.request_id,
            repeat=Repeat.HARMFUL,
        )
        async with self._dispatcher.stream(_route(bound), job) as (changes, lease):
            try:
                yield Subscription(changes, lease.draining)
            finally:
                changes.cancel()

    def _context(self, bound: BoundTarget) -> Context:
        target = bound.target
        return Context(
            request_id=_request_id(),
            protocol=target.handshake.selected or CURRENT,
            caller=target.caller,
            store=target.store,
            config=bound.config,
            auth_namespace=target.auth_namespace,
            auth_namespace_pinned=target.pinned,
            cluster_id=self._settings.cluster_id,
        )


def _route(bound: BoundTarget) -> Route:
    target = bound.target
    return Route(
        connection=Connection(target.endpoint, target.tls),
        policy=target.policy,
        limits=target.handshake.limits,
        identity=bound.identity,
        token=bound.token,
        namespace=target.caller.namespace,
    )


def _request_id() -> str:
    return uuid.uuid4().hex


def _trouble(outcomes: Iterable[object]) -> ProviderError | None:
    """An error of items that concerns the identity: throttling of any of them, or the same refusal of all of them."""
    errors: list[ProviderError] = []
    others = 0
    for outcome in outcomes:
        if not isinstance(outcome, ProviderError) or outcome.reason not in _OF_IDENTITY:
            others += 1
        elif outcome.reason is ErrorReason.RATE_LIMITED:
            return outcome
        else:
            errors.append(outcome)
    return errors[0] if errors and not others else None
