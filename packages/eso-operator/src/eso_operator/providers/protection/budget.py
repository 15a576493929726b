"""Budgets of credential identities: after a refusal by the backend, calls of that identity are refused for a while.

    RATE_LIMITED                       until the time that the backend names
    bad credentials or configuration   for long: only a change helps, and a change creates another identity
    backend down or silent, 3 times    for short

Then one call goes out as a probe, and the others wait for its result. Identities do not affect one another.
A failed validation does not close a budget unless it is throttled: the gate of the store decides about its users.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from eso_operator.providers.protection.valve import Admission, Urgency, Valve
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from kubebase.backoff import ExponentialBackoff, Random, system_random
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

MAX_ENTRIES = 10_000


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
class _Entry:
    valve: Valve
    failures: int = 0
    rests: int = 0
    reason: ErrorReason = ErrorReason.UNSPECIFIED


class Budgets:
    """The budgets of identities with recent failures; bounded, the oldest is evicted."""

    def __init__(self, clock: Clock, draw: Random = system_random) -> None:
        self._clock = clock
        self._draw = draw
        self._entries: BoundedDict[Hashable, _Entry] = BoundedDict(MAX_ENTRIES, _release)

    @property
    def in_trouble(self) -> int:
        """Return the number of identities with recent failures."""
        return len(self._entries)

    async def enter(self, identity: Hashable, within: float, urgency: Urgency = Urgency.PATIENT) -> Admission:
        """Admit a call, or raise the last refusal while the budget is closed."""
        entry = self._entries.get(identity)
        return Admission.OPEN if entry is None else await entry.valve.enter(within, urgency)

    def worked(self, identity: Hashable) -> None:
        if entry := self._entries.pop(identity, None):
            entry.valve.open()

    def failed(
        self, identity: Hashable, error: ProviderError, admission: Admission, urgency: Urgency = Urgency.PATIENT
    ) -> None:
        """Report an error of a call or item. An error that does not concern the identity counts as success."""
        rule = _RULES.get(error.reason)
        if isinstance(error, TransportError):  # it does not concern the identity; the breaker counts it
            self.gave_up(identity, admission)
        elif rule is None:
            self.worked(identity)
        elif urgency is Urgency.NOW and rule is not _THROTTLED:
            self.gave_up(identity, admission)
        else:
            self._count(self._entry(identity), rule, error, admission)

    def _count(self, entry: _Entry, rule: _Rule, error: ProviderError, admission: Admission) -> None:
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

    def gave_up(self, identity: Hashable, admission: Admission) -> None:
        """Report a call without a result."""
        if entry := self._entries.get(identity):
            self._abandon(entry, admission)

    @staticmethod
    def _abandon(entry: _Entry, admission: Admission) -> None:
        if admission is Admission.PROBE:
            entry.valve.abandon()

    def _entry(self, identity: Hashable) -> _Entry:
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = _Entry(Valve(self._clock))
        return entry


def _release(_identity: Hashable, evicted: _Entry) -> None:
    """Release the callers that wait for a probe of the evicted entry."""
    evicted.valve.open()
