"""One ExternalSecret: gather, decide, fetch, settle, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.externalsecret.cleanup import Cleanup
from eso_operator.externalsecret.decide import first_stop, repairs_drift
from eso_operator.externalsecret.gather import Gatherer
from eso_operator.externalsecret.outcome import (
    Collided,
    Failed,
    Ignored,
    Intact,
    Outcome,
    Report,
    Stalled,
    Synced,
    Unseen,
    report_of,
)
from eso_operator.externalsecret.refresh import current_version, hears_of_changes, interval_of
from eso_operator.externalsecret.settlement import Settlement, refused, steps_of
from eso_operator.externalsecret.snapshot import LastSync, Rules, Snapshot
from eso_operator.externalsecret.sources import sources_of
from eso_operator.stores.target import Connection, ResolutionError
from eso_operator.sync.contention import Contention
from eso_operator.sync.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency
from eso_operator.sync.due import NotDue
from eso_operator.sync.fetch import Fetcher
from eso_operator.sync.followers import Reading
from eso_operator.sync.generate import GeneratorLedger, StateOwner
from eso_operator.sync.pushrefresh import PushRefresh
from eso_operator.sync.reporting import READY
from eso_operator.targets.leftovers import is_on_record
from eso_operator.targets.target import Absent, Present, Target, UnknownKindError
from eso_operator.telemetry.objects import ObjectSeries, Subsystem
from eso_wire.errors import ProviderError
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.conditions import ConditionStatus, find_condition
from kuberun.controller import Done, Retry, longest_wait
from kuberun.controller import Outcome as Then
from kuberun.errors import ApiError, Conflict, Forbidden, NotFound
from kuberun.events import EventRecorder
from kuberun.meta import ObjectKey
from kuberun.ownership import is_controlled_by
from kuberun.status import OwnWrites, write_status

_log = structlog.get_logger(__name__)

_KIND: Final = EXTERNAL_SECRET.kind()
_NO_DATA: Final = "could not get secret data from provider"
_CONTENDED: Final = "somebody else changes the target back each time; its metadata.managedFields say who"
_REPAIRS_AT_ONCE: Final = 20
_REPAIR_SECONDS: Final = 10.0
"""A target that drifts again and again is repaired so often at once, then once in so many seconds."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What the reconciler works with."""

    client: Client
    clock: Clock
    fetcher: Fetcher
    ledger: GeneratorLedger
    settlement: Settlement
    cleanup: Cleanup
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    series: ObjectSeries
    recorder: EventRecorder
    target_of: Callable[[ExternalSecret], Target]
    push: PushRefresh


class ExternalSecretReconciler:
    """Keeps targets as their ExternalSecrets want them."""

    def __init__(self, gatherer: Gatherer, outside: Outside) -> None:
        self._gatherer = gatherer
        self._outside = outside
        self._own = OwnWrites()
        self._repairs = Contention(outside.clock, burst=_REPAIRS_AT_ONCE, refill=_REPAIR_SECONDS)

    async def reconcile(self, key: ObjectKey) -> Then:
        """Make the target of one ExternalSecret match its backend."""
        es = self._gatherer.find(key)
        if es is None:
            return self._forget(key)
        started = self._outside.clock.monotonic()
        if es.metadata.deletion_timestamp is not None:
            return await self._finish(es)
        if (waiting := await self._prepare(es)) is not None:
            return waiting
        snapshot, outcome = await self._look(es)
        outcome = outcome or first_stop(snapshot) or self._contended(snapshot)
        snapshot, outcome = await self._on_record(snapshot, outcome)
        outcome = outcome or await self._sync(snapshot)
        await self._listen(snapshot, outcome)
        then = await self._report(snapshot, await self._tidied(snapshot, outcome))
        self._outside.series.synced(es.metadata)
        self._outside.series.reconciled(
            Subsystem.EXTERNAL_SECRET, es.metadata, self._outside.clock.monotonic() - started
        )
        return then

    async def _look(self, es: ExternalSecret) -> tuple[Snapshot, Outcome | None]:
        """The snapshot; with an outcome if the target could not be looked at."""
        now, target = self._outside.clock.now(), self._outside.target_of(es)
        self._depend(es, sources_of(es) | self._outside.dependencies.of(_dependant(es)))
        try:
            return await self._gatherer.gather(es, target, now), None
        except UnknownKindError as problem:
            outcome: Outcome = Failed(steps_of(es).look, str(problem))
        except ApiError as problem:
            # A Secret is known without a look: only what will not go away by itself is worth a word.
            passing = es.spec.target.manifest is None and not isinstance(problem, Forbidden)
            outcome = Unseen("target not read") if passing else Failed(steps_of(es).look, refused(problem))
        return _unseen(es, now), outcome

    async def _finish(self, es: ExternalSecret) -> Then:
        """It is being deleted. What holds that up is said on the object: people ask why it does not go."""
        self._outside.push.leave(es.key)
        try:
            return await self._outside.cleanup.finish(es, self._outside.target_of(es))
        except ApiError as problem:
            return await self._held_up(es, Failed(steps_of(es).delete, refused(problem)))

    async def _prepare(self, es: ExternalSecret) -> Then | None:
        """Before anything is written that has to be removed again."""
        try:
            return await self._outside.cleanup.prepare(es)
        except ApiError as problem:
            return await self._held_up(es, Failed(steps_of(es).write, f"finalizer not set: {refused(problem)}"))

    async def _held_up(self, es: ExternalSecret, outcome: Outcome) -> Then:
        return await self._report(_unseen(es, self._outside.clock.now()), outcome)

    def _contended(self, snapshot: Snapshot) -> Outcome | None:
        """Drift is repaired at once, but not for ever against somebody who causes it anew each time."""
        es = snapshot.es
        if not repairs_drift(snapshot) or not self._repairs.exhausted(es.key, _wish(es)):
            return None
        return Failed(steps_of(es).write, _CONTENDED)

    async def _on_record(self, snapshot: Snapshot, outcome: Outcome | None) -> tuple[Snapshot, Outcome | None]:
        """Put the target on record before it is written, if nobody could find it once the spec names another one.

        A target that an earlier release, or the existing operator, wrote without a record gets one now.
        """
        made_before = isinstance(outcome, NotDue | Intact) and self._has_its_target(snapshot)
        if is_on_record(snapshot.es) or not (outcome is None or made_before):
            return snapshot, outcome
        try:
            if self._own.behind(snapshot.es.metadata):
                snapshot = await self._as_we_left_it(snapshot)
            before = snapshot.es
            snapshot = replace(snapshot, es=await self._outside.cleanup.put_on_record(before))
        except (Conflict, NotFound):
            return snapshot, Collided("the ExternalSecret changed meanwhile")
        except ApiError as problem:
            return snapshot, Failed(steps_of(snapshot.es).write, f"target not put on record: {refused(problem)}")
        if snapshot.es.metadata.resource_version != before.metadata.resource_version:
            self._own.wrote(before.metadata)
        return snapshot, outcome

    async def _tidied(self, snapshot: Snapshot, outcome: Outcome) -> Outcome:
        """A process that was stopped after it had written a target may have left the former one: that goes now."""
        if not isinstance(outcome, NotDue | Intact) or not self._has_its_target(snapshot):
            return outcome
        return await self._outside.settlement.tidy(snapshot.es, outcome)

    def _has_its_target(self, snapshot: Snapshot) -> bool:
        """Whether the target is there and its own; an object as it was before our last word is not asked."""
        es, look = snapshot.es, snapshot.look
        return (
            isinstance(look, Present)
            and is_controlled_by(look.metadata, es.metadata.uid)
            and not self._own.behind(es.metadata)
        )

    async def _sync(self, snapshot: Snapshot) -> Outcome:
        """Fetch, then settle. State of generators goes on record first, and is let go if the target is not written."""
        es = snapshot.es
        fetched = await self._outside.fetcher.fetch(es, told_at=snapshot.told_at)
        self._depend(es, fetched.depends_on | sources_of(es))
        if fetched.failures:
            await self._outside.ledger.roll_back(fetched.made)
            return Failed(_NO_DATA, failures=fetched.failures)
        self._outside.push.follow(es.key, fetched.sights if hears_of_changes(es) else (), fetched.reading)
        try:
            kept = await self._outside.ledger.keep(_state_owner(es), fetched.made)
        except ApiError as problem:
            return Failed(_NO_DATA, f"state of a generator not stored: {refused(problem)}")
        outcome = await self._outside.settlement.settle(es, self._outside.target_of(es), fetched)
        if isinstance(outcome, Synced):
            outcome = replace(outcome, remarks=fetched.remarks)
        match outcome:
            case Synced(changed=changed):
                await self._outside.ledger.retire(kept)
                if changed and repairs_drift(snapshot):
                    self._repairs.count(es.key, _wish(es))
            case Failed(target_written=True) | Collided(target_written=True):
                pass  # the new values are in use, and the older ones may be
            case _:
                await self._outside.ledger.discard(kept)
        return outcome

    async def _listen(self, snapshot: Snapshot, outcome: Outcome) -> None:
        """Follow the sources, unless they cannot be read or nobody wants to hear of them. `_sync` does so itself."""
        if isinstance(outcome, Ignored | Stalled) or not hears_of_changes(snapshot.es):
            self._outside.push.leave(snapshot.es.key)
        elif isinstance(outcome, NotDue):
            await self._follow_unread(snapshot)

    async def _follow_unread(self, snapshot: Snapshot) -> None:
        """Follow the sources of an object that is fresh because another process read it, once its providers are known.

        And again whenever a store begins to tell of changes, or stops.
        """
        es, known = snapshot.es, self._outside.dependencies.of(_dependant(snapshot.es))
        if not snapshot.first_look and ANY_PROVIDER not in known and self._hears_what_it_can(es):
            return
        try:
            self._outside.push.follow(es.key, await self._outside.fetcher.sights(es), Reading.UNREAD)
        except (ResolutionError, ProviderError):
            self._depend(es, known | {ANY_PROVIDER})
        else:
            self._depend(es, known - {ANY_PROVIDER})

    def _hears_what_it_can(self, es: ExternalSecret) -> bool:
        try:
            return self._outside.fetcher.telling(es) == self._outside.push.stores_of(es.key)
        except ResolutionError:
            return True  # while that cannot be known, everything stays as it is

    async def _report(self, snapshot: Snapshot, outcome: Outcome) -> Then:
        """Say what came of it, once: events, status, metrics."""
        report = report_of(snapshot, outcome)
        if report.status is not snapshot.es.status and self._own.behind(snapshot.es.metadata):
            try:
                snapshot = await self._as_we_left_it(snapshot)
            except NotFound:
                return Done()
            except ApiError as problem:
                return _untold(problem)
            report = report_of(snapshot, outcome)
        es = snapshot.es
        if report.failed:
            self._outside.series.failed(es.metadata)
        for news in report.news:
            self._outside.recorder.record(EXTERNAL_SECRET.resource(), es.metadata, news.type, news.reason, news.message)
        try:
            await self._write(es, report)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the ExternalSecret changed meanwhile")
        except ApiError as problem:
            return _untold(problem)
        if isinstance(outcome, Synced):
            # Not before it is on record: a status that was lost has to be said again.
            self._gatherer.remember(es, snapshot.now, outcome.templates, renew_within=outcome.refresh_within)
            self._outside.push.heard(es.key, snapshot.told_at)
        if report.status is not es.status or snapshot.first_look:
            # Otherwise nothing was said, and what the cache holds may be older than what was said before.
            self._outside.series.conditions(Subsystem.EXTERNAL_SECRET, es.metadata, report.status.conditions)
        if not isinstance(outcome, NotDue):
            _log.info(
                "external secret reconciled",
                external_secret=str(es.key),
                outcome=type(outcome).__name__,
                **_cause(report),
            )
        return report.then

    async def _as_we_left_it(self, snapshot: Snapshot) -> Snapshot:
        """With our own last word on the object: against an older one, what is to be said may look like no news."""
        known = snapshot.es.metadata
        live = await self._outside.client.get(_KIND, snapshot.es.key)
        same = (live.metadata.uid, live.metadata.generation) == (known.uid, known.generation)
        return replace(snapshot, es=live) if same else snapshot

    async def _write(self, es: ExternalSecret, report: Report) -> None:
        if not report.flush:
            return
        if await write_status(self._outside.client, _KIND, es.metadata, old=es.status, new=report.status):
            self._own.wrote(es.metadata)

    def _depend(self, es: ExternalSecret, on: Iterable[Dependency]) -> None:
        for unused in self._outside.dependencies.record(_dependant(es), on):
            self._outside.forget_connection(unused)

    def _forget(self, key: ObjectKey) -> Then:
        """Gone: nothing of it stays here."""
        self._outside.series.forget(Subsystem.EXTERNAL_SECRET, key)
        for unused in self._outside.dependencies.forget(Dependant(Subsystem.EXTERNAL_SECRET, key)):
            self._outside.forget_connection(unused)
        self._outside.push.leave(key)
        self._gatherer.forget(key)
        self._own.forget(key)
        return Done()


def _untold(problem: ApiError) -> Retry:
    return Retry(f"status not written: the API server answered {problem.reason or problem.code}")


def _cause(report: Report) -> dict[str, str]:
    """For the log, what the condition says: it names keys and never values."""
    ready = find_condition(report.status.conditions, READY)
    return {"why": ready.message} if ready is not None and ready.status == ConditionStatus.FALSE else {}


def _unseen(es: ExternalSecret, now: datetime) -> Snapshot:
    """What can be said of an object without its target."""
    return Snapshot(es, LastSync(None, ""), now, Absent(), Rules(), retry_within=longest_wait(interval_of(es)))


def _wish(es: ExternalSecret) -> tuple[str, str]:
    """What this very object asks for: one of the same name that was there before it is not counted against it."""
    return es.metadata.uid, current_version(es)


def _dependant(es: ExternalSecret) -> Dependant:
    return Dependant(Subsystem.EXTERNAL_SECRET, es.key)


def _state_owner(es: ExternalSecret) -> StateOwner:
    """By the places of `dataFrom`, as the existing operator counts them."""
    entries = tuple(map(str, range(len(es.spec.data_from))))
    return StateOwner(EXTERNAL_SECRET.resource(), es.metadata, entries)
