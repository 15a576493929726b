"""The steps of one reconcile of an ExternalSecret, in order. Each states its assumptions about earlier steps.

    step                    fields of the work that it sets, or its effect
    look                    snapshot, sources; outcome if the target cannot be read
    decide                  outcome if nothing must be done (`decide.CHECKS`)
    confirm                 snapshot, outcome: as before, from the live target, if values would be generated
    limit_repairs           outcome if drift was repaired too often
    record_target           the status names the target before it is written
    fetch                   fetched; outcome if an entry failed
    follow                  the object follows changes of the keys that it has read
    record_generated        kept; outcome if the state of a generator cannot be recorded
    settle                  outcome: the target is written, kept or deleted
    listen                  an object without a read follows its sources, or stops following
    remove_former_target    outcome if a target of a former name or kind was left
    retire_generated        states of generators get their deadlines
    report                  then: status, events, metrics, requeue

A step that runs only without an outcome does nothing once there is one. After a successful fetch, `settle` sets the
outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, TypeGuard

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.changes.watchedkeys import ReadState
from eso_operator.controllers.contention import Allowance
from eso_operator.controllers.due import NotDue
from eso_operator.controllers.externalsecret.cleanup import with_target_on_record
from eso_operator.controllers.externalsecret.decide import first_stop, repairs_drift
from eso_operator.controllers.externalsecret.outcome import (
    TARGET_CONTENDED,
    UNKNOWN_TARGET_KIND,
    Collided,
    Failed,
    Ignored,
    Intact,
    Outcome,
    Stalled,
    Synced,
    Unseen,
    Waiting,
    report_of,
)
from eso_operator.controllers.externalsecret.outside import Outside
from eso_operator.controllers.externalsecret.schedule import current_version, watches_changes
from eso_operator.controllers.externalsecret.settlement import refused
from eso_operator.controllers.externalsecret.snapshot import Snapshot
from eso_operator.controllers.externalsecret.sources import sources_of
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependant, Dependency
from eso_operator.generators.values import Kept, StateOwner
from eso_operator.report.steps import Step
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.sources.results import Fetched
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.marks import NONE, GeneratedMark, with_states
from eso_operator.targets.record import is_on_record
from eso_operator.targets.target import Present, UnknownKindError
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.errors import ProviderError
from kubebase.clock import Clock, rfc3339
from kuberun.controller import Done, Result
from kuberun.errors import ApiError, Conflict, Forbidden, NotFound
from kuberun.ownership import is_controlled_by

_RESOURCE: Final = EXTERNAL_SECRET.resource()
_CONTENDED: Final = "another writer changes the target back each time; its metadata.managedFields name it"
_REPAIRS_AT_ONCE: Final = 20
_REPAIR_SECONDS: Final = 10.0
"""Drift is reverted at once up to 20 times, then every 10 s."""


def repair_allowance(clock: Clock) -> Allowance:
    """Return how often drift of one target is repaired."""
    return Allowance(clock, burst=_REPAIRS_AT_ONCE, refill=_REPAIR_SECONDS)


@dataclass(slots=True, eq=False)
class Work:
    """One reconcile in progress: what its steps have found and done so far."""

    snapshot: Snapshot
    outcome: Outcome | None = None
    """None to continue."""
    sources: frozenset[Dependency] = frozenset()
    """The references of the spec."""
    fetched: Fetched | None = None
    """The values, once all entries have been read."""
    kept: Kept | None = None
    """The recorded states of generators, once they are recorded."""
    then: Result = field(default_factory=Done)

    @property
    def es(self) -> ExternalSecret:
        return self.snapshot.es


ReconcileStep = Callable[[Outside, Work], Awaitable[None]]


async def look(outside: Outside, work: Work) -> None:
    """Gather the snapshot, which all later steps use. Assumes nothing.

    First the record is reset if it belongs to a former object of that name, whose dependencies must not stay. The
    sources are recorded before the target is read, so that a change in the meantime wakes the object.
    """
    es = work.es
    outside.memory.of(es.key, es.metadata.uid)
    work.sources = sources_of(es)
    _depend(outside, es, work.sources | outside.dependencies.of(_dependant(es)))
    await _read(work, outside.gatherer.gather(es, outside.target_of(es), work.snapshot.now))


async def decide(_: Outside, work: Work) -> None:
    """Stop if nothing must be done. Assumes the snapshot of `look`: without it every target seems to be missing."""
    if work.outcome is None:
        work.outcome = first_stop(work.snapshot)


async def confirm(outside: Outside, work: Work) -> None:
    """Read the target itself before values are generated, and decide again.

    Assumes that the cache shows no reason to stop. It may lack a Secret with generated values that was written just
    before a status was lost, by this process or by the one before it.
    """
    es = work.es
    if work.outcome is not None or es.spec.target.creation_policy == NONE or not _generates(es):
        return
    await _read(work, outside.gatherer.confirmed(work.snapshot, outside.target_of(es)))
    if work.outcome is None:
        work.outcome = first_stop(work.snapshot)


async def limit_repairs(outside: Outside, work: Work) -> None:
    """Limit how often drift is repaired while another writer keeps causing it.

    Assumes that `decide` did not stop: then an object that is not due has a target that drifted.
    """
    es = work.es
    if work.outcome is not None or not repairs_drift(work.snapshot):
        return
    known = outside.memory.known(es.key, es.metadata.uid)
    if known is not None and outside.repairs.is_exhausted(known.repairs, current_version(es)):
        work.outcome = Failed(Step.WRITE, _CONTENDED, TARGET_CONTENDED)


async def record_target(outside: Outside, work: Work) -> None:
    """Record the target if it could not be found again once the spec names another one.

    Assumes that the target has not been written yet. If the process is stopped between record and write, a record
    without a target is left, which is harmless; a target without a record would be lost. A target that was written
    without a record gets one now.
    """
    snapshot = work.snapshot
    written_before = isinstance(work.outcome, NotDue | Intact) and _has_its_target(outside, snapshot)
    if is_on_record(snapshot.es) or not (work.outcome is None or written_before):
        return
    try:
        es = await outside.reporter.refresh_if_stale(snapshot.es)
        es = await outside.reporter.write(es, with_target_on_record(es))
    except (Conflict, NotFound):
        work.outcome = Collided("the ExternalSecret changed meanwhile")
    except ApiError as problem:
        work.outcome = Failed(Step.WRITE, f"target not put on record: {refused(problem)}")
    else:
        work.snapshot = replace(snapshot, es=es)


async def fetch(outside: Outside, work: Work) -> None:
    """Read all entries and record their dependencies. Assumes that no check stopped: reads cost, and may generate."""
    if work.outcome is not None:
        return
    es = work.es
    fetched = await outside.fetcher.fetch(es, notified_at=work.snapshot.notified_at)
    _depend(outside, es, fetched.depends_on | work.sources)
    if fetched.failures:
        await outside.ledger.roll_back(fetched.made)
        waits = all(failure.waits > 0 for failure in fetched.failures)
        work.outcome = Waiting(fetched.failures) if waits else Failed(Step.FETCH, failures=fetched.failures)
    else:
        work.fetched = fetched


async def subscribe(outside: Outside, work: Work) -> None:
    """Follow the changes of the keys that were read.

    Assumes that the target is not written yet: writing takes time, and a change in the meantime must be announced.
    """
    if work.fetched is not None:
        watched_keys = work.fetched.watched_keys if watches_changes(work.es) else ()
        outside.changes.subscribe(work.es.key, watched_keys, work.fetched.read_state)


async def record_generated(outside: Outside, work: Work) -> None:
    """Record the states of generated values.

    Assumes that no value is written yet: a written value without a record would never be cleaned up.
    """
    if work.fetched is None:
        return
    try:
        work.kept = await outside.ledger.keep(_state_owner(work.es), work.fetched.made)
    except ApiError as problem:
        work.outcome = Failed(Step.FETCH, f"state of a generator not stored: {refused(problem)}")


async def settle(outside: Outside, work: Work) -> None:
    """Write the values to the target. Assumes that target and generated states are recorded, if necessary."""
    if work.fetched is None or work.outcome is not None:
        return
    es, mark = work.es, _mark(work)
    outcome = await outside.settlement.settle(es, outside.target_of(es), work.fetched, mark)
    if mark is not None and (isinstance(outcome, Synced) or _is_target_written(outcome)):
        outside.gatherer.writing(work.snapshot, mark, outcome.templates)
    if isinstance(outcome, Synced):
        if work.fetched.remarks:
            outcome = replace(outcome, remarks=work.fetched.remarks)
        if outcome.changed and repairs_drift(work.snapshot):
            record = outside.memory.of(es.key, es.metadata.uid)
            record.repairs = outside.repairs.after_rewrite(record.repairs, current_version(es))
        outside.loops.refreshed(es, work.fetched, outcome, work.snapshot.now)
    work.outcome = outcome


async def retire_generated(outside: Outside, work: Work) -> None:
    """Set the deadlines of generator states.

    Assumes the outcome of `settle`, which says which values are in use, and that no former target is left, which may
    hold older values. A run that finds generated values of an earlier one finishes its work: it may have been
    interrupted, or the API server refused a deadline.
    """
    generated = work.snapshot.generated
    if work.kept is None:
        if isinstance(work.outcome, NotDue | Intact) and generated is not None and generated.states is not None:
            await outside.ledger.retire_all_but(_state_owner(work.es), generated.states)
        return
    match work.outcome:
        case Synced():
            await outside.ledger.retire(work.kept)
        case Failed(target_written=True) | Collided(target_written=True):
            pass  # the new values are in use, and the older ones may be
        case _:
            await outside.ledger.discard(work.kept)


async def listen(outside: Outside, work: Work) -> None:
    """Follow the sources of an object that was not read now, if it wants change events and its stores offer them.

    Assumes the outcome of `decide` or `settle`. An object that was read follows its sources already.
    """
    es = work.es
    if isinstance(work.outcome, Ignored | Stalled) or not watches_changes(es):
        outside.changes.unsubscribe(es.key)
    elif isinstance(work.outcome, NotDue | Intact):
        await _follow_unread(outside, work.snapshot)


async def remove_former_target(outside: Outside, work: Work) -> None:
    """Remove a former target that is left if the process was stopped after a write, or if its deletion failed.

    Assumes that the current target exists and is recorded, so that a target exists at all times. `settle` removes the
    former target itself.
    """
    if not isinstance(work.outcome, NotDue | Intact):
        return
    if outside.reporter.is_stale(work.es):
        # This version of the object does not know what was reported last, which may be that a retry is needed.
        work.outcome = Collided("the cache is older than our last write")
    elif _has_its_target(outside, work.snapshot):
        work.outcome = await outside.settlement.tidy(work.es, work.outcome)


async def report(outside: Outside, work: Work) -> None:
    """Report the outcome once. Assumes that it is final: a written status says that the work is done."""
    snapshot, outcome = work.snapshot, work.outcome or Unseen("no step came to an outcome")
    contended = None if isinstance(outcome, Ignored) else outside.loops.verdict(snapshot.es)
    told = await outside.reporter.publish(snapshot.es, lambda es: report_of(snapshot.about(es), outcome, contended))
    if isinstance(outcome, Synced) and told.problem is None:
        # Only after the status is written: a lost status must be written again.
        outside.gatherer.remember(
            told.obj,
            snapshot.now,
            outcome.templates,
            version=snapshot.synced_version,
            renew_within=outcome.refresh_within,
        )
        outside.changes.mark_read(told.obj.key, snapshot.notified_at)
    work.then = told.then


STEPS: Final[tuple[ReconcileStep, ...]] = (
    look,
    decide,
    confirm,
    limit_repairs,
    record_target,
    fetch,
    subscribe,
    record_generated,
    settle,
    listen,
    remove_former_target,
    retire_generated,
    report,
)


async def _read(work: Work, read_state: Awaitable[Snapshot]) -> None:
    """Set the snapshot, or the outcome if the target cannot be read."""
    try:
        work.snapshot = await read_state
    except UnknownKindError as problem:
        work.outcome = Failed(Step.READ_TARGET, str(problem), UNKNOWN_TARGET_KIND)
    except ApiError as problem:
        # Secrets are watched, so a failed read of one is reported only if it persists.
        passing = work.es.spec.target.manifest is None and not isinstance(problem, Forbidden)
        work.outcome = Unseen("target not read") if passing else Failed(Step.READ_TARGET, refused(problem))


def _generates(es: ExternalSecret) -> bool:
    return any(isinstance(want, Generate) for want in entries_of(es.spec))


def _mark(work: Work) -> GeneratedMark | None:
    """Return what the target will say of its values; None if none of them is generated."""
    fetched, kept, snapshot = work.fetched, work.kept, work.snapshot
    if fetched is None or kept is None or not fetched.made:
        return None
    within = fetched.refresh_within
    mark = GeneratedMark(
        time=rfc3339(snapshot.now),
        version=snapshot.synced_version,
        renew_time=None if within is None else rfc3339(snapshot.now + timedelta(seconds=within)),
    )
    return with_states(mark, tuple(state.name for state in kept.new))


def _is_target_written(outcome: Outcome) -> TypeGuard[Failed | Collided]:
    return isinstance(outcome, Failed | Collided) and outcome.target_written


def _has_its_target(outside: Outside, snapshot: Snapshot) -> bool:
    """Return whether the target exists and belongs to it. The status from before our last write does not say so yet."""
    es, found = snapshot.es, snapshot.look
    return (
        isinstance(found, Present)
        and is_controlled_by(found.metadata, es.metadata.uid)
        and not outside.reporter.is_stale(es)
    )


async def _follow_unread(outside: Outside, snapshot: Snapshot) -> None:
    """Follow the sources of an object that another process has refreshed, once its providers are known.

    Repeated whenever a store begins to announce changes, or stops.
    """
    es, known = snapshot.es, outside.dependencies.of(_dependant(snapshot.es))
    if not snapshot.first_look and ANY_PROVIDER not in known and _watches_what_it_can(outside, es):
        return
    try:
        outside.changes.subscribe(es.key, await outside.fetcher.watched_keys(es), ReadState.UNREAD)
    except (ResolutionError, ProviderError):
        _depend(outside, es, known | {ANY_PROVIDER})
    else:
        _depend(outside, es, known - {ANY_PROVIDER})


def _watches_what_it_can(outside: Outside, es: ExternalSecret) -> bool:
    try:
        return outside.fetcher.watchable_stores(es) == outside.changes.stores_of(es.key)
    except ResolutionError:
        return True  # while that is unknown, nothing changes


def _depend(outside: Outside, es: ExternalSecret, on: Iterable[Dependency]) -> None:
    outside.dependencies.record(_dependant(es), on)


def _dependant(es: ExternalSecret) -> Dependant:
    return Dependant(Subsystem.EXTERNAL_SECRET, es.key)


def _state_owner(es: ExternalSecret) -> StateOwner:
    """Return the owner of generator states: entries are counted by `dataFrom`, as in the Go operator."""
    entries = tuple(map(str, range(len(es.spec.data_from))))
    return StateOwner(_RESOURCE, es.metadata, entries)
