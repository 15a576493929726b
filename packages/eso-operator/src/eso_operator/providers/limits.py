"""Limits of calls that protect providers, backends and the operator.

    Budgets     refuse the calls of an identity that its backend rejects
    Breakers    refuse the calls to a provider that does not respond
    InFlight    the concurrent calls to one endpoint, shared fairly between namespaces
    RetryPlan   when a failed call is made again

`bytelimits.py` limits the bytes of values that the operator holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from eso_operator.providers.errors import NoResponseError, is_infrastructure, is_retryable, overloaded, restated
from eso_operator.providers.settings import BreakerSettings, CallSettings
from eso_operator.stores.resolved import CallPolicy
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from kubebase.backoff import ExponentialBackoff, Random, system_random
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.fairness import FairLimit, FairSlots

# --- valves ----------------------------------------------------------------------------------------------------------

_PROBE_SECONDS: Final = 2.0
"""How long other callers wait for a probe; a successful one seldom takes longer."""


class Admission(Enum):
    """The way in which a caller was admitted."""

    OPEN = auto()
    PROBE = auto()
    """The caller is the probe: it must report with `open`, `shut` or `abandon`."""


class Urgency(Enum):
    """Says whether a caller may probe before the valve is due."""

    WHEN_DUE = auto()
    NOW = auto()
    """For callers with their own interval, such as the validation of a store."""


@dataclass(slots=True)
class _Shut:
    error: ProviderError
    until: float


class Valve:
    """A valve in front of a failing resource: shut for a while, then one caller probes it, and the others wait.

        open --shut()--> shut until T --first caller after T--> probing --success--> open
                              ^                                     |
                              +---------------- failure ------------+

    While it is shut, callers get the error that shut it at once. While a probe runs, they wait for its result, but not
    for long, so that a probe without a response does not hold all workers. A broken resource thus costs one call,
    however many callers there are.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shut: _Shut | None = None
        self._probe: asyncio.Event | None = None

    @property
    def is_open(self) -> bool:
        return self._shut is None

    @property
    def is_probing(self) -> bool:
        return self._probe is not None

    async def enter(self, within: float, urgency: Urgency = Urgency.WHEN_DUE) -> Admission:
        """Admit the caller, admit it as the probe, or raise the error that shut the valve."""
        while self._shut is not None:
            if self._probe is not None:
                await self._wait_for_probe(self._probe, self._shut.error, min(within, _PROBE_SECONDS))
            elif urgency is Urgency.NOW or self._clock.monotonic() >= self._shut.until:
                self._probe = asyncio.Event()
                return Admission.PROBE
            else:
                raise self._refusal(self._shut)
        return Admission.OPEN

    def open(self) -> None:
        """Open the valve: the resource works."""
        self._shut = None
        self.abandon()

    def shut(self, error: ProviderError, seconds: float) -> None:
        """Shut the valve: the resource fails, and the next probe may go after this time."""
        # A copy: the traceback of an error refers to everything that its callers held.
        self._shut = _Shut(restated(error), self._clock.monotonic() + seconds)
        self.abandon()

    def abandon(self) -> None:
        """End the probe without a result, for example after a cancellation; another caller may probe."""
        if self._probe is not None:
            self._probe.set()
            self._probe = None

    async def _wait_for_probe(self, probe: asyncio.Event, error: ProviderError, within: float) -> None:
        try:
            async with Deadline(self._clock, within):
                await probe.wait()
        except TimeoutError:
            raise restated(error) from None

    def _refusal(self, shut: _Shut) -> ProviderError:
        return restated(shut.error, retry_after=max(shut.until - self._clock.monotonic(), shut.error.retry_after, 0.0))


# --- budgets of identities ------------------------------------------------------------------------------------------

MAX_BUDGETS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Rule:
    """The number of consecutive failures that close a budget, and for how long."""

    threshold: int
    rest: ExponentialBackoff


_THROTTLED = _Rule(1, ExponentialBackoff(first=1.0, cap=60.0))
_REFUSED = _Rule(1, ExponentialBackoff(first=15.0, cap=600.0))
_DOWN = _Rule(3, ExponentialBackoff(first=2.0, cap=60.0))

_RULES: dict[ErrorReason, _Rule] = {
    ErrorReason.RATE_LIMITED: _THROTTLED,
    ErrorReason.CREDENTIALS_NOT_FOUND: _REFUSED,
    ErrorReason.CREDENTIALS_REJECTED: _REFUSED,
    ErrorReason.CONFIG_NOT_FOUND: _REFUSED,
    ErrorReason.CONFIG_INVALID: _REFUSED,
    ErrorReason.UNSUPPORTED_KIND: _REFUSED,
    ErrorReason.PROTOCOL_INCOMPATIBLE: _REFUSED,
    ErrorReason.BACKEND_UNAVAILABLE: _DOWN,
    ErrorReason.BACKEND_TIMEOUT: _DOWN,
}


@dataclass(slots=True)
class _Budget:
    valve: Valve
    failures: int = 0
    rests: int = 0
    reason: ErrorReason = ErrorReason.UNSPECIFIED


class Budgets:
    """The budgets of identities with recent failures; bounded, the oldest is evicted.

        RATE_LIMITED                          closed until the time that the backend names
        bad credentials or configuration      closed for long: only a change helps, which creates another identity
        backend down or silent, 3 times       closed for a short time

    Identities do not affect one another. A failed validation does not close a budget unless it is throttled: the gate
    of the store decides about its users.
    """

    def __init__(self, clock: Clock, draw: Random = system_random) -> None:
        self._clock = clock
        self._draw = draw
        self._entries: BoundedDict[Hashable, _Budget] = BoundedDict(MAX_BUDGETS, _release)

    @property
    def failing(self) -> int:
        """Return the number of identities with recent failures."""
        return len(self._entries)

    async def enter(self, identity: Hashable, within: float, urgency: Urgency = Urgency.WHEN_DUE) -> Admission:
        """Admit a call, or raise the last refusal while the budget is closed."""
        entry = self._entries.get(identity)
        return Admission.OPEN if entry is None else await entry.valve.enter(within, urgency)

    def succeeded(self, identity: Hashable) -> None:
        if entry := self._entries.pop(identity, None):
            entry.valve.open()

    def failed(
        self, identity: Hashable, error: ProviderError, admission: Admission, urgency: Urgency = Urgency.WHEN_DUE
    ) -> None:
        """Report an error of a call or item. An error that does not concern the identity counts as success."""
        rule = _RULES.get(error.reason)
        if isinstance(error, TransportError):  # it does not concern the identity; the breaker counts it
            self.abandoned(identity, admission)
        elif rule is None:
            self.succeeded(identity)
        elif urgency is Urgency.NOW and rule is not _THROTTLED:
            self.abandoned(identity, admission)
        else:
            self._count(self._entry(identity), rule, error, admission)

    def _count(self, entry: _Budget, rule: _Rule, error: ProviderError, admission: Admission) -> None:
        if admission is Admission.OPEN and not entry.valve.is_open:
            return  # the call was sent before the budget closed
        if entry.reason is not error.reason:
            entry.failures = entry.rests = 0
            entry.reason = error.reason
        entry.failures += 1
        if entry.failures >= rule.threshold:
            entry.rests += 1
            entry.valve.shut(error, error.retry_after or rule.rest.delay(entry.rests, self._draw))
        else:
            self._abandon(entry, admission)

    def abandoned(self, identity: Hashable, admission: Admission) -> None:
        """Report a call without a result."""
        if entry := self._entries.get(identity):
            self._abandon(entry, admission)

    @staticmethod
    def _abandon(entry: _Budget, admission: Admission) -> None:
        if admission is Admission.PROBE:
            entry.valve.abandon()

    def _entry(self, identity: Hashable) -> _Budget:
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = _Budget(Valve(self._clock))
        return entry


def _release(_identity: Hashable, evicted: _Budget) -> None:
    """Release the callers that wait for a probe of the evicted entry."""
    evicted.valve.open()


# --- circuit breakers -----------------------------------------------------------------------------------------------

STATES: Final = ("closed", "half-open", "open")
"""States, best first."""

MAX_BREAKERS: Final = 1000


class BreakerKey(NamedTuple):
    """The key of a breaker. Bad certificates or short timeouts of one user must not affect others."""

    connection: str
    connect_timeout: float | None
    call_timeout: float | None


class Breakers:
    """All breakers, by key and provider; bounded, the oldest is evicted."""

    def __init__(self, clock: Clock, settings: BreakerSettings, draw: Random = system_random) -> None:
        self._clock = clock
        self._settings = settings
        self._draw = draw
        self._known: BoundedDict[BreakerKey, tuple[str, Breaker]] = BoundedDict(MAX_BREAKERS, self._forget)
        self._of_provider: dict[str, dict[BreakerKey, Breaker]] = {}

    def of(self, provider: str, key: BreakerKey) -> Breaker:
        if (known := self._known.get(key)) is not None:
            return known[1]
        breaker = Breaker(self._clock, self._settings, self._draw)
        self._of_provider.setdefault(provider, {})[key] = breaker
        self._known[key] = provider, breaker
        return breaker

    def worst(self, provider: str) -> str:
        """Return the worst state among the breakers of a provider."""
        states = [breaker.state for breaker in self._of_provider.get(provider, {}).values()]
        return max(states, key=STATES.index, default=STATES[0])

    def reopen(self, connection: str) -> None:
        """Close all breakers of a connection, after a successful handshake."""
        for key, (_, breaker) in self._known.items():
            if key.connection == connection:
                breaker.responded()

    def _forget(self, key: BreakerKey, evicted: tuple[str, Breaker]) -> None:
        provider, _ = evicted
        of_provider = self._of_provider[provider]
        del of_provider[key]
        if not of_provider:
            del self._of_provider[provider]


class Breaker:
    """The breaker of one connection and its timeouts: refuses calls to a provider that does not respond for a while.

    Only infrastructure failures count: the provider was not reached or did not respond in time. Any response, even an
    error, resets the count. A timeout counts once for each identity, because the backend of one identity may be slow,
    which must not lock out the others. Handshakes ignore the breaker (`directory.py` paces them); a successful one
    closes it.
    """

    def __init__(self, clock: Clock, settings: BreakerSettings, draw: Random = system_random) -> None:
        self._settings = settings
        self._draw = draw
        self._valve = Valve(clock)
        self._failures = 0
        self._timed_out: set[str] = set()
        self._rests = 0

    @property
    def state(self) -> str:
        if self._valve.is_open:
            return "closed"
        return "half-open" if self._valve.is_probing else "open"

    async def enter(self, within: float) -> Admission:
        """Admit a call, or raise the last failure while the breaker is open.

        An admitted call must report with `responded`, `failed` or `abandoned`.
        """
        return await self._valve.enter(within)

    def responded(self) -> None:
        self._failures = self._rests = 0
        self._timed_out.clear()
        self._valve.open()

    def failed(self, error: ProviderError, admission: Admission, identity: str = "") -> None:
        """Report a failed call. `identity` is that of the caller; empty for a handshake, which needs no backend."""
        if not is_infrastructure(error):
            self.responded()
            return
        if admission is Admission.OPEN and not self._valve.is_open:
            return  # the call was sent before the breaker opened
        if identity and isinstance(error, NoResponseError):
            self._timed_out.add(identity)
        else:
            self._failures += 1
        if self._failures + len(self._timed_out) >= self._settings.threshold:
            self._rests += 1
            self._valve.shut(error, self._settings.rest.delay(self._rests, self._draw))
        else:
            self.abandoned(admission)

    def abandoned(self, admission: Admission) -> None:
        """Report a call without a result, for example a cancelled one."""
        if admission is Admission.PROBE:
            self._valve.abandon()


# --- call slots -----------------------------------------------------------------------------------------------------


class InFlight:
    """The slots of one endpoint: its most concurrent calls, the smaller of the limits of operator and provider.

    Namespaces take turns, and none takes the last slots (`kubebase/fairness.py`), so that the silent backend of one
    tenant does not block another. The deadline of the caller and the number of waiting callers bound the waiting.
    """

    def __init__(self, label: str, clock: Clock, *, slots: int, max_waiting: int) -> None:
        self.label = label
        self.slots = slots
        self._clock = clock
        self._slots = FairSlots(slots)
        self._waiting = FairLimit(max_waiting + slots)

    @property
    def taken(self) -> int:
        return self._slots.taken

    @property
    def queued(self) -> int:
        """The number of callers that wait for a slot."""
        return self._slots.waiting()

    def resize(self, slots: int) -> None:
        """Change the limit; running calls are not affected."""
        self.slots = slots
        self._slots.resize(slots)

    @asynccontextmanager
    async def slot(self, within: float, share: str = "") -> AsyncIterator[None]:
        """Hold a slot for a call of the namespace `share`. Raises ProviderError if none is free in time."""
        if not self._waiting.may_take(share):
            raise overloaded(self.label, self._slots.waiting(share))
        self._waiting.take(share)
        try:
            await self._take(within, share)
            try:
                yield
            finally:
                self._slots.release(share)
        finally:
            self._waiting.give_back(share)

    async def _take(self, within: float, share: str) -> None:
        try:
            async with Deadline(self._clock, within):
                await self._slots.acquire(share)
        except TimeoutError:
            raise ProviderError(
                ErrorReason.BACKEND_TIMEOUT,
                f"provider {self.label} was busy: no call slot came free within {within:.1f} s",
            ) from None


# --- retries --------------------------------------------------------------------------------------------------------

_MAX_PAUSE: Final = 30.0
_MIN_PAUSE: Final = 0.001
_MIN_TRY: Final = 1.0
"""The time that must be left for a retry after a timeout. Providers report it shortly before our deadline."""


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """The number of retries and the pauses between them.

    gRPC itself retries only calls that the server has not received. A call is retried only if waiting can help, if a
    second call is safe, and if the deadline allows it.
    """

    max_retries: int
    pauses: ExponentialBackoff
    granted: float = 0.0
    """Seconds that the pauses add to the deadline, if the store sets a retry interval."""

    @staticmethod
    def of(policy: CallPolicy, settings: CallSettings) -> RetryPlan:
        """Return the plan from the settings of the store, else of the operator."""
        retries = settings.max_retries if policy.max_retries is None else policy.max_retries
        interval = settings.retry_interval if policy.retry_interval is None else policy.retry_interval
        first = max(interval, _MIN_PAUSE)
        pauses = ExponentialBackoff(first=first, cap=max(first, _MAX_PAUSE), jitter=0.5)
        granted = 0.0 if policy.retry_interval is None else _together(pauses, retries, settings.longest_pauses)
        return RetryPlan(max(retries, 0), pauses, granted)

    def pause(self, error: ProviderError, tries: int, *, left: float, draw: Random) -> float | None:
        """Return the seconds until the next try; None for no retry. `tries` were made, `left` seconds remain."""
        if tries > self.max_retries or not is_retryable(error):
            return None
        seconds = max(self.pauses.delay(tries, draw), error.retry_after)
        needed = seconds + (_MIN_TRY if error.reason is ErrorReason.BACKEND_TIMEOUT else 0.0)
        return seconds if needed < left else None


def _together(pauses: ExponentialBackoff, retries: int, longest: float) -> float:
    """Return the sum of the pauses of all retries, at most `longest`."""
    seconds = 0.0
    for number in range(1, retries + 1):
        seconds += pauses.ceiling(number)
        if seconds >= longest:
            return longest
    return seconds
