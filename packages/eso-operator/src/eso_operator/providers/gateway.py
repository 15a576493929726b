"""All calls of the operator to providers. A call takes a store that is resolved and bound.

    budget of the identity -> breaker of the connection -> slot of the endpoint -> channel -> one try (methods.py)
        ^                                                                                       |
        +------------- back off, if a retry can help, is safe and fits the deadline ------------+

A refusal by budget or breaker ends the call at once. If the tries of this call itself closed the budget, its retries
still go out: they are the probes. Every failure is a ProviderError whose message names the cause and contains no value.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import structlog

from eso_operator.certificates.client import ClientCertificates
from eso_operator.providers import methods
from eso_operator.providers.bytelimits import MIB, HeldBytes
from eso_operator.providers.channels import MAX_RESPONSE, CallOptions, ChannelPool, Dial, GrpcTransport, Lease
from eso_operator.providers.errors import (
    NoResponseError,
    incompatible,
    is_infrastructure,
    is_transient,
    other_major,
)
from eso_operator.providers.limits import (
    Admission,
    Breaker,
    BreakerKey,
    Breakers,
    Budgets,
    InFlight,
    RetryPlan,
    Urgency,
)
from eso_operator.providers.methods import Attempt, ChangeStream, Method
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.reachability import PROBE, Diagnoses, Probe, ServiceCheck
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.stores.resolved import BoundStore, CallPolicy, Connection, Endpoint, TlsSource
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import AUTHORIZATION_KEY, REQUEST_ID_KEY, TRACEPARENT_KEY
from eso_wire.status import CODE_OF, TransportError
from eso_wire.trace import TraceParent, new_trace_id
from eso_wire.values import (
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
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
    Limits,
    ObjectRef,
    PushBatch,
    PushResult,
    SubscribeOpen,
    Validation,
    ValidationMode,
    WatchItem,
)
from eso_wire.versions import CURRENT, SUPPORTED
from kubebase.backoff import Random, system_random
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairTable
from kubebase.meta import ObjectKey, meta_of
from kuberun.cache import Change
from kuberun.controller import current_trace_id, parked

Q = TypeVar("Q")
R = TypeVar("R")

MAX_ROUTES: Final = 10_000
MAX_LARGE: Final = 10_000
SMALL_RESPONSE: Final = MIB
"""The expected size of a generator's response: what a Secret can hold."""
CLOSE_SECONDS: Final = 10.0
_MAX_CONNECTIONS: Final = 1000

_log = structlog.get_logger(__name__)

Holder = tuple[str, str, ObjectKey]
"""Group, kind and key of an object that holds a configuration."""

FailureListener = Callable[[Connection, ProviderError], None]
_FOR_LISTENERS: Final = frozenset({ErrorReason.UNSUPPORTED_KIND, ErrorReason.PROTOCOL_INCOMPATIBLE})


@dataclass(frozen=True, slots=True)
class CallHooks:
    """Replacements for tests and for `eso plan`: the transport, the probe of failures, and the random source."""

    dial: Dial | None = None
    probe: Probe = PROBE
    draw: Random = system_random


@dataclass(frozen=True, slots=True)
class Subscription:
    """An open change stream. Its user must end it soon after `draining` is set."""

    changes: ChangeStream
    draining: asyncio.Event


@dataclass(frozen=True, slots=True)
class _Route:
    """The connection of a call, and the identity that it is made for; empty for a handshake."""

    connection: Connection
    policy: CallPolicy
    limits: Limits = field(default_factory=Limits)
    identity: str = ""
    token: str = field(default="", repr=False)
    namespace: str = ""
    """The namespace of the caller: call slots are shared between namespaces."""

    @property
    def label(self) -> str:
        return self.connection.endpoint.label


@dataclass(frozen=True, slots=True)
class _Call(Generic[Q, R]):
    """One call and all its tries. If it `expects` a size in bytes, it waits until the operator has room for it."""

    method: Method[Q, R]
    request: Q
    route: _Route
    context: Context | None = None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    within: float | None = None
    held: HeldBytes | None = None
    expects: Callable[[], int] | None = None


class Gateway:
    """The calls to providers. `within` limits a call to fewer seconds than its policy allows."""

    def __init__(
        self,
        certificates: ClientCertificates,
        clock: Clock,
        *,
        settings: RuntimeSettings,
        metrics: ProviderMetrics,
        hooks: CallHooks = CallHooks(),  # noqa: B008 - a frozen value
        services: ServiceCheck | None = None,
    ) -> None:
        self._certificates = certificates
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._draw = hooks.draw
        self._services = services
        dial = hooks.dial or (lambda endpoint, material: GrpcTransport(endpoint, material, clock))
        self._pool = ChannelPool(dial, clock, settings=settings.pool, metrics=metrics, draw=hooks.draw)
        self._budgets = Budgets(clock, hooks.draw)
        self._diagnoses = Diagnoses(clock, hooks.probe)
        self._breakers = Breakers(clock, settings.breaker, hooks.draw)
        self._slots: FairTable[tuple[str, str], InFlight] = FairTable(_MAX_CONNECTIONS)
        self._fingerprints: FairTable[Connection, tuple[Connection, str]] = FairTable(_MAX_CONNECTIONS)
        self._listeners: list[FailureListener] = []
        self._routes: BoundedDict[Holder, tuple[ObjectRef, _Route]] = BoundedDict(MAX_ROUTES)
        """The last route of each configuration, by the object that holds it."""
        self._deleted: BoundedDict[ObjectRef, _Route] = BoundedDict(MAX_ROUTES)
        self._deletions = asyncio.Event()
        self._large: BoundedDict[tuple[str, str], None] = BoundedDict(MAX_LARGE)
        """The connections and identities of generators whose last response was not small."""

    async def run(self) -> None:
        """Replace old channels until cancelled. Does not close the others: call `close` after the last call."""
        await self._pool.run()

    async def close(self) -> None:
        """Close every channel, including running calls."""
        await self._pool.close()

    def listen(self, listener: FailureListener) -> None:
        """Call the listener if a call (not a handshake) finds the provider unreachable or changed; must not block."""
        self._listeners.append(listener)

    def renew(self, tls: TlsSource, fingerprint: str) -> None:
        """Drain the channels that use older certificates of this source, so that streams move too."""
        for connection, _ in self._fingerprints.values():
            if connection.tls == tls:
                self._replace_channel(connection, fingerprint)

    # --- the calls ---------------------------------------------------------------------------------------------------

    async def handshake(self, endpoint: Endpoint, tls: TlsSource) -> Handshake:
        """Return the handshake of a provider. Raises ProviderError if no protocol version is common."""
        hello = Hello(self._settings.core_version, SUPPORTED, cluster_id=self._settings.cluster_id)
        route = _Route(Connection(endpoint, tls), CallPolicy(gated=False))
        within = self._settings.calls.handshake_timeout
        try:
            handshake = await self._call(_Call(methods.HANDSHAKE, hello, route, within=within))
        except ProviderError as error:
            if error.reason is ErrorReason.UNSUPPORTED_OPERATION:
                raise other_major(endpoint.label, SUPPORTED) from error
            raise
        if handshake.selected not in SUPPORTED:
            raise incompatible(endpoint.label, handshake, SUPPORTED)
        return handshake

    async def get(
        self,
        bound: BoundStore,
        items: Sequence[GetItem],
        *,
        on_final: Callable[[Sequence[GetResult]], None] | None = None,
        within: float | None = None,
    ) -> tuple[GetResult, ...]:
        """Read all items in one call; retries request the failed items alone. `ReadBatcher` splits reads into batches.

        Before each retry, `on_final` gets the results that are final, so that their readers need not wait for it.
        """
        call = self._bound_call(methods.GET, bound, tuple(items), within=within)
        if on_final is None:
            return await self._call(call)

        def report(results: tuple[GetResult, ...]) -> None:
            on_final([each for each in results if not _is_transient_result(each)])

        return await self._call(call, before_retry=report)

    async def find(
        self, bound: BoundStore, query: FindQuery, *, within: float | None = None, held: HeldBytes | None = None
    ) -> FindPage:
        """Return all secrets that match. Their bytes are counted in `held` while they arrive."""
        return await self._call(self._bound_call(methods.FIND, bound, query, within=within, held=held))

    async def check(
        self, bound: BoundStore, items: Sequence[GetItem], *, within: float | None = None
    ) -> tuple[CheckResult, ...]:
        return await self._call(self._bound_call(methods.CHECK, bound, tuple(items), within=within))

    async def push(self, bound: BoundStore, batch: PushBatch, *, within: float | None = None) -> tuple[PushResult, ...]:
        """Push a batch. It is retried only if it has an idempotency key; retries push the failed items alone."""
        return await self._call(self._bound_call(methods.PUSH, bound, batch, within=within))

    async def delete(
        self, bound: BoundStore, batch: DeleteBatch, *, within: float | None = None
    ) -> tuple[DeleteResult, ...]:
        """Delete a batch. It is retried only if it has an idempotency key; retries delete the failed items alone."""
        return await self._call(self._bound_call(methods.DELETE, bound, batch, within=within))

    async def validate(
        self, bound: BoundStore, mode: ValidationMode = ValidationMode.FULL, *, within: float | None = None
    ) -> Validation:
        """Validate a store or generator, even if its identity's budget is closed: a success opens it again."""
        is_store = bound.resolved.role is KindRole.STORE
        method = methods.VALIDATE if is_store else methods.VALIDATE_GENERATOR
        return await self._call(self._bound_call(method, bound, mode, within=within))

    async def generate(
        self,
        bound: BoundStore,
        request: GenerateRequest,
        *,
        within: float | None = None,
        held: HeldBytes | None = None,
    ) -> Generated:
        """Generate values. The call is retried only if the request has an idempotency key.

        With `held`, it waits until the operator has room for the response. A generator whose last response was large
        gets more room.
        """
        key = bound.resolved.connection.key, bound.identity

        def expects() -> int:
            return MAX_RESPONSE if key in self._large else SMALL_RESPONSE

        call = self._bound_call(methods.GENERATE, bound, request, within=within, held=held, expects=expects)
        generated = await self._call(call)
        if generated.size > SMALL_RESPONSE:
            self._large[key] = None
        else:
            self._large.pop(key, None)
        return generated

    async def cleanup(
        self, bound: BoundStore, request: CleanupRequest, *, within: float | None = None
    ) -> CleanupOutcome:
        """Clean up after a generator. The call is idempotent, so it is retried."""
        return await self._call(self._bound_call(methods.CLEANUP, bound, request, within=within))

    @asynccontextmanager
    async def subscribe(
        self, bound: BoundStore, items: Sequence[WatchItem], *, resume_token: str = ""
    ) -> AsyncIterator[Subscription]:
        """Open a change stream for the duration of the block. `changes/subscriptions.py` reopens streams."""
        opening = SubscribeOpen(self._context(bound), tuple(items), resume_token)
        async with self._stream(self._bound_call(methods.SUBSCRIBE, bound, opening)) as (changes, lease):
            try:
                yield Subscription(changes, lease.draining)
            finally:
                changes.cancel()

    def object_changed(self, kind: KindId, change: Change[Any]) -> None:
        """Let providers close the sessions of a configuration whose object was deleted. A listener of watches."""
        if change.old is None or not (change.deleted or change.created):
            return
        holder = kind.group, kind.kind, change.key
        config, route = self._routes.get(holder, (None, None))
        if config is not None and route is not None and config.uid == meta_of(change.old).uid:
            del self._routes[holder]
            self._deleted[config] = route
            self._deletions.set()

    async def close_sessions(self) -> None:
        """Notify providers of deleted objects, until cancelled. A service of the manager.

        Each provider is called once. If that fails, it closes the sessions when they have been idle for long.
        """
        while True:
            await self._deletions.wait()
            self._deletions.clear()
            deleted = dict(self._deleted)
            self._deleted.clear()
            await asyncio.gather(*(self._close_sessions(config, route) for config, route in deleted.items()))

    async def _close_sessions(self, config: ObjectRef, route: _Route) -> None:
        with suppress(ProviderError):
            await self._call(_Call(methods.CLOSE_SESSIONS, config, route, within=CLOSE_SECONDS))

    def _bound_call(self, method: Method[Q, R], bound: BoundStore, request: Q, **options: Any) -> _Call[Q, R]:
        """Make the call of a bound store; a subscription has its context in the request, too."""
        resolved = bound.resolved
        route = _Route(
            connection=Connection(resolved.endpoint, resolved.tls),
            policy=resolved.policy,
            limits=resolved.handshake.limits,
            identity=bound.identity,
            token=bound.token,
            namespace=resolved.caller.namespace,
        )
        self._routes[_holder(bound.config.ref)] = (bound.config.ref, route)
        context = request.context if isinstance(request, SubscribeOpen) else self._context(bound)
        return _Call(method, request, route, context, context.request_id, **options)

    def _context(self, bound: BoundStore) -> Context:
        resolved = bound.resolved
        return Context(
            request_id=uuid.uuid4().hex,
            protocol=resolved.handshake.selected or CURRENT,
            caller=resolved.caller,
            store=resolved.store,
            config=bound.config,
            auth_namespace=resolved.auth_namespace,
            auth_namespace_pinned=resolved.pinned,
            cluster_id=self._settings.cluster_id,
        )

    # --- one call and its tries --------------------------------------------------------------------------------------

    async def _call(self, call: _Call[Q, R], *, before_retry: Callable[[R], None] | None = None) -> R:
        """Return the response or raise the error of the last try. A reconcile releases its worker while it waits."""
        method, route = call.method, call.route
        async with parked(cancel_if_deleted=method.reads):
            await self._check_service(route)
            plan = RetryPlan.of(route.policy, self._settings.calls)
            longest = self._seconds(route.policy, call.within)
            deadline = self._clock.monotonic() + longest + (plan.granted if call.within is None else 0.0)
            request, response, tries = call.request, None, 0
            while True:
                tries += 1
                try:
                    admissions = await self._admit(call, deadline - self._clock.monotonic(), tries)
                except ProviderError as refusal:
                    if response is not None:
                        return response
                    raise await self._explained(route, refusal) from None
                try:
                    left = min(deadline - self._clock.monotonic(), longest)
                    response = method.merged(response, await self._try(call, request, admissions, left))
                    failure = method.transient_error(response)
                    if failure is None:
                        return response
                    if before_retry is not None:
                        before_retry(response)
                    request = method.remaining(call.request, response)
                except ProviderError as error:
                    failure = error
                finally:
                    admissions.abandon()
                pause = plan.pause(failure, tries, left=deadline - self._clock.monotonic(), draw=self._draw)
                if pause is None or not method.repeatable(call.request):
                    if response is not None:  # items keep the results of an earlier try
                        return response
                    try:
                        raise await self._explained(route, failure) from None
                    finally:
                        del failure  # a variable with the raised exception is a cycle that keeps the callers' values
                self._metrics.retried(method.name, route.label)
                await self._clock.sleep(pause)

    @asynccontextmanager
    async def _stream(self, call: _Call[Q, R]) -> AsyncIterator[tuple[R, Lease]]:
        """Open a stream that lives as long as the block. It takes no slot and is not retried.

        Opening it has the deadline of a call; the stream itself has none.
        """
        route = call.route
        await self._check_service(route)
        seconds = self._seconds(route.policy, call.within)
        try:
            admissions = await self._admit(call, seconds)
        except ProviderError as refusal:
            raise await self._explained(route, refusal) from None
        try:
            async with self._channel(route) as lease:
                attempt = self._attempt(call, lease, timeout=None)
                try:
                    async with Deadline(self._clock, seconds):
                        opened = await self._send(call, call.request, attempt, admissions)
                except TimeoutError:
                    message = f"provider {route.label} did not take {call.method.name} in time"
                    raise NoResponseError(message) from None
                yield opened, lease
        except TransportError as error:
            raise await self._explained(route, error) from None
        finally:
            admissions.abandon()

    async def _try(self, call: _Call[Q, R], request: Q, admissions: _Admissions, left: float) -> R:
        started, route = self._clock.monotonic(), call.route
        await self._certificates.of(route.connection.tls)  # issuing may take time: do not hold a slot for it
        async with (
            self._room(call, left),
            self._slots_of(route).slot(left, route.namespace),
            self._channel(route) as lease,
        ):
            timeout = left - (self._clock.monotonic() - started)
            if route.limits.max_deadline > 0:
                timeout = min(timeout, route.limits.max_deadline)
            attempt = self._attempt(call, lease, timeout=max(timeout, 0.0))
            return await self._send(call, request, attempt, admissions)

    async def _send(self, call: _Call[Q, R], request: Q, attempt: Attempt, admissions: _Admissions) -> R:
        """Send the request once; report its result to metrics, log, budget, breaker and listeners."""
        method, route = call.method, call.route
        self._metrics.started(method.name, route.label)
        started = self._clock.monotonic()
        code, reason = "CANCELLED", ""
        try:
            response = await method.send(attempt, request)
            code = "OK"
            admissions.responded(method.identity_error(response))
            if not route.identity:
                self._breakers.reopen(route.connection.key)
        except ProviderError as error:
            code, reason = CODE_OF[error.reason].name, error.reason.value
            admissions.failed(error)
            if route.identity and (is_infrastructure(error) or error.reason in _FOR_LISTENERS):
                for listener in self._listeners:
                    listener(route.connection, error)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.handled(method.name, route.label, code=code, reason=reason, seconds=seconds)
            _log_call(call, code=code, reason=reason, seconds=seconds)
            self._metrics.breaker(route.label, self._breakers.worst(route.label))
            self._metrics.budgets(self._budgets.failing)
        return response

    # --- what a try needs --------------------------------------------------------------------------------------------

    async def _check_service(self, route: _Route) -> None:
        """Refuse an endpoint that must not be dialled, before any probe of it, and retire its open channel."""
        if self._services is None:
            return
        try:
            await self._services.check(route.connection.endpoint)
        except ProviderError:
            if (known := self._fingerprints.pop(route.connection)) is not None:
                self._pool.retire(route.connection.endpoint, known[1])
            raise

    async def _admit(self, call: _Call[Q, R], left: float, tries: int = 1) -> _Admissions:
        route, urgency = call.route, call.method.urgency
        budget_key = (route.connection.key, route.identity)
        budget = await self._budgets.enter(budget_key, left, urgency if tries == 1 else Urgency.NOW)
        if tries > 1 and budget is Admission.PROBE:
            urgency = Urgency.NOW  # do not count its failure: each try of this call would lengthen the rest
        breaker = self._breakers.of(
            route.label, BreakerKey(route.connection.key, route.policy.connect_timeout, route.policy.call_timeout)
        )
        admissions = _Admissions(self._budgets, budget_key, breaker, urgency=urgency, budget=budget)
        try:
            if route.identity:
                admissions.of_breaker = await breaker.enter(left)
        except BaseException:
            admissions.abandon()
            raise
        return admissions

    def _room(self, call: _Call[Q, R], left: float) -> AbstractAsyncContextManager[None]:
        if call.held is None or call.expects is None:
            return nullcontext()
        return call.held.room(call.expects, self._clock, left)

    def _slots_of(self, route: _Route) -> InFlight:
        endpoint, calls = route.connection.endpoint, self._settings.calls
        slots = min(calls.max_in_flight, route.limits.max_in_flight or calls.max_in_flight)
        key = (endpoint.uri, endpoint.server_name)
        found = self._slots.get(key)
        if found is None:
            found = InFlight(endpoint.label, self._clock, slots=slots, max_waiting=calls.max_waiting)
            self._slots.put(key, found, route.connection.owner)
        elif route.identity:  # a handshake does not know the limits yet
            found.resize(slots)
        return found

    @asynccontextmanager
    async def _channel(self, route: _Route) -> AsyncIterator[Lease]:
        connection = route.connection
        material = await self._certificates.of(connection.tls)
        if self._fingerprints.get(connection) != (connection, material.fingerprint):
            self._replace_channel(connection, material.fingerprint)
        async with self._pool.lease(connection.endpoint, material, connection.owner) as lease:
            yield lease

    def _replace_channel(self, connection: Connection, fingerprint: str) -> None:
        before = self._fingerprints.get(connection)
        self._fingerprints.put(connection, (connection, fingerprint), connection.owner)
        if before is not None and before[1] != fingerprint:
            self._pool.retire(connection.endpoint, before[1])

    def _attempt(self, call: _Call[Q, R], lease: Lease, *, timeout: float | None) -> Attempt:
        route = call.route
        trace = TraceParent.within(current_trace_id() or new_trace_id())
        metadata: tuple[tuple[str, str], ...] = ((REQUEST_ID_KEY, call.request_id), (TRACEPARENT_KEY, str(trace)))
        if route.token:
            metadata += ((AUTHORIZATION_KEY, f"Bearer {route.token}"),)
        connect = route.policy.connect_timeout
        options = CallOptions(
            timeout=timeout,
            connect_timeout=self._settings.pool.connect_timeout if connect is None else connect,
            metadata=metadata,
        )
        return Attempt(
            lease.transport,
            route.label,
            options,
            self._settings.calls,
            context=call.context,
            token=route.token,
            held=call.held,
        )

    def _seconds(self, policy: CallPolicy, within: float | None) -> float:
        calls = self._settings.calls
        timeout = calls.timeout if policy.call_timeout is None else min(policy.call_timeout, calls.longest_timeout)
        return timeout if within is None else min(timeout, within)

    async def _explained(self, route: _Route, error: ProviderError) -> ProviderError:
        """Return the error; if the provider was not reached, with the cause that a probe finds."""
        if not isinstance(error, TransportError):
            return error
        try:
            material = await self._certificates.of(route.connection.tls)
        except ProviderError:
            return error
        return await self._diagnoses.explained(error, route.connection.endpoint, material)


@dataclass(slots=True)
class _Admissions:
    """The admissions of one try by budget and breaker; the try reports its result to both exactly once."""

    budgets: Budgets
    budget_key: tuple[str, str]
    breaker: Breaker
    urgency: Urgency
    budget: Admission
    of_breaker: Admission = Admission.OPEN
    reported: bool = False

    def responded(self, identity_error: ProviderError | None) -> None:
        self.reported = True
        self.breaker.responded()
        if identity_error is None:
            self.budgets.succeeded(self.budget_key)
        else:
            self.budgets.failed(self.budget_key, identity_error, self.budget, self.urgency)

    def failed(self, error: ProviderError) -> None:
        self.reported = True
        self.breaker.failed(error, self.of_breaker, self.budget_key[1])
        self.budgets.failed(self.budget_key, error, self.budget, self.urgency)

    def abandon(self) -> None:
        """Report that the try had no result: it was cancelled or never sent."""
        if not self.reported:
            self.reported = True
            self.breaker.abandoned(self.of_breaker)
            self.budgets.abandoned(self.budget_key, self.budget)


def _holder(config: ObjectRef) -> Holder:
    return config.api_version.rpartition("/")[0], config.kind, ObjectKey(config.namespace, config.name)


def _is_transient_result(result: GetResult) -> bool:
    return isinstance(result.outcome, ProviderError) and is_transient(result.outcome)


def _log_call(call: _Call[Any, Any], *, code: str, reason: str, seconds: float) -> None:
    """Log the call with the request id, which the provider logs too. The condition of the object has the message."""
    log = _log.debug if code == "OK" else _log.info
    log(
        "provider called",
        method=call.method.name,
        provider=call.route.label,
        request_id=call.request_id,
        code=code,
        reason=reason,
        duration=round(seconds, 6),
    )
