"""The outcomes of a reconcile, and the report for each: one table. Pure.

    outcome          Ready    reason          event            then
    Pushed           True     Synced          Synced           at the next interval
    SourceDeleted    False    SourceDeleted   SourceDeleted    when the source comes back
    NotDue           as is    as is           none             when it is due
    PushFailed       False    Errored         Errored          back-off, on a change, or at the interval
      all wait       as is; new: Unknown      none             when the provider or the source appears
    Conflicted       as is    as is           none             back-off
    Ignored          as is    as is           none             on a change

Beside Ready, `SecretAlreadyExists` is True while updatePolicy IfNotExists leaves foreign values unchanged, and
`Contended` is True while other PushSecrets write different values to the same place. The message names the cause;
failed entries are listed in `status.outcomes`. Events about values that were deleted or left behind come with the
outcome (`sync.py`); `controllers/base.py` writes, records and shows all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from eso_api.common import READY, SHARED_PLACE, KeyOutcome
from eso_api.pushsecret import PUSH_SECRET, PushSecret, PushSecretStatus
from eso_operator.controllers.base import Event, Report, Subject, next_attempt
from eso_operator.controllers.contention import (
    DIFFERENT_VALUES,
    FEEDS_ITSELF,
    NOT_CONTENDED,
    OTHER_NAMESPACE,
    Contended,
    with_contention,
)
from eso_operator.controllers.outcomes import Conflicted, Ignored, Step
from eso_operator.controllers.pushsecret.ownership import ValueConflict
from eso_operator.controllers.pushsecret.push import IF_NOT_EXISTS
from eso_operator.controllers.pushsecret.record import (
    NOTHING,
    LastPush,
    RemoteKey,
    RemoteValue,
    SyncedEntries,
    status_fields,
)
from eso_operator.controllers.pushsecret.snapshot import SOURCE_DELETED, changed, refreshed_at
from eso_operator.controllers.refresh import FLUSH_SECONDS, NotDue, current_version, interval_of
from eso_operator.sources.fetch import Failure
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import RetryClass
from kubebase.clock import rfc3339
from kubebase.meta import Condition, ObjectKey
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.events import EventType
from kuberun.status import ConditionStatus, find_condition, remove_condition, same_verdict, set_condition
from kuberun.workqueue import Lane

SYNCED: Final = "Synced"

ERRORED: Final = "Errored"

ALREADY_EXISTS: Final = "SecretAlreadyExists"

ORPHANED: Final = "Orphaned"

LEFT_ALONE: Final = "LeftAlone"


_STAY_BEHIND: Final = "remote values stay behind"

_SHOWN: Final = 3

_SHOWN_KEYS: Final = 10

_MAX_OUTCOMES: Final = 50

_MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Pushed:
    """Every value is in its store. `entries` lists all values that are ours now."""

    entries: SyncedEntries = field(default_factory=lambda: NOTHING)
    existing: tuple[str, ...] = ()
    """Existing values that are not ours: `store: remote key`."""
    weaker: tuple[str, ...] = ()
    """Stores whose provider has no operation that only creates."""
    yielded: bool = False
    """True if a value that another PushSecret overwrote was not written again."""
    wrote: bool = False
    renew_within: float | None = None
    note: str = ""
    remarks: tuple[str, ...] = ()
    """Further sentences for the condition."""
    events: tuple[Event, ...] = ()
    last: LastPush | None = field(default=None, repr=False, compare=False)
    """The push and its values, to remember once the status records them; None if nothing was pushed."""
    values: Mapping[RemoteKey, RemoteValue] = field(default_factory=lambda: NOTHING, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SourceDeleted:
    """The source was deleted, and so were the values pushed from it."""

    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class PushFailed:
    """The push failed. `entries` are ours and must stay recorded; None if nothing was changed."""

    step: Step
    failures: tuple[Failure, ...]
    entries: SyncedEntries | None = None
    events: tuple[Event, ...] = ()


PushOutcome = Pushed | SourceDeleted | NotDue | PushFailed | Conflicted | Ignored


SUBJECT: Final = Subject(
    PUSH_SECRET.kind(),
    Subsystem.PUSH_SECRET,
    log="push secret reconciled",
    log_key="push_secret",
)


def report_of(
    push: PushSecret,
    outcome: PushOutcome,
    now: datetime,
    *,
    retry_within: float = 0.0,
    conflicts: Sequence[ValueConflict] | None = None,
    fed_by: Sequence[ObjectKey] = (),
) -> Report:
    """Return the report of an outcome. `retry_within` is the maximum number of seconds until a retry.

    `conflicts` are the contended remote keys. If they are None, they are unknown, and the condition stays unchanged.
    `fed_by` are the ExternalSecrets that are in a loop with it.
    """
    log = None if isinstance(outcome, NotDue) else {"outcome": type(outcome).__name__}
    report = replace(_row(push, outcome, now, retry_within), log=log)
    return with_contention(report, push.status.conditions, _contention(push, conflicts, fed_by), now)


def _row(push: PushSecret, outcome: PushOutcome, now: datetime, retry_within: float) -> Report:
    match outcome:
        case Pushed():
            return _synced(push, outcome, now)
        case SourceDeleted():
            return _source_deleted(push, outcome, now)
        case NotDue(after=after):
            return Report(push.status, Done() if after is None else _at(after))
        case PushFailed():
            return _failed(push, outcome, now, retry_within)
        case Conflicted(what=what):
            return Report(push.status, Backoff(what))
        case Ignored():
            return Report(push.status, Done())
        case _:
            assert_never(outcome)


def orphaned(sentences: Sequence[str]) -> tuple[Event, ...]:
    """Return one event for each store with abandoned values."""
    return tuple(Event(EventType.WARNING, ORPHANED, text[:_MAX_TEXT], log=_STAY_BEHIND) for text in sentences)


def left_alone(sentences: Sequence[str]) -> tuple[Event, ...]:
    """Return events for values that were not deleted because another owner has or shares them."""
    return tuple(Event(EventType.NORMAL, LEFT_ALONE, text[:_MAX_TEXT]) for text in sentences)


# --- rows -------------------------------------------------------------------------------------------------------------


def _synced(push: PushSecret, outcome: Pushed, now: datetime) -> Report:
    ready = Condition(type=READY, status=ConditionStatus.TRUE, reason=SYNCED, message=_success(push, outcome))
    status = msgspec.structs.replace(
        push.status,
        conditions=_with_existing(set_condition(push.status.conditions, ready, now), outcome.existing, now),
        refresh_time=rfc3339(now),
        renew_time=None if outcome.renew_within is None else rfc3339(now + timedelta(seconds=outcome.renew_within)),
        next_attempt_time=None,
        synced_resource_version=current_version(push) if outcome.last is None else outcome.last.version,
        pending_push=None,
        outcomes=[],
        **status_fields(outcome.entries),
    )
    at = refreshed_at(push)
    recent = at is not None and timedelta(0) <= now - at < timedelta(seconds=FLUSH_SECONDS)
    same = not changed(push) and _differs_in_time_only(push.status, status)
    events = () if same and not outcome.wrote else (Event(EventType.NORMAL, SYNCED, ready.message),)
    return Report(
        status,
        _next_push(push, outcome.renew_within),
        (*outcome.events, *events),
        flush=outcome.wrote or not (same and recent),
    )


def _source_deleted(push: PushSecret, outcome: SourceDeleted, now: datetime) -> Report:
    message = "the source is gone; what was pushed from it was deleted from the stores"
    ready = Condition(type=READY, status=ConditionStatus.FALSE, reason=SOURCE_DELETED, message=message)
    conditions = remove_condition(set_condition(push.status.conditions, ready, now), ALREADY_EXISTS)
    status = msgspec.structs.replace(
        push.status,
        conditions=conditions,
        next_attempt_time=None,
        synced_push_secrets={},
        synced_versions={},
        pending_push=None,
        outcomes=[],
    )
    return Report(status, Done(), (*outcome.events, Event(EventType.NORMAL, SOURCE_DELETED, message)))


def _failed(push: PushSecret, outcome: PushFailed, now: datetime, retry_within: float) -> Report:
    if all(failure.waits > 0 for failure in outcome.failures):
        return _waiting(push, outcome, now)
    message = f"{outcome.step.summary}: {_listed(outcome.failures)}"[:_MAX_TEXT]
    ready = Condition(type=READY, status=ConditionStatus.FALSE, reason=ERRORED, message=message)
    # The return of a provider causes the next attempt. A time for it would be written again at each retry.
    outage = all(failure.unreachable for failure in outcome.failures)
    status = msgspec.structs.replace(
        _with_entries(push, outcome),
        conditions=set_condition(push.status.conditions, ready, now),
        next_attempt_time=None if outage else next_attempt(now, _wait(push, outcome, retry_within)),
        outcomes=_outcomes(push, outcome, now),
    )
    again = same_verdict(find_condition(push.status.conditions, READY), ready)
    events = () if again else (Event(EventType.WARNING, ERRORED, message),)
    return Report(status, _after_failure(push, outcome), (*outcome.events, *events))


def _waiting(push: PushSecret, outcome: PushFailed, now: datetime) -> Report:
    """Return the report of an object that waits for a start: the first one says so, the others say nothing."""
    status = _with_entries(push, outcome)
    if find_condition(push.status.conditions, READY) is None:
        message = f"waiting: {_listed(outcome.failures)}"[:_MAX_TEXT]
        ready = Condition(type=READY, status=ConditionStatus.UNKNOWN, reason=ERRORED, message=message)
        conditions = set_condition(push.status.conditions, ready, now)
        status = msgspec.structs.replace(status, conditions=conditions, outcomes=_outcomes(push, outcome, now))
    seconds = min(failure.waits for failure in outcome.failures)
    return Report(status, Requeue(max(seconds, 1.0), "what it waits for has had its time", Lane.EVENT), outcome.events)


def _with_entries(push: PushSecret, outcome: PushFailed) -> PushSecretStatus:
    """Return the status with the entries that are ours now, if that changed."""
    if outcome.entries is None:
        return push.status
    return msgspec.structs.replace(push.status, pending_push=None, **status_fields(outcome.entries))


# --- texts ------------------------------------------------------------------------------------------------------------


def _success(push: PushSecret, outcome: Pushed) -> str:
    parts = [outcome.note or "every value is in its stores"]
    if outcome.yielded:
        parts = ["values that another PushSecret overwrote stay (see Contended); every other value is in its stores"]
    if push.spec.update_policy == IF_NOT_EXISTS:
        parts.append("remote values that existed were left alone")
    if outcome.weaker:
        stores = ", ".join(outcome.weaker)
        parts.append(
            f"{stores} cannot create atomically: existence was checked before each push, so a value written by another"
            " else in between would have been overwritten"
        )
    return "; ".join([*parts, *outcome.remarks])[:_MAX_TEXT]


def _with_existing(conditions: list[Condition], existing: Sequence[str], now: datetime) -> list[Condition]:
    if not existing:
        return remove_condition(conditions, ALREADY_EXISTS)
    shown = sorted(existing)[:_SHOWN_KEYS]
    more = len(existing) - len(shown)
    text = "; ".join([*shown, f"and {more} more"] if more > 0 else shown)
    message = f"not overwritten, and not ours to delete: {text}"[:_MAX_TEXT]
    condition = Condition(type=ALREADY_EXISTS, status=ConditionStatus.TRUE, reason=ALREADY_EXISTS, message=message)
    return set_condition(conditions, condition, now)


def _contention(
    push: PushSecret, conflicts: Sequence[ValueConflict] | None, fed_by: Sequence[ObjectKey]
) -> Contended | None:
    """Return the condition Contended; its reason says whether values were compared, which needs one namespace."""
    if fed_by:
        return Contended(FEEDS_ITSELF, _loop(fed_by))
    if conflicts is None:
        return None
    if not conflicts:
        return NOT_CONTENDED
    namespace = push.metadata.namespace
    shown = [_conflict(namespace, each) for each in conflicts[:_SHOWN]]
    text = "; ".join([*shown, "and other places"] if len(conflicts) > _SHOWN else shown)
    if any(other.namespace == namespace for each in conflicts for other in each.others):
        advice = "The last writer wins: change the remoteKey of one of them, or give them the same value"
        return Contended(DIFFERENT_VALUES, f"{text}. {advice}")
    advice = (
        "The last writer wins, and values of other namespaces are not compared: change the remoteKey, unless all of"
        " them are meant to push one value"
    )
    return Contended(SHARED_PLACE, f"{text}. {advice}")


def _loop(fed_by: Sequence[ObjectKey]) -> str:
    names = ", ".join(key.name for key in fed_by[:_SHOWN]) + (" and others" if len(fed_by) > _SHOWN else "")
    return (
        f"what is pushed is read again by ExternalSecret {names} and written to the source, and every turn changes it:"
        " read or push another remote key, or change the template so that the value stays the same"
    )


def _conflict(namespace: str, conflict: ValueConflict) -> str:
    store, remote_key, prop, location = conflict.key
    place = f'remote key "{remote_key}"' + (f', property "{prop}",' if prop else "")
    place += f' of namespace "{location}"' if location else ""
    near = [each.name for each in conflict.others if each.namespace == namespace]
    if not near:
        return f"{place} in {store}: {OTHER_NAMESPACE} also writes it"
    # Without a number, which would change all these statuses whenever a writer is added or removed.
    others = ", ".join(near[:_SHOWN]) + (" and others" if len(near) > _SHOWN else "")
    writers = f"PushSecrets {others} also write" if len(near) > 1 else f"PushSecret {others} also writes"
    also = f" (and so does {OTHER_NAMESPACE})" if len(near) < len(conflict.others) else ""
    return f"{place} in {store}: {writers} it, with a different value{also}"


def _differs_in_time_only(old: PushSecretStatus, new: PushSecretStatus) -> bool:
    """Return whether the two differ in their time only."""
    return (
        len(old.conditions) == len(new.conditions)
        and all(same_verdict(find_condition(old.conditions, each.type), each) for each in new.conditions)
        and old.synced_push_secrets == new.synced_push_secrets
        and old.synced_versions == new.synced_versions
        and old.pending_push is None
        and not old.outcomes
    )


def _listed(failures: Sequence[Failure]) -> str:
    """Return the first causes in full, and the number of the others. A cause that many entries share appears once."""
    sentences = list(dict.fromkeys(map(_sentence, failures)))
    shown = sentences[:_SHOWN]
    more = len(sentences) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)


def _sentence(failure: Failure) -> str:
    place = f"{failure.path} (key: {failure.remote_key})" if failure.remote_key else failure.path
    return f"{place}: {failure.reason}: {failure.message}"


def _outcomes(push: PushSecret, outcome: PushFailed, now: datetime) -> list[KeyOutcome]:
    """Return one outcome for each failed entry. A failure that was reported before keeps its time."""
    since = {(each.path, each.remote_key, each.store, each.reason): each.since for each in push.status.outcomes}
    return [
        KeyOutcome(
            path=failure.path,
            reason=failure.reason,
            remote_key=failure.remote_key,
            store=failure.store,
            message=failure.message[:_MAX_TEXT],
            since=since.get((failure.path, failure.remote_key, failure.store, failure.reason)) or rfc3339(now),
            step=outcome.step.code,
        )
        for failure in outcome.failures[:_MAX_OUTCOMES]
    ]


# --- when it is reconciled again --------------------------------------------------------------------------------------


def _next_push(push: PushSecret, within: float | None) -> Result:
    interval = interval_of(push)
    if interval <= 0:
        return Done()
    return _at(interval if within is None else min(interval, max(within, 1.0)))


def _after_failure(push: PushSecret, outcome: PushFailed) -> Result:
    interval = interval_of(push)
    if not _is_hopeless(outcome):
        return Backoff(outcome.step.summary, _retry_after(outcome), longest=interval)
    return Requeue(interval, "it may have been put right", Lane.REFRESH) if interval > 0 else Done()


def _wait(push: PushSecret, outcome: PushFailed, retry_within: float) -> float:
    """Return the maximum number of seconds until the next attempt; 0 if only a change causes one."""
    return interval_of(push) if _is_hopeless(outcome) else max(retry_within, _retry_after(outcome))


def _is_hopeless(outcome: PushFailed) -> bool:
    return all(failure.retry is RetryClass.NEVER for failure in outcome.failures)


def _retry_after(outcome: PushFailed) -> float:
    return max((failure.retry_after for failure in outcome.failures), default=0.0)


def _at(seconds: float) -> Result:
    return Requeue(seconds, "a push is due", Lane.REFRESH)
