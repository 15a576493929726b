"""From what was reached to everything that is said about it: status, condition, event, requeue. Pure.

    what came of it                   Ready   failedNamespaces       then
    every namespace has its child     True    none                   after refreshTime, never if that is 0
    a name is taken, a child leaves   False   that namespace         the same; its going wakes the parent at once
    the API server refused a write    False   that namespace, why    back-off
    the spec cannot be read           False   `unknown`, why         after refreshTime; a new spec is looked at at once

Conditions have a type, a status and a message, as they do in the existing operator: no time and, but for a
ClusterPushSecret that cannot be read, no reason. An event is recorded when failures are news.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import msgspec

from eso_api import durations
from eso_api.conditions import FailedNamespace
from eso_operator.fanout.description import FanOut, Parent
from eso_operator.sync.floor import SHORTEST_INTERVAL
from eso_operator.sync.reporting import READY, News
from kuberun.conditions import ConditionStatus
from kuberun.controller import After, Done, Outcome, Retry
from kuberun.events import EventType
from kuberun.meta import Condition
from kuberun.redaction import bounded

SOME_FAILED: Final = "one or more namespaces failed"
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
    """Something stands in the way whose going will be heard of."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A call did not work, and may work later."""

    namespace: str
    reason: str


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing to do there, or not any more."""


Result = Reached | Refused | Failed | Left


@dataclass(frozen=True, slots=True)
class Spread:
    """All namespaces were looked at; `name` is that of the children."""

    name: str
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The spec does not say which namespaces are meant, or what goes there. Nothing was touched."""

    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    status: Any
    news: tuple[News, ...]
    then: Outcome


def report_of(fan_out: FanOut, parent: Parent, came: Spread | Unreadable) -> Report:
    """The row of the table."""
    match came:
        case Spread(name=name, results=results):
            failed = _failures(results)
            provisioned = sorted({result.namespace for result in results if isinstance(result, Reached)})
            status = fan_out.status(name, failed, provisioned, [_ready(failed)])
            retry = next((result for result in results if isinstance(result, Failed)), None)
            then = _due(parent) if retry is None else Retry(f"namespace {retry.namespace} failed")
        case Unreadable(reason=reason):
            failed = [_failure(UNKNOWN_NAMESPACE, reason)]
            condition = msgspec.structs.replace(_ready(failed), reason=fan_out.texts.errored)
            status = msgspec.structs.replace(parent.status, failed_namespaces=failed, conditions=[condition])
            then = _due(parent)
        case _:
            assert_never(came)
    return Report(status, _news(parent.status.failed_namespaces, failed), then)


def _ready(failed: Sequence[FailedNamespace]) -> Condition:
    if failed:
        return Condition(type=READY, status=ConditionStatus.FALSE.value, message=SOME_FAILED)
    return Condition(type=READY, status=ConditionStatus.TRUE.value)


def _failures(results: Sequence[Result]) -> list[FailedNamespace]:
    """One for each namespace, in their order; of several, what was tried first."""
    first: dict[str, FailedNamespace] = {}
    for result in results:
        if isinstance(result, Refused | Failed):
            first.setdefault(result.namespace, _failure(result.namespace, result.reason))
    return [first[namespace] for namespace in sorted(first)]


def _failure(namespace: str, reason: str) -> FailedNamespace:
    return FailedNamespace(namespace=namespace, reason=bounded(reason, _MAX_REASON_BYTES))


def _news(before: Sequence[FailedNamespace], now: Sequence[FailedNamespace]) -> tuple[News, ...]:
    if not now or list(before) == list(now):
        return ()
    named = "; ".join(f"{failure.namespace}: {failure.reason}" for failure in now[:_NAMED_IN_EVENT])
    more = f"; and {len(now) - _NAMED_IN_EVENT} more" if len(now) > _NAMED_IN_EVENT else ""
    return (News(EventType.WARNING, ERRORED, f"{SOME_FAILED}: {named}{more}"),)


def _due(parent: Parent) -> Outcome:
    try:
        interval = durations.seconds(parent.spec.refresh_time, field="spec.refreshTime")
    except durations.DurationError:  # no API server lets that pass
        interval = _DEFAULT_INTERVAL
    return After(max(interval, SHORTEST_INTERVAL)) if interval > 0 else Done()
