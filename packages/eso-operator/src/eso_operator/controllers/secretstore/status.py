"""Maps a verdict to its report: one table for condition, events, status and requeue. Pure.

    verdict       Ready      reason                                     event      then
    Valid         True       Valid                                      Normal     after the interval
    PerCaller v1  True       Valid                                      Normal     after the interval
    PerCaller v2  Unknown    ReferentAuthUnverified                     Normal     after the interval
    Unverified    True       ValidationUnknown                          Warning    after the interval
    Broken   v1   False      InvalidProviderConfig                      Warning    back-off
    Broken   v2   False      the cause (ProviderNotInstalled, …)        Warning    back-off
    Throttled     as it was  as it was; new: True, ValidationUnknown    Warning    after the pause of the backend
    Starting  v1   as it was  as it was; new: Unknown, ValidationUnknown none       when the provider answers
    Starting  v2   as it was  as it was; new: Unknown, ProviderStarting  none       when the provider answers

The existing operator records its Valid event at every reconcile; here an event is recorded only if it is new, so that
an idle cluster sees no writes. Reasons of v1 kinds are exactly the existing ones; the message begins with the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from eso_api import common
from eso_api.common import READY
from eso_operator.controllers.base import Event, Report, Subject
from eso_operator.controllers.secretstore.kinds import Generation, StoreKind
from eso_wire.values import ConditionReport, Operation
from kubebase.meta import Condition, ObjectMeta
from kuberun.controller import Backoff, Requeue, Result
from kuberun.events import EventType
from kuberun.redaction import bounded
from kuberun.status import ConditionStatus, find_condition, remove_condition, same_verdict, set_condition


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """The known facts about the provider of a store that was reached."""

    operations: frozenset[Operation]
    maintenance: str = ""
    conditions: tuple[ConditionReport, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Valid:
    """The provider accepted the configuration."""

    facts: ProviderFacts


@dataclass(frozen=True, slots=True)
class PerCaller:
    """A cluster-scoped store with the credentials of its caller: it can only be validated when it is used."""

    facts: ProviderFacts
    message: str


@dataclass(frozen=True, slots=True)
class Unverified:
    """The provider cannot determine whether the configuration works, and gives the reason."""

    facts: ProviderFacts
    message: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The store cannot be used. `cause` is the machine-readable reason, `message` says what, where and what to do."""

    cause: str
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttled:
    """The backend throttles calls; the verdict about the store is unknown."""

    message: str
    retry_after: float


@dataclass(frozen=True, slots=True)
class Starting:
    """The provider is starting, so nothing is known about the store yet. It is broken if that takes `seconds`."""

    cause: str
    message: str
    seconds: float


Verdict = Valid | PerCaller | Unverified | Broken | Throttled | Starting


READ_ONLY, WRITE_ONLY, READ_WRITE = "ReadOnly", "WriteOnly", "ReadWrite"

_READS: Final = frozenset(
    {Operation.GET, Operation.GET_MAP, Operation.FIND_BY_NAME, Operation.FIND_BY_TAGS, Operation.FIND_BY_PATH}
)
_WRITES: Final = frozenset({Operation.PUSH, Operation.PUSH_WHOLE_SECRET})


def capabilities_of(operations: Iterable[Operation]) -> str:
    """Return ReadOnly, WriteOnly or ReadWrite; empty if it neither reads nor writes, such as a generator."""
    known = frozenset(operations)
    match (bool(known & _READS), bool(known & _WRITES)):
        case (True, True):
            return READ_WRITE
        case (True, False):
            return READ_ONLY
        case (False, True):
            return WRITE_ONLY
        case _:
            return ""


def spelled(operations: Iterable[Operation]) -> Sequence[str]:
    """Return the operations for `status.operations`, sorted, so that equal sets are equal lists."""
    return sorted(operation.value for operation in operations)


THROTTLED: Final = "Throttled"
PUSH_REFRESH_DEGRADED: Final = "PushRefreshDegraded"
PUSH_REFRESH_RESTORED: Final = "PushRefreshRestored"
UNANCHORED_REGEXES: Final = "UnanchoredNamespaceRegexes"
VALID: Final = "Valid"
INVALID_PROVIDER_CONFIG: Final = common.INVALID_PROVIDER_CONFIG
VALIDATION_UNKNOWN: Final = "ValidationUnknown"
REFERENT_AUTH_UNVERIFIED: Final = "ReferentAuthUnverified"
STORE_UNMAINTAINED: Final = "StoreUnmaintained"
STORE_DEPRECATED: Final = "StoreDeprecated"
IGNORE_MAINTENANCE: Final = "external-secrets.io/ignore-maintenance-checks"
MIRROR_PREFIX: Final = "Provider"
"""Conditions that the provider reports appear under this prefix."""

_VALIDATED: Final = "store validated"
_POLLED: Final = "Changes are found at the refresh interval"
_MAX_MIRRORED: Final = 16
_MAX_WARNINGS: Final = 5
_SHOWN_PATTERN: Final = 80
_MAX_MIRRORED_MESSAGE: Final = 1024
_TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")


_Verdict = Valid | PerCaller | Unverified | Broken | Throttled
"""The verdicts that say something about the store."""


@dataclass(frozen=True, slots=True)
class Before:
    """The store as it was when the verdict was reached."""

    kind: StoreKind
    metadata: ObjectMeta
    status: Any
    interval: float
    now: datetime
    stream_trouble: str | None = None
    """Why the change stream of the provider is broken; it does not affect readiness."""
    unanchored: Sequence[str] = ()
    """The patterns of `namespaceRegexes` that match parts of names."""


def subject_of(kind: StoreKind) -> Subject:
    return Subject(kind.kind, kind.subsystem, log=_VALIDATED, log_key="store")


def report_of(before: Before, verdict: Verdict) -> Report:
    """Return the report of a verdict."""
    old = find_condition(before.status.conditions, READY)
    if isinstance(verdict, Starting):
        return _waiting(before, verdict, old)
    ready, event = _ready(before, verdict, old)
    conditions = set_condition(before.status.conditions, ready, before.now)
    conditions = _with_throttling(conditions, verdict, before.now)
    conditions = _with_stream_trouble(conditions, before)
    conditions = _with_unanchored(conditions, before)
    facts = _facts_of(verdict)
    if facts is not None:
        conditions = _with_mirrored(conditions, facts.conditions, before.now)
    events = () if same_verdict(old, ready) else _events(before, facts, Event(event, ready.reason, ready.message))
    events = (*events, *_push_events(before))
    status = _status(before, conditions, facts, verdict)
    # A line only when something changed: a store is validated again and again.
    log = None if status == before.status else {"ready": ready.status, "why": ready.reason}
    return Report(status, _then(before, verdict), events, log=log)


def _waiting(before: Before, verdict: Starting, old: Condition | None) -> Report:
    """Return the report of a store whose provider is starting: the first one says so, the others say nothing."""
    then = Requeue(max(verdict.seconds, 1.0), "the provider has had its time to start")
    if old is not None:
        return Report(before.status, then)
    ready = _unvalidated(before.kind.generation, ConditionStatus.UNKNOWN, verdict.cause, verdict.message)
    conditions = set_condition(before.status.conditions, ready, before.now)
    status = _status(before, conditions, None, verdict)
    return Report(status, then, log={"ready": ready.status, "why": verdict.cause})


def _ready(before: Before, verdict: _Verdict, old: Condition | None) -> tuple[Condition, EventType]:
    match verdict:
        case Valid():
            return _condition(ConditionStatus.TRUE, VALID, _VALIDATED), EventType.NORMAL
        case PerCaller(message=message):
            if before.kind.generation is Generation.V1:
                return _condition(ConditionStatus.TRUE, VALID, _VALIDATED), EventType.NORMAL
            return _condition(ConditionStatus.UNKNOWN, REFERENT_AUTH_UNVERIFIED, message), EventType.NORMAL
        case Unverified(message=message):
            return _condition(ConditionStatus.TRUE, VALIDATION_UNKNOWN, message), EventType.WARNING
        case Broken(cause=cause, message=message):
            return _unvalidated(before.kind.generation, ConditionStatus.FALSE, cause, message), EventType.WARNING
        case Throttled(message=message):
            if old is not None:
                return old, EventType.WARNING
            return _condition(ConditionStatus.TRUE, VALIDATION_UNKNOWN, message), EventType.WARNING
        case _:
            assert_never(verdict)


def _unvalidated(generation: Generation, status: ConditionStatus, cause: str, message: str) -> Condition:
    match generation:
        case Generation.V1:
            reason = INVALID_PROVIDER_CONFIG if status is ConditionStatus.FALSE else VALIDATION_UNKNOWN
            text = message if cause == INVALID_PROVIDER_CONFIG else f"{cause}: {message}"
            return _condition(status, reason, text)
        case Generation.V2:
            return _condition(status, cause, message)
        case _:
            assert_never(generation)


def _then(before: Before, verdict: _Verdict) -> Result:
    match verdict:
        case Valid() | PerCaller() | Unverified():
            return Requeue(before.interval, "validation is due")
        case Throttled(retry_after=retry_after):
            return Requeue(max(retry_after, 1.0), "the backend asked to wait")
        case Broken(cause=cause, retry_after=retry_after):
            return Backoff(cause, retry_after)
        case _:
            assert_never(verdict)


def _facts_of(verdict: Verdict) -> ProviderFacts | None:
    match verdict:
        case Valid(facts=facts) | PerCaller(facts=facts) | Unverified(facts=facts):
            return facts
        case Broken() | Throttled() | Starting():
            return None
        case _:
            assert_never(verdict)


def _status(before: Before, conditions: list[Condition], facts: ProviderFacts | None, verdict: Verdict) -> Any:
    """Return the old status with the new facts. Facts that are still unknown stay as they were."""
    changes: dict[str, Any] = {"conditions": conditions}
    if facts is not None and not (before.kind.generation is Generation.V1 and isinstance(verdict, Unverified)):
        changes["capabilities"] = capabilities_of(facts.operations)
    if before.kind.generation is Generation.V2:
        changes["observed_generation"] = before.metadata.generation
        if facts is not None:
            changes["operations"] = list(spelled(facts.operations))
    return msgspec.structs.replace(before.status, **changes)


# --- conditions besides Ready -----------------------------------------------------------------------------------------


def _with_throttling(conditions: list[Condition], verdict: Verdict, now: datetime) -> list[Condition]:
    if isinstance(verdict, Throttled):
        throttled = Condition(type=THROTTLED, status="True", reason="RateLimited", message=verdict.message)
        return set_condition(conditions, throttled, now)
    return remove_condition(conditions, THROTTLED)


def _with_stream_trouble(conditions: list[Condition], before: Before) -> list[Condition]:
    if before.stream_trouble is None:
        return remove_condition(conditions, PUSH_REFRESH_DEGRADED)
    message = bounded(f"{before.stream_trouble}. {_POLLED}", _MAX_MIRRORED_MESSAGE)
    degraded = Condition(type=PUSH_REFRESH_DEGRADED, status="True", reason="StreamBroken", message=message)
    return set_condition(conditions, degraded, before.now)


def _with_unanchored(conditions: list[Condition], before: Before) -> list[Condition]:
    """Say that a pattern matches more names than its author may expect: the Go operator does not anchor it either."""
    if not before.unanchored:
        return remove_condition(conditions, UNANCHORED_REGEXES)
    patterns = ", ".join(f'"{each[:_SHOWN_PATTERN]}"' for each in before.unanchored[:_MAX_WARNINGS])
    message = (
        f"namespaceRegexes match any part of a name: {patterns} also admits namespaces that only contain it;"
        " write ^...$ to match whole names"
    )
    unanchored = Condition(type=UNANCHORED_REGEXES, status="True", reason="MatchesPartOfName", message=message)
    return set_condition(conditions, unanchored, before.now)


def unanchored_regexes(spec: Any) -> list[str]:
    """Return the patterns of a cluster-scoped store that need not match a whole name."""
    patterns = [each for condition in getattr(spec, "conditions", ()) for each in condition.namespace_regexes]
    return [each for each in patterns if not (each.startswith(("^", "\\A")) and each.endswith(("$", "\\z")))]


def _with_mirrored(conditions: list[Condition], reports: Iterable[ConditionReport], now: datetime) -> list[Condition]:
    """Return the provider's own conditions, bounded and under our prefix, without those it no longer reports."""
    mirrored = [_mirrored(report) for report in reports if _TYPE.fullmatch(report.type)][:_MAX_MIRRORED]
    types = {condition.type for condition in mirrored}
    for stale in [known for known in conditions if _is_mirror(known) and known.type not in types]:
        conditions = remove_condition(conditions, stale.type)
    for condition in mirrored:
        conditions = set_condition(conditions, condition, now)
    return conditions


def _mirrored(report: ConditionReport) -> Condition:
    statuses = [status.value for status in ConditionStatus]
    return Condition(
        type=f"{MIRROR_PREFIX}{report.type}",
        status=report.status if report.status in statuses else ConditionStatus.UNKNOWN.value,
        reason=report.reason if _REASON.fullmatch(report.reason) else "Reported",
        message=bounded(report.message, _MAX_MIRRORED_MESSAGE),
    )


def _is_mirror(condition: Condition) -> bool:
    return condition.type.startswith(MIRROR_PREFIX) and condition.type not in (READY, THROTTLED)


# --- events -----------------------------------------------------------------------------------------------------------

_MAINTENANCE: Final[Mapping[str, tuple[str, str]]] = {
    "unmaintained": (STORE_UNMAINTAINED, "the provider of this store is unmaintained; plan to replace it"),
    "deprecated": (STORE_DEPRECATED, "the provider of this store is deprecated; plan to replace it"),
}


def _events(before: Before, facts: ProviderFacts | None, verdict: Event) -> tuple[Event, ...]:
    """Return events about maintenance and warnings whenever the verdict changed."""
    if facts is None:
        return (verdict,)
    return (*_maintenance_events(before.metadata, facts), *_warnings(facts.warnings), verdict)


def _push_events(before: Before) -> tuple[Event, ...]:
    """Return an event when the degradation begins or ends."""
    was_degraded = find_condition(before.status.conditions, PUSH_REFRESH_DEGRADED) is not None
    if before.stream_trouble is not None and not was_degraded:
        return (Event(EventType.WARNING, PUSH_REFRESH_DEGRADED, f"{before.stream_trouble}. {_POLLED}"),)
    if before.stream_trouble is None and was_degraded:
        return (Event(EventType.NORMAL, PUSH_REFRESH_RESTORED, "change events arrive again, or are no longer needed"),)
    return ()


def _maintenance_events(about: ObjectMeta, facts: ProviderFacts) -> tuple[Event, ...]:
    known = _MAINTENANCE.get(facts.maintenance)
    if known is None or IGNORE_MAINTENANCE in about.annotations:
        return ()
    return (Event(EventType.WARNING, *known),)


def _warnings(texts: Sequence[str]) -> tuple[Event, ...]:
    return tuple(Event(EventType.WARNING, "ProviderWarning", text) for text in texts[:_MAX_WARNINGS])


def _condition(status: ConditionStatus, reason: str, message: str) -> Condition:
    return Condition(type=READY, status=status.value, reason=reason, message=message)
