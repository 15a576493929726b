"""A budget for each credential identity: what the backend refuses to one identity is not asked again by all its users.

    RATE_LIMITED                       shut until the time the backend names
    credentials or configuration bad   shut for long: only a change helps, and a change is another identity
    backend down or silent, 3 times    shut for short

When the time has come one call goes out as a probe and the others wait for it. Identities do not affect one another.
A validation shuts nobody out unless it is throttled: whether its verdict stops others is for the gate to say.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from eso_operator.providers.valve import Admission, Urgency, Valve
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.status import TransportError
from kuberun.backoff import Backoff, Random, system_random
from kuberun.clock import Clock

_MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class _Rule:
    """After how many failures in a row an identity is shut, and for how long."""

    threshold: int
    rest: Backoff


_THROTTLED = _Rule(1, Backoff(first=1.0, cap=60.0))
_REFUSED = _Rule(1, Backoff(first=15.0, cap=600.0))
_DOWN = _Rule(3, Backoff(first=2.0, cap=60.0))

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
    """Only identities in trouble take memory, and of those a bounded number."""

    def __init__(self, clock: Clock, draw: Random = system_random) -> None:
        self._clock = clock
        self._draw = draw
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    @property
    def in_trouble(self) -> int:
        """How many identities have failed lately."""
        return len(self._entries)

    async def enter(self, identity: Hashable, within: float, urgency: Urgency = Urgency.PATIENT) -> Admission:
        """Raise what was last refused, if asking again is too early."""
        entry = self._entries.get(identity)
        return Admission.OPEN if entry is None else await entry.valve.enter(within, urgency)

    def worked(self, identity: Hashable) -> None:
        if entry := self._entries.pop(identity, None):
            entry.valve.open()

    def failed(
        self, identity: Hashable, error: ProviderError, admission: Admission, urgency: Urgency = Urgency.PATIENT
    ) -> None:
        """An error of a call, or of one item of it. One that says nothing about the identity counts as working."""
        rule = _RULES.get(error.reason)
        if isinstance(error, TransportError):  # nothing was learnt about the identity; the breaker counts it
            self.gave_up(identity, admission)
        elif rule is None:
            self.worked(identity)
        elif urgency is Urgency.NOW and rule is not _THROTTLED:
            self.gave_up(identity, admission)
        else:
            self._count(self._entry(identity), rule, error, admission)

    def _count(self, entry: _Entry, rule: _Rule, error: ProviderError, admission: Admission) -> None:
        if admission is Admission.OPEN and not entry.valve.is_open:
            return  # sent before it was shut: nothing new
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
        """The caller learnt nothing."""
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
            if len(self._entries) > _MAX_ENTRIES:
                _, oldest = self._entries.popitem(last=False)
                oldest.valve.open()  # nobody may wait for ever on an entry that is forgotten
        return entry
