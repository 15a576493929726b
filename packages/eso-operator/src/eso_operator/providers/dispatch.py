"""Runs one call with its budget, circuit breaker, call slot, channel and retries.

    budget of the identity -> breaker of the connection -> slot of the endpoint -> channel -> one try
        ^                                                                                       |
        +------------- back off, if a retry can help, is safe and fits the deadline ------------+

A refusal by budget or breaker ends the call at once. If the tries of this call itself closed the budget, its retries
still go out: they are the probes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import structlog

from eso_operator.providers import transport as methods
from eso_operator.providers.channel import GrpcTransport
from eso_operator.providers.client import ProviderClient
from eso_operator.providers.diagnosis import PROBE, Diagnoses, Probe
from eso_operator.providers.doors import Doors
from eso_operator.providers.errors import NoAnswerError, is_infrastructure
from eso_operator.providers.metrics import RuntimeMetrics
from eso_operator.providers.pool import ChannelPool, Dial
from eso_operator.providers.protection.breaker import Breaker, BreakerKey, Breakers
from eso_operator.providers.protection.budget import Budgets
from eso_operator.providers.protection.retries import Repeat, RetryPlan
from eso_operator.providers.protection.slots import InFlight
from eso_operator.providers.protection.valve import Admission, Urgency
from eso_operator.providers.protection.weights import current_hold
from eso_operator.providers.settings import RuntimeSettings
from eso_operator.providers.transport import CallOptions, Lease, short_name
from eso_operator.stores.resolved import CallPolicy, Connection, TlsSource
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.options import AUTHORIZATION_KEY, REQUEST_ID_KEY, TRACEPARENT_KEY
from eso_wire.status import CODE_OF, TransportError
from eso_wire.tls import TlsMaterial
from eso_wire.trace import TraceParent, new_trace_id
from eso_wire.values import Limits
from kubebase.backoff import Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairTable
from kuberun.controller import current_trace_id, parked

T = TypeVar("T")

_MAX_CONNECTIONS = 1000
_READS = frozenset({methods.GET, methods.FIND, methods.CHECK, methods.VALIDATE, methods.VALIDATE_GENERATOR})
"""Read-only calls. They are cancelled when the object that they are made for is deleted."""

_log = structlog.get_logger(__name__)


class Materials(Protocol):
    """Source of client certificates; raises ProviderError if there are none."""

    async def of(self, tls: TlsSource) -> TlsMaterial: ...


@dataclass(frozen=True, slots=True)
class Seams:
    """Replacements for tests: the transport, the probe for causes of failures, and the random source."""

    dial: Dial | None = None
    probe: Probe = PROBE
    draw: Random = system_random


@dataclass(frozen=True, slots=True)
class Route:
    """The connection of a call, and the identity that it is made for; empty for a handshake."""

    connection: Connection
    policy: CallPolicy
    limits: Limits = field(default_factory=Limits)
    identity: str = ""
    token: str = field(default="", repr=False)
    namespace: str = ""
    """The namespace of the caller: call slots are shared between namespaces."""


FailureListener = Callable[[Connection, ProviderError], None]

_FOR_LISTENERS = frozenset({ErrorReason.UNSUPPORTED_KIND, ErrorReason.PROTOCOL_INCOMPATIBLE})


def no_trouble(_: object) -> None:
    """Find no trouble in an answer."""


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """One call. `trouble` finds an error in a successful response that concerns the whole identity.

    `unfinished` finds an error of single items that is worth a retry; `attempt` then asks for these items alone.
    A call that `expects` an answer of a size in bytes waits until the operator has room for it.
    """

    method: str
    attempt: Callable[[ProviderClient], Awaitable[T]]
    request_id: str
    repeat: Repeat = Repeat.HARMLESS
    urgency: Urgency = Urgency.PATIENT
    trouble: Callable[[T], ProviderError | None] = no_trouble
    unfinished: Callable[[T], ProviderError | None] = no_trouble
    within: float | None = None
    expects: Callable[[], int] | None = None


class Dispatcher:
    """Runs jobs. It owns the channels, budgets, breakers and slots that calls share."""

    def __init__(
        self,
        materials: Materials,
        clock: Clock,
        *,
        settings: RuntimeSettings,
        metrics: RuntimeMetrics,
        seams: Seams,
        doors: Doors,
    ) -> None:
        self._materials = materials
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._draw = seams.draw
        self._doors = doors
        dial = seams.dial or (lambda endpoint, material: GrpcTransport(endpoint, material, clock))
        self.pool = ChannelPool(dial, clock, settings=settings.pool, metrics=metrics, draw=seams.draw)
        self._budgets = Budgets(clock, seams.draw)
        self._diagnoses = Diagnoses(clock, seams.probe)
        self._breakers = Breakers(clock, settings.breaker, seams.draw)
        self._slots: FairTable[tuple[str, str], InFlight] = FairTable(_MAX_CONNECTIONS)
        self._fingerprints: FairTable[Connection, tuple[Connection, str]] = FairTable(_MAX_CONNECTIONS)
        self.listeners: list[FailureListener] = []

    async def run(self, route: Route, job: Job[T]) -> T:
        """Return the answer or raise the error of the last try. A reconcile releases its worker while it waits."""
        async with parked(cancel_if_deleted=job.method in _READS):
            await self._admit(route)
            return await self._tries(route, job)

    async def _tries(self, route: Route, job: Job[T]) -> T:
        plan = RetryPlan.of(route.policy, self._settings.calls)
        longest = self._seconds(route.policy, job.within)
        deadline = self._clock.monotonic() + longest + (plan.granted if job.within is None else 0.0)
        answer: T | None = None
        tries = 0
        while True:
            tries += 1
            try:
                passes = await self._enter(route, job.urgency, deadline - self._clock.monotonic(), tries)
            except ProviderError as refusal:
                if answer is not None:
                    return answer
                raise await self._explained(route, refusal) from None
            try:
                answer = await self._try(route, job, passes, min(deadline - self._clock.monotonic(), longest))
                failure = job.unfinished(answer)
                if failure is None:
                    return answer
            except ProviderError as error:
                failure = error
            finally:
                passes.abandon()
            pause = plan.pause(failure, tries, left=deadline - self._clock.monotonic(), draw=self._draw)
            if pause is None or job.repeat is Repeat.HARMFUL:
                if answer is not None:  # items that an earlier try answered keep their results
                    return answer
                try:
                    raise await self._explained(route, failure) from None
                finally:
                    del failure  # a variable with the raised exception is a cycle that keeps the callers' values
            self._metrics.retried(short_name(job.method), route.connection.endpoint.label)
            await self._clock.sleep(pause)

    @asynccontextmanager
    async def stream(self, route: Route, job: Job[T]) -> AsyncIterator[tuple[T, Lease]]:
        """Open a stream that lives as long as the block. It takes no slot and is not retried."""
        await self._admit(route)
        try:
            passes = await self._enter(route, job.urgency, self._seconds(route.policy, job.within))
        except ProviderError as refusal:
            raise await self._explained(route, refusal) from None
        try:
            async with self._leased(route) as lease:
                client = self._client(route, lease, self._options(route, job.request_id, timeout=None))
                yield await self._opened(route, job, passes, client), lease
        except TransportError as error:
            raise await self._explained(route, error) from None
        finally:
            passes.abandon()

    def renew(self, tls: TlsSource, fingerprint: str) -> None:
        """Drain every channel that was opened with older certificates of this source."""
        for connection, _ in self._fingerprints.values():
            if connection.tls == tls:
                self._replace(connection, fingerprint)

    def in_flight(self) -> list[InFlight]:
        """Return the slots of every endpoint that was called, for the dashboard."""
        return list(self._slots.values())

    # --- one try -----------------------------------------------------------------------------------------------------

    async def _admit(self, route: Route) -> None:
        """Refuse an endpoint that must not be dialled, before any probe of it, and retire its open channel."""
        try:
            await self._doors.check(route.connection.endpoint)
        except ProviderError:
            if (known := self._fingerprints.pop(route.connection)) is not None:
                self.pool.retire(route.connection.endpoint, known[1])
            raise

    async def _enter(self, route: Route, urgency: Urgency, left: float, tries: int = 1) -> _Passes:
        budget_key = (route.connection.key, route.identity)
        budget = await self._budgets.enter(budget_key, left, urgency if tries == 1 else Urgency.NOW)
        if tries > 1 and budget is Admission.PROBE:
            urgency = Urgency.NOW  # do not count its failure: each try of this call would lengthen the rest
        breaker = self._breaker(route)
        passes = _Passes(self._budgets, budget_key, breaker, urgency=urgency, budget=budget)
        try:
            if route.identity:
                passes.breaker_pass = await breaker.enter(left)
        except BaseException:
            passes.abandon()
            raise
        return passes

    async def _try(self, route: Route, job: Job[T], passes: _Passes, left: float) -> T:
        started = self._clock.monotonic()
        await self._materials.of(route.connection.tls)  # issuing may take time: do not hold a slot for it
        async with (
            self._room(job, left),
            self._in_flight(route).slot(left, route.namespace),
            self._leased(route) as lease,
        ):
            timeout = left - (self._clock.monotonic() - started)
            if route.limits.max_deadline > 0:
                timeout = min(timeout, route.limits.max_deadline)
            options = self._options(route, job.request_id, timeout=max(timeout, 0.0))
            return await self._measured(route, job, passes, self._client(route, lease, options))

    def _room(self, job: Job[T], left: float) -> AbstractAsyncContextManager[None]:
        hold = current_hold()
        return nullcontext() if hold is None or job.expects is None else hold.room(job.expects, self._clock, left)

    async def _measured(self, route: Route, job: Job[T], passes: _Passes, client: ProviderClient) -> T:
        method, label = short_name(job.method), route.connection.endpoint.label
        self._metrics.started(method, label)
        started = self._clock.monotonic()
        code, reason = "CANCELLED", ""
        try:
            answer = await job.attempt(client)
            code = "OK"
            passes.answered(job.trouble(answer))
            if not route.identity:
                self._breakers.reopen(route.connection.key)
        except ProviderError as error:
            code, reason = CODE_OF[error.reason].name, error.reason.value
            passes.failed(error)
            self._tell(route, error)
            raise
        finally:
            seconds = self._clock.monotonic() - started
            self._metrics.handled(method, label, code=code, reason=reason, seconds=seconds)
            _report(job, label, code=code, reason=reason, seconds=seconds)
            self._metrics.breaker(label, self._breakers.worst(label))
            self._metrics.budgets(self._budgets.in_trouble)
        return answer

    async def _opened(self, route: Route, job: Job[T], passes: _Passes, client: ProviderClient) -> T:
        """Open a stream within the deadline of a call. The stream itself has no deadline."""
        try:
            async with Deadline(self._clock, self._seconds(route.policy, job.within)):
                return await self._measured(route, job, passes, client)
        except TimeoutError:
            label = route.connection.endpoint.label
            raise NoAnswerError(f"provider {label} did not take {short_name(job.method)} in time") from None

    @asynccontextmanager
    async def _leased(self, route: Route) -> AsyncIterator[Lease]:
        connection = route.connection
        material = await self._materials.of(connection.tls)
        if self._fingerprints.get(connection) != (connection, material.fingerprint):
            self._replace(connection, material.fingerprint)
        async with self.pool.lease(connection.endpoint, material, connection.owner) as lease:
            yield lease

    def _replace(self, connection: Connection, fingerprint: str) -> None:
        before = self._fingerprints.get(connection)
        self._fingerprints.put(connection, (connection, fingerprint), connection.owner)
        if before is not None and before[1] != fingerprint:
            self.pool.retire(connection.endpoint, before[1])

    async def _explained(self, route: Route, error: ProviderError) -> ProviderError:
        if not isinstance(error, TransportError):
            return error
        try:
            material = await self._materials.of(route.connection.tls)
        except ProviderError:
            return error
        return await self._diagnoses.explained(error, route.connection.endpoint, material)

    def _tell(self, route: Route, error: ProviderError) -> None:
        if route.identity and (is_infrastructure(error) or error.reason in _FOR_LISTENERS):
            for listener in self.listeners:
                listener(route.connection, error)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _seconds(self, policy: CallPolicy, within: float | None) -> float:
        calls = self._settings.calls
        timeout = calls.timeout if policy.call_timeout is None else min(policy.call_timeout, calls.longest_timeout)
        return timeout if within is None else min(timeout, within)

    def _options(self, route: Route, request_id: str, *, timeout: float | None) -> CallOptions:
        trace = TraceParent.within(current_trace_id() or new_trace_id())
        metadata: tuple[tuple[str, str], ...] = ((REQUEST_ID_KEY, request_id), (TRACEPARENT_KEY, str(trace)))
        if route.token:
            metadata += ((AUTHORIZATION_KEY, f"Bearer {route.token}"),)
        connect = route.policy.connect_timeout
        return CallOptions(
            timeout=timeout,
            connect_timeout=self._settings.pool.connect_timeout if connect is None else connect,
            metadata=metadata,
        )

    def _client(self, route: Route, lease: Lease, options: CallOptions) -> ProviderClient:
        label = route.connection.endpoint.label
        return ProviderClient(lease.transport, label, options, self._settings.calls, token=route.token)

    def _breaker(self, route: Route) -> Breaker:
        connection, policy = route.connection, route.policy
        key = BreakerKey(connection.key, policy.connect_timeout, policy.call_timeout)
        return self._breakers.of(connection.endpoint.label, key)

    def _in_flight(self, route: Route) -> InFlight:
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


@dataclass(slots=True)
class _Passes:
    """The admissions of one try by budget and breaker; the try reports its result to both exactly once."""

    budgets: Budgets
    budget_key: tuple[str, str]
    breaker: Breaker
    urgency: Urgency
    budget: Admission
    breaker_pass: Admission = Admission.OPEN
    told: bool = False

    def answered(self, trouble: ProviderError | None) -> None:
        self.told = True
        self.breaker.answered()
        if trouble is None:
            self.budgets.worked(self.budget_key)
        else:
            self.budgets.failed(self.budget_key, trouble, self.budget, self.urgency)

    def failed(self, error: ProviderError) -> None:
        self.told = True
        self.breaker.failed(error, self.breaker_pass, self.budget_key[1])
        self.budgets.failed(self.budget_key, error, self.budget, self.urgency)

    def abandon(self) -> None:
        """Report that the try had no result: it was cancelled or never sent."""
        if not self.told:
            self.told = True
            self.breaker.gave_up(self.breaker_pass)
            self.budgets.gave_up(self.budget_key, self.budget)


def _report(job: Job[Any], label: str, *, code: str, reason: str, seconds: float) -> None:
    """Log the call with the request id, which the provider logs too. The condition of the object has the message."""
    tell = _log.debug if code == "OK" else _log.info
    tell(
        "provider called",
        method=short_name(job.method),
        provider=label,
        request_id=job.request_id,
        code=code,
        reason=reason,
        duration=round(seconds, 6),
    )
