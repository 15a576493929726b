"""Maps the results of a fan-out to its report: status, condition, event, requeue. Pure.

    result                            Ready   failedNamespaces       then
    every namespace has its child     True    none                   after refreshTime, never if that is 0
    a child is not ready              True    none                   the same; a change of its `Ready` wakes the parent
    a name is taken, a child leaves   False   that namespace         the same; its deletion wakes the parent at once
    the API server refused a write    False   that namespace, why    back-off
    the spec is invalid               False   `unknown`, why         after refreshTime; a changed spec at once

Type and status of the condition, and the front of the message when namespaces failed, are those of the existing
operator. Its reason, its time and the rest of the message are ours. An event is recorded when failures are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, assert_never

import msgspec

from eso_api.common import READY, FailedNamespace
from eso_operator.controllers.base import Event, Report, Subject
from eso_operator.controllers.fanout.kinds import FanOut, Parent
from eso_operator.controllers.fanout.snapshot import NO_GAPS, Gaps
from eso_operator.controllers.refresh import SHORTEST_INTERVAL
from kubebase import durations
from kubebase.meta import Condition, Malformed
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.events import EventType
from kuberun.redaction import bounded
from kuberun.status import ConditionStatus, find_condition, set_condition

SOME_FAILED: Final = "one or more namespaces failed"

_NAMED: Final = 2
_MAX_CAUSE_BYTES: Final = 256
_SILENT: Final = "it has not reported yet"


class ReadyReason(StrEnum):
    """If several apply, the first in this order is the reason; the message contains all."""

    NAMESPACES_FAILED = "NamespacesFailed"
    CHILDREN_NOT_READY = "ChildrenNotReady"
    NAMESPACE_NOT_FOUND = "NamespaceNotFound"
    NO_NAMESPACE = "NoNamespaceMatches"
    PROVISIONED = "Provisioned"


@dataclass(frozen=True, slots=True)
class Unready:
    """A child that is where it should be and does not work, or not yet."""

    namespace: str
    cause: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of the condition; `child` is the kind of the children."""

    child: str
    failed: Sequence[FailedNamespace]
    provisioned: Sequence[str]
    unready: Sequence[Unready]
    gaps: Gaps


def verdict(child: Any | None) -> tuple[str, str] | None:
    """Return status and reason of a child's `Ready`; None if it has none."""
    found = _ready(child)
    return None if found is None else (found.status, found.reason)


def unready(namespace: str, child: Any | None) -> Unready | None:
    """Return why the child is not ready; None if it is ready."""
    found = _ready(child)
    if found is None:
        return Unready(namespace, _SILENT)
    if found.status == ConditionStatus.TRUE:
        return None
    return Unready(namespace, bounded(found.message or found.reason or found.status, _MAX_CAUSE_BYTES))


def condition_of(facts: Facts) -> Condition:
    """Return the parent's `Ready`, without its time."""
    status = ConditionStatus.FALSE if facts.failed else ConditionStatus.TRUE
    return Condition(type=READY, status=status.value, reason=_reason(facts).value, message=_message(facts))


def failure_text(failed: Sequence[FailedNamespace], most: int = _NAMED) -> str:
    """Return the failure message, with the causes of the first namespaces."""
    return f"{SOME_FAILED}: {_listed([f'{each.namespace}: {each.reason}' for each in failed], most)}"


def _ready(child: Any | None) -> Condition | None:
    if child is None or isinstance(child, Malformed):
        return None
    return find_condition(child.status.conditions, READY)


def _reason(facts: Facts) -> ReadyReason:
    if facts.failed:
        return ReadyReason.NAMESPACES_FAILED
    if facts.unready:
        return ReadyReason.CHILDREN_NOT_READY
    if facts.gaps.names:
        return ReadyReason.NAMESPACE_NOT_FOUND
    if facts.gaps.selectors or not facts.provisioned:
        return ReadyReason.NO_NAMESPACE
    return ReadyReason.PROVISIONED


def _message(facts: Facts) -> str:
    parts = [failure_text(facts.failed)] if facts.failed else []
    parts.append(f"{_counted(len(facts.provisioned), 'namespace')} provisioned")
    if facts.unready:
        verb = "is" if len(facts.unready) == 1 else "are"
        causes = _listed([f"{each.namespace}: {each.cause}" for each in facts.unready])
        parts.append(f"{_counted(len(facts.unready), facts.child)} {verb} not ready: {causes}")
    if facts.gaps.names:
        parts.append(f"spec.namespaces names what does not exist: {_listed(facts.gaps.names)}")
    if facts.gaps.selectors:
        parts.append(f"No namespace matches {_listed(facts.gaps.selectors)}")
    if facts.gaps.nothing_chosen:
        parts.append("The spec chooses no namespace")
    return ". ".join(parts)


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _listed(texts: Sequence[str], most: int = _NAMED) -> str:
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])


UNKNOWN_NAMESPACE: Final = "unknown"
ERRORED: Final = "Errored"

_DEFAULT_INTERVAL: Final = 3600.0
_MAX_REASON_BYTES: Final = 512
_NAMED_IN_EVENT: Final = 3


@dataclass(frozen=True, slots=True)
class ChildPresent:
    """The namespace has its child."""

    namespace: str


@dataclass(frozen=True, slots=True)
class ChildBlocked:
    """An obstacle whose removal wakes the parent."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """A call did not work, and may work later."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChildGone:
    """Nothing is left to do in the namespace."""


ChildResult = ChildPresent | ChildBlocked | ChildFailed | ChildGone


@dataclass(frozen=True, slots=True)
class Spread:
    """All namespaces were processed; `name` is the name of the children."""

    name: str
    results: tuple[ChildResult, ...]
    unready: tuple[Unready, ...] = ()
    gaps: Gaps = NO_GAPS


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The selection or the child's spec is invalid. Nothing was changed."""

    reason: str


def subject_of(fan_out: FanOut) -> Subject:
    return Subject(fan_out.parent, fan_out.subsystem, log="fanned out", log_key="parent")


def report_of(fan_out: FanOut, parent: Parent, came: Spread | Unreadable, now: datetime) -> Report:
    """Return the report of an outcome."""
    match came:
        case Spread(name=name, results=results, unready=unready, gaps=gaps):
            failed = _failures(results)
            provisioned = sorted({result.namespace for result in results if isinstance(result, ChildPresent)})
            ready = condition_of(Facts(fan_out.child.resource.kind, failed, provisioned, unready, gaps))
            status = fan_out.status(parent, name, failed, provisioned, _conditions(parent, ready, now))
            retry = next((result for result in results if isinstance(result, ChildFailed)), None)
            then = _due(parent) if retry is None else Backoff(f"namespace {retry.namespace} failed")
        case Unreadable(reason=reason):
            failed = [_failure(UNKNOWN_NAMESPACE, reason)]
            message = f"{SOME_FAILED}: {failed[0].reason}"
            ready = Condition(type=READY, status=ConditionStatus.FALSE.value, reason=ERRORED, message=message)
            conditions = _conditions(parent, ready, now)
            status = msgspec.structs.replace(parent.status, failed_namespaces=failed, conditions=conditions)
            then = _due(parent)
        case _:
            assert_never(came)
    return Report(status, then, _events(parent.status.failed_namespaces, failed), log=_log_line(parent, status))


def _log_line(parent: Parent, status: Any) -> dict[str, object] | None:
    """Return the log line; only if something changed, because parents are reconciled often."""
    if status == parent.status:
        return None
    return {"provisioned": len(status.provisioned_namespaces), "failed": len(status.failed_namespaces)}


def _conditions(parent: Parent, ready: Condition, now: datetime) -> list[Condition]:
    """Return our condition only.

    Conditions of other types, from earlier versions of the existing operator, are obsolete.
    """
    return set_condition([each for each in parent.status.conditions if each.type == READY], ready, now)


def _failures(results: Sequence[ChildResult]) -> list[FailedNamespace]:
    """Return one failure for each namespace, in order; if there are several, the first one."""
    first: dict[str, FailedNamespace] = {}
    for result in results:
        if isinstance(result, ChildBlocked | ChildFailed):
            first.setdefault(result.namespace, _failure(result.namespace, result.reason))
    return [first[namespace] for namespace in sorted(first)]


def _failure(namespace: str, reason: str) -> FailedNamespace:
    return FailedNamespace(namespace=namespace, reason=bounded(reason, _MAX_REASON_BYTES))


def _events(before: Sequence[FailedNamespace], now: Sequence[FailedNamespace]) -> tuple[Event, ...]:
    if not now or list(before) == list(now):
        return ()
    return (Event(EventType.WARNING, ERRORED, failure_text(now, _NAMED_IN_EVENT)),)


def _due(parent: Parent) -> Result:
    try:
        interval = durations.seconds(parent.spec.refresh_time, field="spec.refreshTime")
    except durations.DurationError:  # no API server accepts that
        interval = _DEFAULT_INTERVAL
    return Requeue(max(interval, SHORTEST_INTERVAL)) if interval > 0 else Done()
