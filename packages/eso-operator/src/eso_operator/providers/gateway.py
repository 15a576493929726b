"""All calls of the operator to providers. A call takes a store that is resolved and bound.

Answers match the request. Every failure is a ProviderError whose message names the cause and contains no value.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from eso_operator.providers import transport as methods
from eso_operator.providers.channel import MAX_ANSWER
from eso_operator.providers.client import ChangeStream
from eso_operator.providers.dispatch import Dispatcher, FailureListener, Job, Materials, Route, Seams
from eso_operator.providers.doors import Doors, OpenDoors
from eso_operator.providers.errors import incompatible, other_major, passes_soon
from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.protection.retries import Repeat, repeat_of
from eso_operator.providers.protection.slots import InFlight
from eso_operator.providers.protection.valve import Urgency
from eso_operator.providers.protection.weights import MIB
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy, Connection, Endpoint, TlsSource
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    FindPage,
    FindQuery,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Hello,
    KindId,
    KindRole,
    ObjectRef,
    PushBatch,
    PushItem,
    PushResult,
    SubscribeOpen,
    Validation,
    ValidationMode,
    WatchItem,
)
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.meta import ObjectKey, meta_of
from kuberun.cache import Change

I = TypeVar("I", GetItem, PushItem, DeleteItem)  # noqa: E741 - an item
R = TypeVar("R", GetResult, CheckResult, PushResult, DeleteResult)

_OF_IDENTITY = frozenset(
    {
        ErrorReason.RATE_LIMITED,
        ErrorReason.CREDENTIALS_NOT_FOUND,
        ErrorReason.CREDENTIALS_REJECTED,
        ErrorReason.BACKEND_UNAVAILABLE,
        ErrorReason.BACKEND_TIMEOUT,
    }
)
"""Reasons of one item that can concern the whole identity."""

MAX_ROUTES: Final = 10_000
MAX_LARGE: Final = 10_000
SMALL_ANSWER: Final = MIB
"""The expected size of a generator's answer: what a Secret can hold."""
CLOSE_SECONDS: Final = 10.0

Holder = tuple[str, str, ObjectKey]
"""Group, kind and key of an object that holds a configuration."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """An open change stream. Its user must end it soon after `draining` is set."""

    changes: ChangeStream
    draining: asyncio.Event


class Gateway:
    """The calls to providers. `within` limits a call to fewer seconds than its policy allows."""

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
        self._routes: BoundedDict[Holder, tuple[ObjectRef, Route]] = BoundedDict(MAX_ROUTES)
        """The last route of each configuration, by the object that holds it."""
        self._gone: BoundedDict[ObjectRef, Route] = BoundedDict(MAX_ROUTES)
        self._large: BoundedDict[tuple[str, str], None] = BoundedDict(MAX_LARGE)
        """The connections and identities of generators whose last answer was not small."""
        self._arrived = asyncio.Event()
        self._dispatcher = Dispatcher(
            materials, clock, settings=settings, metrics=metrics, seams=seams, doors=doors or OpenDoors()
        )

    async def run(self) -> None:
        """Replace old channels until cancelled. Does not close the others: call `close` after the last call."""
        await self._dispatcher.pool.run()

    async def close(self) -> None:
        """Close every channel, including running calls."""
        await self._dispatcher.pool.close()

    def listen(self, listener: FailureListener) -> None:
        """Call the listener if a call (not a handshake) finds the provider unreachable or changed; must not block."""
        self._dispatcher.listeners.append(listener)

    def renew(self, tls: TlsSource, fingerprint: str) -> None:
        """Drain the channels that use older certificates of this source, so that streams move too."""
        self._dispatcher.renew(tls, fingerprint)

    def in_flight(self) -> list[InFlight]:
        """Return the call slots of every endpoint, for the dashboard."""
        return self._dispatcher.in_flight()

    async def handshake(self, endpoint: Endpoint, tls: TlsSource) -> Handshake:
        """Return the handshake of a provider. Raises ProviderError if no protocol version is common."""
        hello = Hello(self._settings.core_version, SUPPORTED, cluster_id=self._settings.cluster_id)
        job = Job(
            methods.HANDSHAKE,
            lambda client: client.handshake(hello),
            _request_id(),
            urgency=Urgency.NOW,
            within=self._settings.calls.handshake_timeout,
        )
        try:
            answer = await self._dispatcher.run(Route(Connection(endpoint, tls), CallPolicy(gated=False)), job)
        except ProviderError as error:
            if error.reason is ErrorReason.UNSUPPORTED_OPERATION:
                raise other_major(endpoint.label, SUPPORTED) from error
            raise
        if answer.selected not in SUPPORTED:
            raise incompatible(endpoint.label, answer, SUPPORTED)
        return answer

    async def get(
        self,
        bound: BoundStore,
        items: Sequence[GetItem],
        *,
        settled: Callable[[Sequence[GetResult]], None] | None = None,
        within: float | None = None,
    ) -> tuple[GetResult, ...]:
        """Read all items in one call; retries ask for the failed items alone. `ReadPlanner` splits reads into batches.

        Before each retry, `settled` gets the results that are final, so that their readers need not wait for it.
        """
        context = self._context(bound)
        batch = _Batch[GetItem, GetResult](items)

        def unfinished(results: tuple[GetResult, ...]) -> ProviderError | None:
            failure = batch.failure()
            if failure is not None and settled is not None:
                settled([each for each in results if not passes_soon(_error_of(each))])
            return failure

        job = Job(
            methods.GET,
            lambda client: batch.attempt(lambda open_: client.get(context, open_)),
            context.request_id,
            trouble=_trouble,
            unfinished=unfinished,
            within=within,
        )
        return await self._dispatcher.run(self._route(bound), job)

    async def find(self, bound: BoundStore, query: FindQuery, *, within: float | None = None) -> FindPage:
        context = self._context(bound)
        job = Job(methods.FIND, lambda client: client.find(context, query), context.request_id, within=within)
        return await self._dispatcher.run(self._route(bound), job)

    async def check(
        self, bound: BoundStore, items: Sequence[GetItem], *, within: float | None = None
    ) -> tuple[CheckResult, ...]:
        context = self._context(bound)
        batch = _Batch[GetItem, CheckResult](items)
        job = Job(
            methods.CHECK,
            lambda client: batch.attempt(lambda open_: client.check(context, open_)),
            context.request_id,
            trouble=_trouble,
            unfinished=lambda _: batch.failure(),
            within=within,
        )
        return await self._dispatcher.run(self._route(bound), job)

    async def push(self, bound: BoundStore, batch: PushBatch, *, within: float | None = None) -> tuple[PushResult, ...]:
        """Push a batch. It is retried only if it has an idempotency key; retries push the failed items alone."""
        context = self._context(bound)
        items = _Batch[PushItem, PushResult](batch.items)
        job = Job(
            methods.PUSH,
            lambda client: items.attempt(lambda open_: client.push(context, replace(batch, items=tuple(open_)))),
            context.request_id,
            repeat=repeat_of(batch.idempotency_key),
            trouble=_trouble,
            unfinished=lambda _: items.failure(),
            within=within,
        )
        return await self._dispatcher.run(self._route(bound), job)

    async def delete(
        self, bound: BoundStore, batch: DeleteBatch, *, within: float | None = None
    ) -> tuple[DeleteResult, ...]:
        """Delete a batch. It is retried only if it has an idempotency key; retries delete the failed items alone."""
        context = self._context(bound)
        items = _Batch[DeleteItem, DeleteResult](batch.items)
        job = Job(
            methods.DELETE,
            lambda client: items.attempt(lambda open_: client.delete(context, replace(batch, items=tuple(open_)))),
            context.request_id,
            repeat=repeat_of(batch.idempotency_key),
            trouble=_trouble,
            unfinished=lambda _: items.failure(),
            within=within,
        )
        return await self._dispatcher.run(self._route(bound), job)

    async def validate(
        self, bound: BoundStore, mode: ValidationMode = ValidationMode.FULL, *, within: float | None = None
    ) -> Validation:
        """Validate a store or generator, even if its identity's budget is closed: a success opens it again."""
        context = self._context(bound)
        job = Job(
            methods.VALIDATE if bound.resolved.role is KindRole.STORE else methods.VALIDATE_GENERATOR,
            lambda client: client.validate(context, mode, bound.resolved.role),
            context.request_id,
            urgency=Urgency.NOW,
            trouble=lambda validation: validation.error,
            unfinished=lambda validation: validation.error if passes_soon(validation.error) else None,
            within=within,
        )
        return await self._dispatcher.run(self._route(bound), job)

    async def generate(self, bound: BoundStore, request: GenerateRequest, *, within: float | None = None) -> Generated:
        """Generate values. The call is retried only if the request has an idempotency key.

        It waits until the operator has room for the answer. A generator whose last answer was large gets more room.
        """
        context, route = self._context(bound), self._route(bound)
        asked = route.connection.key, route.identity
        job = Job(
            methods.GENERATE,
            lambda client: client.generate(context, request),
            context.request_id,
            repeat=repeat_of(request.idempotency_key),
            within=within,
            expects=lambda: MAX_ANSWER if asked in self._large else SMALL_ANSWER,
        )
        generated = await self._dispatcher.run(route, job)
        if generated.size > SMALL_ANSWER:
            self._large[asked] = None
        else:
            self._large.pop(asked, None)
        return generated

    async def cleanup(
        self, bound: BoundStore, request: CleanupRequest, *, within: float | None = None
    ) -> CleanupOutcome:
        """Clean up after a generator. The call is idempotent, so it is retried."""
        context = self._context(bound)
        job = Job(methods.CLEANUP, lambda client: client.cleanup(context, request), context.request_id, within=within)
        return await self._dispatcher.run(self._route(bound), job)

    @asynccontextmanager
    async def subscribe(
        self, bound: BoundStore, items: Sequence[WatchItem], *, resume_token: str = ""
    ) -> AsyncIterator[Subscription]:
        """Open a change stream for the duration of the block. `changes/subscriptions.py` reopens streams."""
        context = self._context(bound)
        opening = SubscribeOpen(context, tuple(items), resume_token)
        job = Job(
            methods.SUBSCRIBE,
            lambda client: client.subscribe(opening),
            context.request_id,
            repeat=Repeat.HARMFUL,
        )
        async with self._dispatcher.stream(self._route(bound), job) as (changes, lease):
            try:
                yield Subscription(changes, lease.draining)
            finally:
                changes.cancel()

    def object_changed(self, kind: KindId, change: Change[Any]) -> None:
        """Let providers close the sessions of a configuration whose object is gone. A listener of watches."""
        if change.old is None or not (change.deleted or change.created):
            return
        holder = kind.group, kind.kind, change.key
        config, route = self._routes.get(holder, (None, None))
        if config is not None and route is not None and config.uid == meta_of(change.old).uid:
            del self._routes[holder]
            self._gone[config] = route
            self._arrived.set()

    async def close_sessions(self) -> None:
        """Tell providers of the objects that are gone, until cancelled. A service of the manager."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            gone = dict(self._gone)
            self._gone.clear()
            await asyncio.gather(*(self._close_sessions(config, route) for config, route in gone.items()))

    async def _close_sessions(self, config: ObjectRef, route: Route) -> None:
        """Call the provider once. If that fails, it closes the sessions when they have been idle for long."""
        job = Job(
            methods.CLOSE_SESSIONS,
            lambda client: client.close_sessions(config),
            _request_id(),
            repeat=Repeat.HARMFUL,
            urgency=Urgency.NOW,
            within=CLOSE_SECONDS,
        )
        with suppress(ProviderError):
            await self._dispatcher.run(route, job)

    def _context(self, bound: BoundStore) -> Context:
        resolved = bound.resolved
        return Context(
            request_id=_request_id(),
            protocol=resolved.handshake.selected or CURRENT,
            caller=resolved.caller,
            store=resolved.store,
            config=bound.config,
            auth_namespace=resolved.auth_namespace,
            auth_namespace_pinned=resolved.pinned,
            cluster_id=self._settings.cluster_id,
        )

    def _route(self, bound: BoundStore) -> Route:
        resolved = bound.resolved
        route = Route(
            connection=Connection(resolved.endpoint, resolved.tls),
            policy=resolved.policy,
            limits=resolved.handshake.limits,
            identity=bound.identity,
            token=bound.token,
            namespace=resolved.caller.namespace,
        )
        self._routes[_holder(bound.config.ref)] = (bound.config.ref, route)
        return route


def _holder(config: ObjectRef) -> Holder:
    return config.api_version.rpartition("/")[0], config.kind, ObjectKey(config.namespace, config.name)


class _Batch(Generic[I, R]):
    """The items of one call over all its tries: each try asks for the items without a final result."""

    def __init__(self, items: Sequence[I]) -> None:
        self._items: Sequence[I] = items
        self._results: dict[str, R] = {}

    async def attempt(self, ask: Callable[[Sequence[I]], Awaitable[Sequence[R]]]) -> tuple[R, ...]:
        """Ask once; return one result for each item, in order."""
        results = await ask([item for item in self._items if self._is_open(item)])
        self._results |= {result.item_id: result for result in results}
        return tuple(self._results[item.item_id] for item in self._items)

    def failure(self) -> ProviderError | None:
        """Return the failure of an item that is worth a retry; of several, the one that asks for the longest pause."""
        errors = [_error_of(self._results[item.item_id]) for item in self._items if self._is_open(item)]
        return max((error for error in errors if error is not None), key=lambda error: error.retry_after, default=None)

    def _is_open(self, item: I) -> bool:
        result = self._results.get(item.item_id)
        return result is None or passes_soon(_error_of(result))


def _error_of(result: GetResult | CheckResult | PushResult | DeleteResult) -> ProviderError | None:
    outcome = result.error if isinstance(result, CheckResult | DeleteResult) else result.outcome
    return outcome if isinstance(outcome, ProviderError) else None


def _request_id() -> str:
    return uuid.uuid4().hex


def _trouble(results: Iterable[GetResult | CheckResult | PushResult | DeleteResult]) -> ProviderError | None:
    """Return an error that concerns the identity: throttling of any item, or such an error of all items."""
    errors: list[ProviderError] = []
    others = 0
    for error in map(_error_of, results):
        if error is None or error.reason not in _OF_IDENTITY:
            others += 1
        elif error.reason is ErrorReason.RATE_LIMITED:
            return error
        else:
            errors.append(error)
    return errors[0] if errors and not others else None
