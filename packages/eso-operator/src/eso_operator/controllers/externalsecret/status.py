"""The outcomes of a reconcile, and the report for each: one table. Pure.

    outcome        Ready    reason                          event                 then
    Synced         True     SecretSynced, …Deleted, …       Created, Updated, …   at the next refresh
    NotDue         as is    as is                           none                  at the next refresh
    Intact         True     SecretSynced                    Deleted               at the next refresh, on a change
    Waiting        as is; new: Unknown, SecretSyncedError   none                  when the provider answers
    Failed         False    SecretSyncedError               UpdateFailed          back-off, or on a change
    Stalled        False    SecretSyncedError               UpdateFailed          at the interval, or on a change
    TargetUnread   as is    as is                           none                  back-off
    Conflicted     as is    as is                           none                  back-off
    Ignored        as is    as is                           none                  on a change

For targets other than Secrets the reasons begin with Resource. The message names the cause; `status.outcomes` lists
the step with every failed entry, or with the field of the spec that the step concerns. Events about changes of targets
come with the outcome (`sync.py`); `controllers/base.py` writes the status, records events and sets metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec

from eso_api.common import READY, KeyOutcome
from eso_api.externalsecret import (
    DEFAULT_INTERVAL,
    EXTERNAL_SECRET,
    Binding,
    ExternalSecret,
    ExternalSecretStatus,
    MadeManifest,
)
from eso_operator.controllers.base import Event, Report, Subject, next_attempt
from eso_operator.controllers.contention import NOT_CONTENDED, REFILL_SECONDS, Contended, with_contention
from eso_operator.controllers.externalsecret.snapshot import Snapshot
from eso_operator.controllers.outcomes import FAILED, SYNCED, Conflicted, Ignored, Step
from eso_operator.controllers.refresh import FLUSH_SECONDS, NotDue, interval_of, last_sync
from eso_operator.sources.entries import source_names
from eso_operator.sources.fetch import Failure
from eso_operator.sources.templates import TemplateVersion
from eso_operator.targets.metadata import OWNER, target_name
from eso_operator.targets.target import Overwritten, Present, Refusal, RefuseTarget
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import RetryClass
from kubebase.clock import rfc3339
from kubebase.meta import Condition
from kuberun.controller import Backoff, Done, Requeue, Result
from kuberun.events import EventType
from kuberun.ownership import is_controlled_by
from kuberun.status import ConditionStatus, find_condition, same_verdict, set_condition
from kuberun.workqueue import Lane

API_SERVER, INVALID_SPEC, TEMPLATE_ERROR = "ApiServer", "InvalidSpec", "TemplateError"
FEATURE_DISABLED, UNKNOWN_TARGET_KIND, TARGET_CONTENDED = "FeatureDisabled", "UnknownTargetKind", "TargetContended"
REFUSED: Final[Mapping[Refusal, str]] = {
    Refusal.OWNED_BY_ANOTHER: "TargetOwned",
    Refusal.CONTROLLED: "TargetOwned",
    Refusal.RESERVED: "TargetReserved",
    Refusal.TOKEN: "TargetReserved",
    Refusal.IMMUTABLE: "TargetImmutable",
    Refusal.TOO_LARGE: "TargetTooLarge",
}
CAUSES: Final = frozenset(
    {
        API_SERVER,
        INVALID_SPEC,
        TEMPLATE_ERROR,
        FEATURE_DISABLED,
        UNKNOWN_TARGET_KIND,
        TARGET_CONTENDED,
        *REFUSED.values(),
    }
)
"""Causes of failures that do not concern an entry."""

_SHOWN_FAILURES: Final = 3
_MAX_OUTCOMES: Final = 50
_MAX_TEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Synced:
    """The target holds the current values."""

    message: str = "secret synced"
    reason: str = SYNCED
    events: tuple[Event, ...] = ()
    changed: bool = False
    """True if anything was written; if not, the time of this refresh may be written later."""
    overwritten: Overwritten | None = None
    """The values of other ExternalSecrets that were overwritten in the target."""
    binding: str = ""
    target_version: str = ""
    """The resourceVersion of a target Secret that holds the values; empty if it is not known."""
    refresh_within: float | None = None
    templates: frozenset[TemplateVersion] = frozenset()
    """The templates from which the target was rendered."""
    manifests: tuple[MadeManifest, ...] | None = None
    """The targets to record from now on; None keeps the present record."""
    remarks: tuple[str, ...] = ()
    """Likely mistakes of the user: shown in the condition, and in one event."""


@dataclass(frozen=True, slots=True)
class Intact:
    """The target is unchanged since the last sync; only the status or the removal of a former target was missing.

    No value has to be read or generated to report it.
    """

    after: float | None = None
    """As in NotDue."""
    events: tuple[Event, ...] = ()
    manifests: tuple[MadeManifest, ...] | None = None
    """As in Synced."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The sync failed and is retried. `step` is the failed step, `detail` the reason."""

    step: Step
    detail: str = ""
    cause: str = API_SERVER
    """The cause in `status.outcomes`, if no entry failed."""
    failures: tuple[Failure, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Every entry without a value waits for a provider that is starting. They fail if it does not answer in time."""

    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Stalled:
    """The sync fails until a user changes something."""

    step: Step
    detail: str = ""
    cause: str = INVALID_SPEC
    """As in Failed."""
    failures: tuple[Failure, ...] = ()
    """The invalid fields, if they are known."""
    refusal: Refusal | None = None
    """Why the target must not be written; its text replaces the text of the step."""


@dataclass(frozen=True, slots=True)
class TargetUnread:
    """The target could not be read, so its state is unknown."""

    why: str


Outcome = Synced | NotDue | Intact | Waiting | Failed | Stalled | Conflicted | TargetUnread | Ignored


def refused_target(refuse: RefuseTarget) -> Stalled:
    """Return the outcome for a target that must not be written."""
    return Stalled(Step.WRITE, refuse.by, REFUSED[refuse.why], refusal=refuse.why)


SUBJECT: Final = Subject(
    EXTERNAL_SECRET.kind(),
    Subsystem.EXTERNAL_SECRET,
    log="external secret reconciled",
    log_key="external_secret",
    counted=True,
    events_first=True,
)


def report_of(snapshot: Snapshot, outcome: Outcome, contended: Contended | None = None) -> Report:
    """Return the report of an outcome, with its log line. `contended` is None if nothing is known about loops."""
    report = with_contention(_row(snapshot, outcome), snapshot.es.status.conditions, contended, snapshot.now)
    if contended not in (None, NOT_CONTENDED) and isinstance(report.result, Requeue):
        # The end of a loop is noticed at a reconcile, and nothing else may cause one.
        report = replace(report, result=replace(report.result, delay=min(report.result.delay, REFILL_SECONDS)))
    # If nothing was reported, the cached status may be older than the last report.
    reported = report.status is not snapshot.es.status
    return replace(report, shown=reported or snapshot.first_reconcile, log=_log_line(snapshot.es, report, outcome))


def _row(snapshot: Snapshot, outcome: Outcome) -> Report:
    es = snapshot.es
    match outcome:
        case Synced():
            return _synced(snapshot, outcome)
        case NotDue(after=after):
            return Report(es.status, Done() if after is None else _at_refresh(after))
        case Intact():
            return _intact(snapshot, outcome)
        case Waiting():
            return _waiting(snapshot, outcome)
        case Failed():
            return _failed(snapshot, outcome)
        case Stalled(detail=detail):
            summary = _summary(es, outcome)
            status = _with_ready(snapshot, _not_ready(es, outcome.step, summary, detail))
            attempt = next_attempt(snapshot.now, interval_of(es))
            outcomes = _outcomes(es, outcome, snapshot.now)
            status = msgspec.structs.replace(status, next_attempt_time=attempt, outcomes=outcomes)
            return Report(status, _stalled_until(es), _failure_event(es, status, detail or summary), failed=True)
        case Conflicted(what=what):
            return Report(es.status, Backoff(what))
        case TargetUnread(why=why):
            return Report(es.status, _retry(es, why), failed=True)
        case Ignored():
            return Report(es.status, Done())
        case _:
            assert_never(outcome)


def _log_line(es: ExternalSecret, report: Report, outcome: Outcome) -> dict[str, object] | None:
    """Return the log line with the condition's message, which names keys and never contains values."""
    if isinstance(outcome, NotDue) or (isinstance(outcome, Waiting) and report.status is es.status):
        return None
    ready = report.ready
    cause = {"why": ready.message} if ready is not None and ready.status == ConditionStatus.FALSE else {}
    return {"outcome": type(outcome).__name__, **cause}


def _synced(snapshot: Snapshot, outcome: Synced) -> Report:
    es, now = snapshot.es, snapshot.now
    ready = _ready(snapshot, outcome)
    status = msgspec.structs.replace(
        _with_ready(snapshot, ready),
        refresh_time=rfc3339(now),
        renew_time=_renewal(outcome, now),
        next_attempt_time=None,
        synced_resource_version=snapshot.synced_version,
        synced_target_version=outcome.target_version if es.spec.target.creation_policy == OWNER else "",
        binding=_binding(es, outcome),
        manifests=_on_record(es, outcome),
        outcomes=[],
    )
    before = last_sync(es)
    # A read that a provider caused need not be recorded before the next routine one: a provider's return causes many.
    unrecorded = FLUSH_SECONDS if snapshot.notified_at is None else max(FLUSH_SECONDS, interval_of(es))
    recent = before.at is not None and timedelta(0) <= now - before.at < timedelta(seconds=unrecorded)
    same = before.version == status.synced_resource_version and same_verdict(_ready_of(es), ready)
    record_changed = status.manifests != es.status.manifests
    flush = outcome.changed or record_changed or not (same and recent)
    events = outcome.events
    if outcome.remarks and not same_verdict(_ready_of(es), ready):
        events += (Event(EventType.WARNING, "Unexpected", "; ".join(outcome.remarks)[:_MAX_TEXT]),)
    return Report(status, _next_refresh(es, outcome.refresh_within), events, flush=flush)


def _binding(es: ExternalSecret, outcome: Synced) -> Binding | None:
    """Return the Secret that workloads may use. A Secret from before a change of kind is not kept up to date."""
    if outcome.binding:
        return Binding(name=outcome.binding)
    return es.status.binding if es.spec.target.manifest is None else None


def _intact(snapshot: Snapshot, outcome: Intact) -> Report:
    """Return the report of an intact target. The Ready condition is kept if its status and reason still apply."""
    es, before = snapshot.es, _ready_of(snapshot.es)
    ready = _ready(snapshot, Synced())
    if before is not None and (before.status, before.reason) == (ready.status, ready.reason):
        ready = before
    status = msgspec.structs.replace(
        _with_ready(snapshot, ready),
        next_attempt_time=None,
        binding=_binding(es, Synced(binding=_own_secret(snapshot))),
        manifests=_on_record(es, outcome),
        outcomes=[],
    )
    return Report(status, Done() if outcome.after is None else _at_refresh(outcome.after), outcome.events)


def _own_secret(snapshot: Snapshot) -> str:
    """Return the target's name if it is a Secret that the object owns, or that says that it was written for it.

    Whether others were written is unknown.
    """
    es, found = snapshot.es, snapshot.target
    owned = isinstance(found, Present) and is_controlled_by(found.metadata, es.metadata.uid)
    written = owned or snapshot.generated is not None
    return target_name(es) if written and es.spec.target.manifest is None else ""


def _on_record(es: ExternalSecret, outcome: Synced | Intact) -> list[MadeManifest]:
    return es.status.manifests if outcome.manifests is None else list(outcome.manifests)


def _waiting(snapshot: Snapshot, outcome: Waiting) -> Report:
    """Return the report of an object whose provider is starting: the first one says so, the others say nothing."""
    es = snapshot.es
    seconds = min(failure.waits for failure in outcome.failures)
    then = Requeue(max(seconds, 1.0), "the provider has had its time to start", Lane.EVENT)
    if _ready_of(es) is not None:
        return Report(es.status, then)
    causes = dict.fromkeys(f"{failure.reason}: {failure.message}" for failure in outcome.failures)
    message = f"waiting: {'; '.join(causes)}"[:_MAX_TEXT]
    ready = Condition(type=READY, status=ConditionStatus.UNKNOWN, reason=_prefix(es) + FAILED, message=message)
    outcomes = _outcomes(es, Failed(Step.FETCH, failures=outcome.failures), snapshot.now)
    return Report(msgspec.structs.replace(_with_ready(snapshot, ready), outcomes=outcomes), then)


def _failed(snapshot: Snapshot, outcome: Failed) -> Report:
    es = snapshot.es
    detail = outcome.detail or _failure_texts(outcome.failures)
    summary = _summary(es, outcome)
    status = _with_ready(snapshot, _not_ready(es, outcome.step, summary, detail))
    retry_after = max((failure.retry_after for failure in outcome.failures), default=0.0)
    hopeless = bool(outcome.failures) and all(failure.retry is RetryClass.NEVER for failure in outcome.failures)
    within = interval_of(es) if hopeless else max(snapshot.retry_within, retry_after)
    # The return of a provider causes the next attempt. A time for it would be written again at each retry.
    outage = bool(outcome.failures) and all(failure.unreachable for failure in outcome.failures)
    status = msgspec.structs.replace(
        status,
        next_attempt_time=None if outage else next_attempt(snapshot.now, within),
        outcomes=_outcomes(es, outcome, snapshot.now),
    )
    events = (*outcome.events, *_failure_event(es, status, detail or summary))
    then = _stalled_until(es) if hopeless else _retry(es, summary, retry_after)
    return Report(status, then, events, failed=True)


# --- texts of the status ----------------------------------------------------------------------------------------------


def _prefix(es: ExternalSecret) -> str:
    return "Secret" if es.spec.target.manifest is None else "Resource"


def _ready(snapshot: Snapshot, outcome: Synced) -> Condition:
    reason = _prefix(snapshot.es) + outcome.reason
    notes = (*outcome.remarks, *((snapshot.interval_note,) if snapshot.interval_note else ()))
    message = "; ".join((outcome.message, *notes))[:_MAX_TEXT]
    return Condition(type=READY, status=ConditionStatus.TRUE, reason=reason, message=message)


def _summary(es: ExternalSecret, outcome: Failed | Stalled) -> str:
    """Return the first words of the condition: the step that failed."""
    if isinstance(outcome, Stalled) and outcome.refusal is not None:
        return outcome.refusal.value
    return outcome.step.summary if es.spec.target.manifest is None else outcome.step.generic_summary


def _not_ready(es: ExternalSecret, step: Step, summary: str, detail: str) -> Condition:
    reason = ("Secret" if step is Step.ALLOW_TARGET else _prefix(es)) + FAILED
    message = f"{summary}: {detail}" if detail else summary
    return Condition(type=READY, status=ConditionStatus.FALSE, reason=reason, message=message[:_MAX_TEXT])


def _with_ready(snapshot: Snapshot, ready: Condition) -> ExternalSecretStatus:
    """Return the status with the Ready condition, and with the last refresh if it was not written before.

    It contains the defaults that `kubectl get` shows. An object that is not due is not reported, so these alone never
    cause a write.
    """
    status, last = snapshot.es.status, snapshot.last
    if last.at is not None and last != last_sync(snapshot.es):
        status = msgspec.structs.replace(
            status,
            refresh_time=rfc3339(last.at),
            renew_time=None if last.renew_at is None else rfc3339(last.renew_at),
            synced_resource_version=last.version,
        )
    spec = snapshot.es.spec
    return msgspec.structs.replace(
        status,
        conditions=set_condition(status.conditions, ready, snapshot.now),
        secret_store_ref=source_names(spec),
        refresh_interval=DEFAULT_INTERVAL if spec.refresh_interval == DEFAULT_INTERVAL else "",
    )


def _ready_of(es: ExternalSecret) -> Condition | None:
    return find_condition(es.status.conditions, READY)


def _failure_event(es: ExternalSecret, status: ExternalSecretStatus, text: str) -> tuple[Event, ...]:
    """Return an event, unless the condition already has this message."""
    if same_verdict(_ready_of(es), find_condition(status.conditions, READY)):
        return ()
    return (Event(EventType.WARNING, "UpdateFailed", text[:_MAX_TEXT]),)


def _failure_texts(failures: Sequence[Failure]) -> str:
    """Return the first causes in full, and the number of the others."""
    shown = [_failure_text(failure) for failure in failures[:_SHOWN_FAILURES]]
    more = len(failures) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)


def _failure_text(failure: Failure) -> str:
    place = f"{failure.path} (key: {failure.remote_key})" if failure.remote_key else failure.path
    return f"{place}: {failure.reason}: {failure.message}"


def _path(es: ExternalSecret, step: Step) -> str:
    """Return the field that a step concerns. Without a template, values are copied into the target."""
    return Step.WRITE.path if step is Step.RENDER and es.spec.target.template is None else step.path


def _outcomes(es: ExternalSecret, outcome: Failed | Stalled, now: datetime) -> list[KeyOutcome]:
    """Return one outcome for each failed entry, or one for the step.

    A failure that was reported before keeps the time of its first report.
    """
    since = {(each.path, each.reason): each.since for each in es.status.outcomes}
    whole = Failure(_path(es, outcome.step), outcome.cause, outcome.detail or _summary(es, outcome))
    return [
        KeyOutcome(
            path=failure.path,
            reason=failure.reason,
            remote_key=failure.remote_key,
            store=failure.store,
            message=failure.message[:_MAX_TEXT],
            since=since.get((failure.path, failure.reason)) or rfc3339(now),
            step=outcome.step.code,
        )
        for failure in (outcome.failures or (whole,))[:_MAX_OUTCOMES]
    ]


# --- the next reconcile -----------------------------------------------------------------------------------------------


def _renewal(outcome: Synced, now: datetime) -> str | None:
    """Return when values must be renewed. The status records it, so a restart does not let values expire."""
    within = outcome.refresh_within
    return None if within is None else rfc3339(now + timedelta(seconds=within))


def _next_refresh(es: ExternalSecret, within: float | None) -> Result:
    interval = interval_of(es)
    if es.spec.refresh_policy in ("CreatedOnce", "OnChange") or interval <= 0:
        return Done()
    if within is not None and within < interval:
        return _at_refresh(max(within, 1.0))
    return _at_refresh(interval)


def _retry(es: ExternalSecret, why: str, retry_after: float = 0.0) -> Result:
    """Return a retry whose back-off ends at the refresh interval, the pace that users expect."""
    return Backoff(why, retry_after, longest=interval_of(es))


def _at_refresh(seconds: float) -> Result:
    return Requeue(seconds, "a refresh is due", Lane.REFRESH)


def _stalled_until(es: ExternalSecret) -> Result:
    interval = interval_of(es)
    return Requeue(interval, "it may have been put right", Lane.REFRESH) if interval > 0 else Done()
