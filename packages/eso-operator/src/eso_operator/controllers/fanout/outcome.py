"""Maps the results of a fan-out to its report: status, condition, event, requeue. Pure.

    result                            Ready   failedNamespaces       then
    every namespace has its child     True    none                   after refreshTime, never if that is 0
    a child is not ready              True    none                   the same; a change of its `Ready` wakes the parent
    a name is taken, a child leaves   False   that namespace         the same; its deletion wakes the parent at once
    the API server refused a write    False   that namespace, why    back-off
    the spec is invalid               False   `unknown`, why         after refreshTime; a changed spec at once

Type and status of the condition, and the front of the message when namespaces failed, are those of the existing
operator. Reason, time and the rest of the message are ours (`readiness`). An event is recorded when failures are new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, assert_never

import msgspec

from eso_api import durations
from eso_api.conditions import FailedNamespace
from eso_operator.controllers.fanout.description import FanOut, Parent
from eso_operator.controllers.fanout.namespaces import NO_GAPS, Gaps
from eso_operator.controllers.fanout.readiness import SOME_FAILED, Facts, Unready, condition_of, failure_text
from eso_operator.controllers.floor import SHORTEST_INTERVAL
from eso_operator.report.messages import READY, Event
from eso_operator.report.reporter import Report, Subject
from kubebase.meta import Condition
from kuberun.conditions import ConditionStatus, set_condition
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.events import EventType
from kuberun.redaction import bounded

UNKNOWN_NAMESPACE: Final = "unknown"
ERRORED: Final = "Errored"

_DEFAULT_INTERVAL: Final = 3600.0
_MAX_REASON_BYTES: Final = 512
_NAMED_IN_EVENT: Final = 3


@dataclass(frozen=True, slots=True)
class Reached:
    """The namespace has its child."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An obstacle whose removal wakes the parent."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A call did not work, and may work later."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing is left to do in the namespace."""


ChildResult = Reached | Refused | Failed | Left


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
    return Subject(fan_out.parent, fan_out.subsystem, name="parent", log="fanned out", log_key="parent")


def report_of(fan_out: FanOut, parent: Parent, came: Spread | Unreadable, now: datetime) -> Report:
    """Return the report of an outcome."""
    match came:
        case Spread(name=name, results=results, unready=unready, gaps=gaps):
            failed = _failures(results)
            provisioned = sorted({result.namespace for result in results if isinstance(result, Reached)})
            ready = condition_of(Facts(fan_out.child.resource.kind, failed, provisioned, unready, gaps))
            status = fan_out.status(parent, name, failed, provisioned, _conditions(parent, ready, now))
            retry = next((result for result in results if isinstance(result, Failed)), None)
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
        if isinstance(result, Refused | Failed):
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
