"""What can come of a reconcile, and what is then said and done about it: one table. Pure.

    outcome        Ready    reason                          event                 then
    Synced         True     SecretSynced, …Deleted, …       Created, Updated, …   at the next refresh
    NotDue         as is    as is                           none                  at the next refresh
    Intact         True     SecretSynced                    Deleted               at the next refresh, on a change
    Failed         False    SecretSyncedError               UpdateFailed          back-off, or when told
    Stalled        False    SecretSyncedError               UpdateFailed          at the interval, or on a change
    Unseen         as is    as is                           none                  back-off
    Collided       as is    as is                           none                  back-off
    Ignored        as is    as is                           none                  on a change

For targets that are no Secret the reasons begin with Resource. The message names the cause; entries that failed are
listed in `status.outcomes`. Nobody else touches conditions, events, metrics or the requeue of an ExternalSecret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from eso_api.conditions import KeyOutcome
from eso_api.externalsecret import Binding, ExternalSecret, ExternalSecretStatus, MadeManifest
from eso_operator.externalsecret.refresh import current_version, interval_of, last_sync
from eso_operator.externalsecret.snapshot import Snapshot
from eso_operator.sync.due import NotDue
from eso_operator.sync.fetch import Failure
from eso_operator.sync.reporting import READY, News, next_attempt
from eso_operator.sync.templates import TemplateVersion
from eso_operator.targets.marks import target_name
from eso_operator.targets.target import Present
from eso_wire.errors import RetryClass
from kuberun.clock import rfc3339
from kuberun.conditions import ConditionStatus, find_condition, same_verdict, set_condition
from kuberun.controller import After, Done, Retry
from kuberun.controller import Outcome as Then
from kuberun.events import EventType
from kuberun.meta import Condition
from kuberun.ownership import is_controlled_by
from kuberun.workqueue import Lane

SYNCED, DELETED, MISSING, FAILED = "Synced", "Deleted", "Missing", "SyncedError"
"""Ends of reasons; `Secret` or `Resource` comes before."""

FLUSH_SECONDS: Final = 300.0
"""A refresh that changed nothing is written into the status at most this often."""
_SHOWN_FAILURES: Final = 3
_MAX_OUTCOMES: Final = 50
_MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Synced:
    """The target is as it should be."""

    message: str = "secret synced"
    reason: str = SYNCED
    news: tuple[News, ...] = ()
    changed: bool = False
    """Whether anything was written; if not, the time of this refresh may be written later."""
    binding: str = ""
    refresh_within: float | None = None
    templates: frozenset[TemplateVersion] = frozenset()
    """What it was rendered from."""
    manifests: tuple[MadeManifest, ...] | None = None
    """What is on record from now on; None: what was."""
    remarks: tuple[str, ...] = ()
    """What people may not have meant: said in the condition, and once in an event."""


@dataclass(frozen=True, slots=True)
class Intact:
    """The target is as the last sync left it; only the status, or the removal of a former target, was missing.

    Nothing has to be read, or made anew, to say so.
    """

    after: float | None = None
    """As of NotDue."""
    news: tuple[News, ...] = ()
    manifests: tuple[MadeManifest, ...] | None = None
    """As of Synced."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not work; waiting may help. `step` is what could not be done, `detail` why."""

    step: str
    detail: str = ""
    failures: tuple[Failure, ...] = ()
    news: tuple[News, ...] = ()
    target_written: bool = False
    """The target holds the new values nevertheless, or may do: what was made for it is in use."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """It cannot work as things are: somebody has to change something."""

    step: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Collided:
    """Somebody else wrote at the same moment."""

    what: str
    target_written: bool = False
    """As of Failed."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The target could not be looked at; that says nothing about it."""

    why: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """Not ours to handle."""

    why: str


Outcome = Synced | NotDue | Intact | Failed | Stalled | Collided | Unseen | Ignored


@dataclass(frozen=True, slots=True)
class Report:
    """What an outcome comes to."""

    status: ExternalSecretStatus
    then: Then
    news: tuple[News, ...] = ()
    failed: bool = False
    flush: bool = field(default=True)
    """Whether the status is worth writing at once, if it differs."""


def report_of(snapshot: Snapshot, outcome: Outcome) -> Report:
    """The row of the table that this outcome is in."""
    es = snapshot.es
    match outcome:
        case Synced():
            return _synced(snapshot, outcome)
        case NotDue(after=after):
            return Report(es.status, Done() if after is None else _at_refresh(after))
        case Intact():
            return _intact(snapshot, outcome)
        case Failed():
            return _failed(snapshot, outcome)
        case Stalled(step=step, detail=detail):
            status = _with_ready(snapshot, _not_ready(es, step, detail))
            attempt = next_attempt(snapshot.now, interval_of(es))
            status = msgspec.structs.replace(status, next_attempt_time=attempt, outcomes=[])
            return Report(status, _stalled_until(es), _complaint(es, status, detail or step), failed=True)
        case Collided(what=what):
            return Report(es.status, Retry(what))
        case Unseen(why=why):
            return Report(es.status, _retry(es, why), failed=True)
        case Ignored():
            return Report(es.status, Done())
        case _:
            assert_never(outcome)


def _synced(snapshot: Snapshot, outcome: Synced) -> Report:
    es, now = snapshot.es, snapshot.now
    ready = _ready(snapshot, outcome)
    status = msgspec.structs.replace(
        _with_ready(snapshot, ready),
        refresh_time=rfc3339(now),
        renew_time=_renewal(outcome, now),
        next_attempt_time=None,
        synced_resource_version=current_version(es),
        binding=_binding(es, outcome),
        manifests=_on_record(es, outcome),
        outcomes=[],
    )
    before = last_sync(es)
    recent = before.at is not None and timedelta(0) <= now - before.at < timedelta(seconds=FLUSH_SECONDS)
    same = before.version == status.synced_resource_version and same_verdict(_ready_of(es), ready)
    tidied = status.manifests != es.status.manifests
    flush = outcome.changed or tidied or not (same and recent)
    news = outcome.news
    if outcome.remarks and not same_verdict(_ready_of(es), ready):
        news += (News(EventType.WARNING, "Unexpected", "; ".join(outcome.remarks)[:_MAX_TEXT]),)
    return Report(status, _next_refresh(es, outcome.refresh_within), news, flush=flush)


def _binding(es: ExternalSecret, outcome: Synced) -> Binding | None:
    """The Secret that workloads may use. One that was the target before another kind is not kept up to date."""
    if outcome.binding:
        return Binding(name=outcome.binding)
    return es.status.binding if es.spec.target.manifest is None else None


def _intact(snapshot: Snapshot, outcome: Intact) -> Report:
    """What was said before stays if it is still true: a target of another kind may have been written meanwhile."""
    es, told = snapshot.es, _ready_of(snapshot.es)
    ready = _ready(snapshot, Synced())
    if told is not None and (told.status, told.reason) == (ready.status, ready.reason):
        ready = told
    status = msgspec.structs.replace(
        _with_ready(snapshot, ready),
        next_attempt_time=None,
        binding=_binding(es, Synced(binding=_own_secret(snapshot))),
        manifests=_on_record(es, outcome),
        outcomes=[],
    )
    return Report(status, Done() if outcome.after is None else _at_refresh(outcome.after), outcome.news)


def _own_secret(snapshot: Snapshot) -> str:
    """The Secret that is there and the object's own; of others it is not known whether they were written."""
    es, look = snapshot.es, snapshot.look
    owned = isinstance(look, Present) and is_controlled_by(look.metadata, es.metadata.uid)
    return target_name(es) if owned and es.spec.target.manifest is None else ""


def _on_record(es: ExternalSecret, outcome: Synced | Intact) -> list[MadeManifest]:
    return es.status.manifests if outcome.manifests is None else list(outcome.manifests)


def _failed(snapshot: Snapshot, outcome: Failed) -> Report:
    es = snapshot.es
    detail = outcome.detail or _told(outcome.failures)
    status = _with_ready(snapshot, _not_ready(es, outcome.step, detail))
    retry_after = max((failure.retry_after for failure in outcome.failures), default=0.0)
    hopeless = bool(outcome.failures) and all(failure.retry is RetryClass.NEVER for failure in outcome.failures)
    within = interval_of(es) if hopeless else max(snapshot.retry_within, retry_after)
    status = msgspec.structs.replace(
        status,
        next_attempt_time=next_attempt(snapshot.now, within),
        outcomes=_outcomes(es, outcome.failures, snapshot.now),
    )
    news = (*outcome.news, *_complaint(es, status, detail or outcome.step))
    then = _stalled_until(es) if hopeless else _retry(es, outcome.step, retry_after)
    return Report(status, then, news, failed=True)


# --- what is said -----------------------------------------------------------------------------------------------------


def _prefix(es: ExternalSecret) -> str:
    return "Secret" if es.spec.target.manifest is None else "Resource"


def _ready(snapshot: Snapshot, outcome: Synced) -> Condition:
    reason = _prefix(snapshot.es) + outcome.reason
    notes = (*outcome.remarks, *((snapshot.interval_note,) if snapshot.interval_note else ()))
    message = "; ".join((outcome.message, *notes))[:_MAX_TEXT]
    return Condition(type=READY, status=ConditionStatus.TRUE, reason=reason, message=message)


def _not_ready(es: ExternalSecret, step: str, detail: str) -> Condition:
    reason = "Secret" + FAILED if step == "invalid generic target" else _prefix(es) + FAILED
    message = f"{step}: {detail}" if detail else step
    return Condition(type=READY, status=ConditionStatus.FALSE, reason=reason, message=message[:_MAX_TEXT])


def _with_ready(snapshot: Snapshot, ready: Condition) -> ExternalSecretStatus:
    """With the condition, and with a refresh that was not worth a write of its own."""
    status, last = snapshot.es.status, snapshot.last
    if last.at is not None and last != last_sync(snapshot.es):
        status = msgspec.structs.replace(
            status,
            refresh_time=rfc3339(last.at),
            renew_time=None if last.renew_at is None else rfc3339(last.renew_at),
            synced_resource_version=last.version,
        )
    return msgspec.structs.replace(status, conditions=set_condition(status.conditions, ready, snapshot.now))


def _ready_of(es: ExternalSecret) -> Condition | None:
    return find_condition(es.status.conditions, READY)


def _complaint(es: ExternalSecret, status: ExternalSecretStatus, text: str) -> tuple[News, ...]:
    """An event, unless the condition has said exactly this before."""
    if same_verdict(_ready_of(es), find_condition(status.conditions, READY)):
        return ()
    return (News(EventType.WARNING, "UpdateFailed", text[:_MAX_TEXT]),)


def _told(failures: Sequence[Failure]) -> str:
    """The first causes in full; how many more there are."""
    shown = [_sentence(failure) for failure in failures[:_SHOWN_FAILURES]]
    more = len(failures) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)


def _sentence(failure: Failure) -> str:
    place = f"{failure.path} (key: {failure.remote_key})" if failure.remote_key else failure.path
    return f"{place}: {failure.reason}: {failure.message}"


def _outcomes(es: ExternalSecret, failures: Sequence[Failure], now: datetime) -> list[KeyOutcome]:
    """Entry by entry; one that failed the same way before keeps the time it began."""
    since = {(each.path, each.reason): each.since for each in es.status.outcomes}
    return [
        KeyOutcome(
            path=failure.path,
            reason=failure.reason,
            remote_key=failure.remote_key,
            store=failure.store,
            message=failure.message[:_MAX_TEXT],
            since=since.get((failure.path, failure.reason)) or rfc3339(now),
        )
        for failure in failures[:_MAX_OUTCOMES]
    ]


# --- when it is looked at again ---------------------------------------------------------------------------------------


def _renewal(outcome: Synced, now: datetime) -> str | None:
    """On record, so that a restart does not let values end."""
    within = outcome.refresh_within
    return None if within is None else rfc3339(now + timedelta(seconds=within))


def _next_refresh(es: ExternalSecret, within: float | None) -> Then:
    interval = interval_of(es)
    if es.spec.refresh_policy in ("CreatedOnce", "OnChange") or interval <= 0:
        return Done()
    if within is not None and within < interval:
        return _at_refresh(max(within, 1.0))
    return _at_refresh(interval)


def _retry(es: ExternalSecret, why: str, retry_after: float = 0.0) -> Then:
    """Backs off up to the interval if that is long: nobody expects the object to be looked at more often."""
    return Retry(why, retry_after, longest=interval_of(es))


def _at_refresh(seconds: float) -> Then:
    return After(seconds, "a refresh is due", Lane.REFRESH)


def _stalled_until(es: ExternalSecret) -> Then:
    interval = interval_of(es)
    return After(interval, "it may have been put right", Lane.REFRESH) if interval > 0 else Done()
