"""The work of one reconcile, in order. After a crash at any `await` the next reconcile continues without loss.

    1 target recorded in the status    before it is written: a target without a record would never be cleaned up
    2 values read or generated
    3 changes of these keys followed   before the write: a change during the write must requeue the object
    4 generated state recorded         before the write: a credential without a record would never be revoked
    5 target written
    6 former targets removed           after the write: a target exists at all times
    7 former state retired             after the former targets, which may hold older credentials

Every end is an outcome; nothing is raised to the reconciler.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, TypeGuard, assert_never

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, ExternalSecretStatus, MadeManifest
from eso_api.values import SecretBytes
from eso_operator.changes.followers import ReadState, WatchedKey
from eso_operator.controllers.base import Event, Reporter
from eso_operator.controllers.contention import Allowance
from eso_operator.controllers.externalsecret.checks import first_stop, repairs_drift
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.externalsecret.snapshot import Gatherer, Rules, Snapshot, sources_of
from eso_operator.controllers.externalsecret.status import (
    TARGET_CONTENDED,
    TEMPLATE_ERROR,
    UNKNOWN_TARGET_KIND,
    Conflicted,
    Failed,
    Ignored,
    Intact,
    Outcome,
    Stalled,
    Synced,
    TargetUnread,
    Waiting,
    refused_target,
)
from eso_operator.controllers.outcomes import DELETED, MISSING, Step
from eso_operator.controllers.refresh import NotDue, current_version, watches_changes
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency, OnObject
from eso_operator.generators.ledger import GeneratorLedger, RecordedStates, StateOwner
from eso_operator.memory import Memory
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.sources.results import Fetched, Missing
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, TemplateVersion
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.change import Create, Keep, Refuse, TargetChange, Untouched, Update
from eso_operator.targets.metadata import FINALIZER, NONE, OWNER, GeneratedMark, target_name, with_states
from eso_operator.targets.target import (
    Applied,
    PartlyAppliedError,
    Present,
    RemovedTargets,
    Target,
    UnknownKindError,
    is_recorded,
    with_record,
)
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.errors import RenderError
from eso_wire.errors import ProviderError
from kubebase.clock import Clock, rfc3339
from kubebase.meta import ObjectKey
from kubebase.redaction import Redactor
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Result
from kuberun.errors import ApiError, BadResponse, Conflict, Forbidden, NotFound, ServerError, Unreachable
from kuberun.events import EventType
from kuberun.ownership import add_finalizer, is_controlled_by, remove_finalizer

_KIND: Final = EXTERNAL_SECRET.kind()
_RESOURCE: Final = EXTERNAL_SECRET.resource()
_CONTENDED: Final = "another writer changes the target back each time; its metadata.managedFields name it"
_REPAIRS_AT_ONCE: Final = 20
_REPAIR_SECONDS: Final = 10.0
"""Drift is reverted at once up to 20 times, then every 10 s."""


def repair_allowance(clock: Clock) -> Allowance:
    """Return how often drift of one target is repaired."""
    return Allowance(clock, burst=_REPAIRS_AT_ONCE, refill=_REPAIR_SECONDS)


class Fetches(Protocol):
    """Reads the values of ExternalSecrets: `reading.fetch.Fetcher`."""

    async def fetch(self, es: ExternalSecret, *, fresh_since: float | None = None) -> Fetched:
        """Return the values and failures of all entries. Never raises."""
        ...

    async def watched_keys(self, es: ExternalSecret) -> tuple[WatchedKey, ...]:
        """Return the reads whose providers can announce changes. Raises ResolutionError, ProviderError."""
        ...

    def watchable_stores(self, es: ExternalSecret) -> frozenset[OnObject]:
        """Return the stores that can announce changes. Raises ResolutionError."""
        ...


class Changes(Protocol):
    """Announces changes at backends: `changefeed.feed.ChangeFeed`."""

    def subscribe(
        self, key: ObjectKey, watched_keys: Sequence[WatchedKey], read_state: ReadState = ReadState.PART
    ) -> None:
        """Notify the object when one of these reads changes. Replaces its former reads."""
        ...

    def unsubscribe(self, key: ObjectKey) -> None:
        """Stop notifying the object."""
        ...

    def stores_of(self, key: ObjectKey) -> frozenset[OnObject]:
        """Return the stores whose changes the object follows."""
        ...

    def mark_read(self, key: ObjectKey, at: float | None) -> None:
        """Record that the object has read the change that was announced at that time."""
        ...


@dataclass(frozen=True, slots=True)
class ExternalSecretDeps:
    """What a reconcile of an ExternalSecret needs."""

    clock: Clock
    gatherer: Gatherer
    fetcher: Fetches
    ledger: GeneratorLedger
    writer: TargetWriter
    cleanup: Cleanup
    memory: Memory[ExternalSecretRecord]
    repairs: Allowance
    loops: Loops
    dependencies: Dependencies
    reporter: Reporter[ExternalSecret]
    target_of: Callable[[ExternalSecret], Target]
    changes: Changes


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a reconcile came to, and the snapshot that its report refers to."""

    snapshot: Snapshot
    outcome: Outcome


class SyncError(Exception):
    """A step failed; the reconcile ends with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


async def sync(deps: ExternalSecretDeps, snapshot: Snapshot, ctx: ReconcileContext) -> SyncResult:
    """Read the values and write the target. Assumes that no check stopped."""
    try:
        if _generates(snapshot.es):
            # The cache may lack a target with generated values that was written just before a status was lost.
            snapshot = await _read(snapshot, deps.gatherer.confirmed(snapshot, deps.target_of(snapshot.es)))
            if (stop := first_stop(snapshot)) is not None:
                return await maintain(deps, snapshot, stop)
        _limit_repairs(deps, snapshot)
        snapshot = await _record_target(deps, snapshot)
        fetched = await _fetch(deps, snapshot, ctx)
        if watches_changes(snapshot.es):
            deps.changes.subscribe(snapshot.es.key, fetched.watched_keys, fetched.read_state)
        kept = await _record_generated(deps, snapshot.es, fetched)
        outcome = await _write_target(deps, snapshot, fetched, kept)
        await _retire_generated(deps, kept, outcome)
    except SyncError as failed:
        outcome = failed.outcome
    _unfollow_unless_needed(deps, snapshot.es, outcome)
    return SyncResult(snapshot, outcome)


async def maintain(deps: ExternalSecretDeps, snapshot: Snapshot, stop: Outcome) -> SyncResult:
    """Finish what an earlier reconcile, or another process, left undone, if a check found that nothing must be read."""
    _unfollow_unless_needed(deps, snapshot.es, stop)
    if not isinstance(stop, NotDue | Intact):
        return SyncResult(snapshot, stop)
    outcome: Outcome = stop
    try:
        if _has_its_target(deps, snapshot):  # one that was written without a record gets it now
            snapshot = await _record_target(deps, snapshot)
        if watches_changes(snapshot.es):
            await _follow_unread(deps, snapshot)
        if deps.reporter.is_stale(snapshot.es):
            # This version of the object does not have the last report, which may say that a retry is needed.
            return SyncResult(snapshot, Conflicted("the cache is older than our last write"))
        if _has_its_target(deps, snapshot):
            outcome = await deps.writer.remove_former(snapshot.es, stop)
        generated = snapshot.generated
        if isinstance(outcome, NotDue | Intact) and generated is not None and generated.states is not None:
            # The reconcile that generated them may have been interrupted before it retired the older states.
            await deps.ledger.retire_all_but(_state_owner(snapshot.es), generated.states)
    except SyncError as failed:
        outcome = failed.outcome
    return SyncResult(snapshot, outcome)


async def gathered(deps: ExternalSecretDeps, es: ExternalSecret, first: Snapshot, ctx: ReconcileContext) -> Snapshot:
    """Return the snapshot of the object. Raises SyncError if the target cannot be read.

    The sources are recorded before the target is read, so that a change in the meantime requeues the object.
    """
    _depend(deps, es, sources_of(es) | deps.dependencies.of(_dependant(es)))
    return await _read(first, deps.gatherer.gather(es, deps.target_of(es), ctx))


async def _read(snapshot: Snapshot, read_state: Awaitable[Snapshot]) -> Snapshot:
    """Return what is read. Secrets are watched, so a failed read of one is reported only if it persists."""
    try:
        return await read_state
    except UnknownKindError as problem:
        raise SyncError(Failed(Step.READ_TARGET, str(problem), UNKNOWN_TARGET_KIND)) from None
    except ApiError as problem:
        passing = snapshot.es.spec.target.manifest is None and not isinstance(problem, Forbidden)
        outcome = TargetUnread("target not read") if passing else Failed(Step.READ_TARGET, refused(problem))
        raise SyncError(outcome) from None


def _generates(es: ExternalSecret) -> bool:
    return es.spec.target.creation_policy != NONE and any(isinstance(want, Generate) for want in entries_of(es.spec))


def _limit_repairs(deps: ExternalSecretDeps, snapshot: Snapshot) -> None:
    """Limit how often drift is repaired while another writer keeps causing it."""
    es = snapshot.es
    known = deps.memory.known(es.key, es.metadata.uid) if repairs_drift(snapshot) else None
    if known is not None and deps.repairs.is_exhausted(known.repairs, current_version(es)):
        raise SyncError(Failed(Step.WRITE, _CONTENDED, TARGET_CONTENDED))


async def _record_target(deps: ExternalSecretDeps, snapshot: Snapshot) -> Snapshot:
    """Record the target if it could not be found again once the spec names another one.

    If the process is stopped between record and write, a record without a target is left, which is harmless.
    """
    if is_recorded(snapshot.es):
        return snapshot
    try:
        es = await deps.reporter.refresh_if_stale(snapshot.es)
        es = await deps.reporter.write(es, with_target_on_record(es))
    except (Conflict, NotFound):
        raise SyncError(Conflicted("the ExternalSecret changed meanwhile")) from None
    except ApiError as problem:
        raise SyncError(Failed(Step.WRITE, f"target not put on record: {refused(problem)}")) from None
    return replace(snapshot, es=es)


async def _fetch(deps: ExternalSecretDeps, snapshot: Snapshot, ctx: ReconcileContext) -> Fetched:
    """Return the values of all entries, and record their dependencies."""
    es = snapshot.es
    # What was read before the request for this reconcile, or before a change was announced, is stale.
    fresh_since = max(ctx.requested_at, snapshot.notified_at or ctx.requested_at)
    fetched = await deps.fetcher.fetch(es, fresh_since=fresh_since)
    _depend(deps, es, fetched.depends_on | sources_of(es))
    if not fetched.failures:
        return fetched
    await deps.ledger.roll_back(fetched.made)
    waits = all(failure.waits > 0 for failure in fetched.failures)
    raise SyncError(Waiting(fetched.failures) if waits else Failed(Step.FETCH, failures=fetched.failures))


async def _record_generated(deps: ExternalSecretDeps, es: ExternalSecret, fetched: Fetched) -> RecordedStates:
    try:
        return await deps.ledger.record(_state_owner(es), fetched.made)
    except ApiError as problem:
        raise SyncError(Failed(Step.FETCH, f"state of a generator not stored: {refused(problem)}")) from None


async def _write_target(
    deps: ExternalSecretDeps, snapshot: Snapshot, fetched: Fetched, kept: RecordedStates
) -> Outcome:
    es, mark = snapshot.es, _mark(snapshot, fetched, kept)
    outcome = await deps.writer.write(es, deps.target_of(es), fetched, mark)
    if mark is not None and (isinstance(outcome, Synced) or _is_target_written(outcome)):
        deps.gatherer.writing(snapshot, mark, outcome.templates)
    if isinstance(outcome, Synced):
        if fetched.remarks:
            outcome = replace(outcome, remarks=fetched.remarks)
        if outcome.changed and repairs_drift(snapshot):
            record = deps.memory.of(es.key, es.metadata.uid)
            record.repairs = deps.repairs.after_rewrite(record.repairs, current_version(es))
        deps.loops.refreshed(es, fetched, outcome, snapshot.now)
    return outcome


async def _retire_generated(deps: ExternalSecretDeps, kept: RecordedStates, outcome: Outcome) -> None:
    """Set the deadlines of generator states: of the older ones if the new values are in use, else of the new ones."""
    match outcome:
        case Synced():
            await deps.ledger.retire(kept)
        case Failed(target_written=True) | Conflicted(target_written=True):
            pass  # the new values are in use, and the older ones may be
        case _:
            await deps.ledger.discard(kept)


def _unfollow_unless_needed(deps: ExternalSecretDeps, es: ExternalSecret, outcome: Outcome) -> None:
    if isinstance(outcome, Ignored | Stalled) or not watches_changes(es):
        deps.changes.unsubscribe(es.key)


def _mark(snapshot: Snapshot, fetched: Fetched, kept: RecordedStates) -> GeneratedMark | None:
    """Return what the target will say of its values; None if none of them is generated."""
    if not fetched.made:
        return None
    within = fetched.refresh_within
    mark = GeneratedMark(
        time=rfc3339(snapshot.now),
        version=snapshot.synced_version,
        renew_time=None if within is None else rfc3339(snapshot.now + timedelta(seconds=within)),
    )
    return with_states(mark, tuple(state.name for state in kept.new))


def _is_target_written(outcome: Outcome) -> TypeGuard[Failed | Conflicted]:
    return isinstance(outcome, Failed | Conflicted) and outcome.target_written


def _has_its_target(deps: ExternalSecretDeps, snapshot: Snapshot) -> bool:
    """Return whether the target exists and belongs to it. The status from before our last write does not say so yet."""
    es, found = snapshot.es, snapshot.look
    return (
        isinstance(found, Present)
        and is_controlled_by(found.metadata, es.metadata.uid)
        and not deps.reporter.is_stale(es)
    )


async def _follow_unread(deps: ExternalSecretDeps, snapshot: Snapshot) -> None:
    """Follow the sources of an object that another process has refreshed, once its providers are known.

    Repeated whenever a store begins to announce changes, or stops.
    """
    es, known = snapshot.es, deps.dependencies.of(_dependant(snapshot.es))
    if not snapshot.first_reconcile and ANY_PROVIDER not in known and _watches_what_it_can(deps, es):
        return
    try:
        deps.changes.subscribe(es.key, await deps.fetcher.watched_keys(es), ReadState.UNREAD)
    except (ResolutionError, ProviderError):
        _depend(deps, es, known | {ANY_PROVIDER})
    else:
        _depend(deps, es, known - {ANY_PROVIDER})


def _watches_what_it_can(deps: ExternalSecretDeps, es: ExternalSecret) -> bool:
    try:
        return deps.fetcher.watchable_stores(es) == deps.changes.stores_of(es.key)
    except ResolutionError:
        return True  # while that is unknown, nothing changes


def _depend(deps: ExternalSecretDeps, es: ExternalSecret, on: Iterable[Dependency]) -> None:
    deps.dependencies.record(_dependant(es), on)


def _dependant(es: ExternalSecret) -> Dependant:
    return Dependant(Subsystem.EXTERNAL_SECRET, es.key)


def _state_owner(es: ExternalSecret) -> StateOwner:
    """Return the owner of generator states: entries are counted by `dataFrom`, as in the Go operator."""
    entries = tuple(map(str, range(len(es.spec.data_from))))
    return StateOwner(_RESOURCE, es.metadata, entries)


# --- writing the target -----------------------------------------------------------------------------------------------


_NO_VALUES: Final[Mapping[str, SecretBytes]] = MappingProxyType({})
_DELETED: Final = "secret deleted due to DeletionPolicy=Delete"
_DATA_PATH: Final = re.compile(r"spec\.data\[(\d+)\]")


class _Written(Enum):
    """Whether the target holds the new values although a step failed."""

    NO = "no"
    PERHAPS = "perhaps"
    """Yes, unless the API server rejected the write."""
    YES = "yes"


class TargetWriter:
    """Writes fetched values to targets. The process has one."""

    def __init__(self, templates: TemplateReader, cleanup: Cleanup) -> None:
        self._templates = templates
        self._cleanup = cleanup

    async def write(
        self, es: ExternalSecret, target: Target, fetched: Fetched, mark: GeneratedMark | None = None
    ) -> Outcome:
        """Make the target hold the values; generated ones with their mark."""
        events = tuple(map(_missing_event, fetched.missing))
        try:
            if not fetched.values and (emptied := await self._without_values(es, target)) is not None:
                outcome = emptied
            else:
                outcome = await self._with_values(es, target, fetched, mark)
        except SyncError as failed:
            outcome = failed.outcome
        if events and isinstance(outcome, Synced | Failed):
            return replace(outcome, events=(*events, *outcome.events))
        return outcome

    async def remove_former(self, es: ExternalSecret, fresh: NotDue | Intact) -> Outcome:
        """Delete former targets that an interrupted process left, and correct the status; return the outcome."""
        if not self._cleanup.has_orphans(es) and not _names_another_secret(es):
            return fresh
        try:
            with _step(Step.REMOVE_FORMER):
                events, recorded = await self._cleanup.delete_orphans(es)
        except SyncError as failed:
            return failed.outcome
        return Intact(fresh.after, events, recorded)

    async def _with_values(
        self, es: ExternalSecret, target: Target, fetched: Fetched, mark: GeneratedMark | None
    ) -> Outcome:
        """Plan and apply. The former target is deleted last, so that a Secret exists at all times."""
        with _step(Step.RENDER):
            templates = await self._templates.read(es.spec.target.template, es.metadata.namespace)
            change = await target.plan(es, fetched.values, templates.objects, mark)
        try:
            return await self._applied(es, target, fetched, change=change, templates=templates.versions)
        except SyncError as failed:
            if isinstance(failed.outcome, Failed | Conflicted) and failed.outcome.target_written:
                return replace(failed.outcome, templates=templates.versions)
            raise

    async def _applied(
        self,
        es: ExternalSecret,
        target: Target,
        fetched: Fetched,
        *,
        change: TargetChange,
        templates: frozenset[TemplateVersion],
    ) -> Outcome:
        synced = Synced(refresh_within=fetched.refresh_within, templates=templates)
        match change:
            case Create() | Update():
                with _step(Step.WRITE, after=_Written.PERHAPS, values=fetched.values):
                    applied = await target.apply(es, change)
                overwritten = change.overwritten if isinstance(change, Update) else None
                synced = replace(synced, events=(_written(es, applied),), changed=True, binding=_binding(es))
                synced = replace(synced, overwritten=overwritten, target_version=applied.version)
            case Keep(why=why, version=version):
                synced = replace(_unchanged(es, why, synced), target_version=version)
            case Refuse():
                return refused_target(change)
            case _:
                assert_never(change)
        return await self._without_orphans(es, synced)

    async def _without_values(self, es: ExternalSecret, target: Target) -> Outcome | None:
        """Apply the deletion policy if the backend has no values. Return None to continue with an empty target."""
        match es.spec.target.deletion_policy:
            case "Delete":
                if es.spec.target.creation_policy != OWNER:
                    return Stalled(Step.DELETE, "deletionPolicy Delete needs creationPolicy Owner")
                with _step(Step.DELETE):
                    deleted = await target.delete(es)
                gone = Synced(_DELETED, DELETED, (_deleted(es),) if deleted else (), changed=deleted)
                return await self._without_orphans(es, gone)
            case "Retain":
                return Synced("secret retained due to DeletionPolicy=Retain")
            case _:
                return None

    async def _without_orphans(self, es: ExternalSecret, synced: Synced) -> Synced:
        with _step(Step.REMOVE_FORMER, after=_Written.YES):
            orphans, recorded = await self._cleanup.delete_orphans(es)
        if not orphans and recorded == synced.manifests:
            return synced
        return replace(synced, events=(*synced.events, *orphans), manifests=recorded)


@contextmanager
def _step(
    step: Step, after: _Written = _Written.NO, *, values: Mapping[str, SecretBytes] = _NO_VALUES
) -> Iterator[None]:
    """Turn errors inside into an outcome that names the step.

    Templates compute keys from values, and an API server quotes invalid keys: such keys are not passed on.
    """
    try:
        yield
    except (TemplateMissingError, RenderError) as problem:
        raise SyncError(Failed(step, str(problem), TEMPLATE_ERROR)) from None
    except UnknownKindError as problem:
        raise SyncError(Failed(step, str(problem), UNKNOWN_TARGET_KIND)) from None
    except PartlyAppliedError as partly:
        raise SyncError(replace(_stopped(step, partly.problem, values), target_written=True)) from None
    except ApiError as problem:
        perhaps = after is _Written.PERHAPS and isinstance(problem, Unreachable | BadResponse | ServerError)
        written = perhaps or after is _Written.YES
        raise SyncError(replace(_stopped(step, problem, values), target_written=written)) from None


def _stopped(step: Step, problem: ApiError, values: Mapping[str, SecretBytes]) -> Conflicted | Failed:
    if isinstance(problem, Conflict):
        return Conflicted("the target changed meanwhile")
    return Failed(step, Redactor(value.reveal() for value in values.values()).text(refused(problem)))


def _unchanged(es: ExternalSecret, why: Untouched, synced: Synced) -> Synced:
    match why:
        case Untouched.UNCHANGED:
            return replace(synced, binding=_binding(es))
        case Untouched.POLICY_NONE:
            return synced
        case Untouched.MISSING:
            return replace(synced, message=_absent_target(es), reason=MISSING)
        case _:
            assert_never(why)


def refused(problem: ApiError) -> str:
    return f"the API server refused: {problem.reason or problem.code}: {problem.message}"


def _binding(es: ExternalSecret) -> str:
    """Return the name for the binding of the status; empty if the target is not a Secret."""
    return target_name(es) if es.spec.target.manifest is None else ""


def _names_another_secret(es: ExternalSecret) -> bool:
    """Return whether the status points workloads to a Secret that is no longer the target."""
    binding = es.status.binding
    return binding is not None and binding.name not in ("", _binding(es))


def _absent_target(es: ExternalSecret) -> str:
    what = "secret" if es.spec.target.manifest is None else "resource"
    return f"{what} will not be created due to CreationPolicy=Merge"


# --- events -----------------------------------------------------------------------------------------------------------


def _written(es: ExternalSecret, applied: Applied) -> Event:
    manifest, done = es.spec.target.manifest, applied.done.name.title()
    text = applied.done.value if manifest is None else f"{done} {manifest.kind} {applied.name}"
    return Event(EventType.NORMAL, done, text)


def _deleted(es: ExternalSecret) -> Event:
    manifest = es.spec.target.manifest
    text = _DELETED if manifest is None else f"Deleted {manifest.kind} {target_name(es)}"
    return Event(EventType.NORMAL, "Deleted", text)


def _missing_event(missing: Missing) -> Event:
    """Return the event about missing values with the text that existing alerts match.

    The text says dataFrom for entries of data, too, and names the remote key for entries of data only.
    """
    if of_data := _DATA_PATH.fullmatch(missing.path):
        where = f"spec.dataFrom[{of_data[1]}] (key={missing.remote_key})"
    else:
        where = missing.path.partition("].")[0].rstrip("]") + "]"
    return Event(EventType.NORMAL, "MissingProviderSecret", f"secret does not exist at provider using {where}")


# --- removing targets -------------------------------------------------------------------------------------------------


def with_target_on_record(es: ExternalSecret) -> ExternalSecretStatus:
    """Return the status with a record of the target, so that it can be found once the spec names another one."""
    return msgspec.structs.replace(es.status, manifests=list(with_record(es)))


class RemovesFormer(Protocol):
    """Removes former targets: `targets.former.FormerTargets`."""

    def exist(self, es: ExternalSecret) -> bool:
        """Return whether there may be former targets, without a request."""
        ...

    async def remove(self, es: ExternalSecret) -> RemovedTargets:
        """Delete the former targets. Raises ApiError."""
        ...


class Cleanup:
    """Removes targets of ExternalSecrets. The process has one."""

    def __init__(self, client: Client, rules: Rules, leftovers: RemovesFormer) -> None:
        self._client = client
        self._rules = rules
        self._leftovers = leftovers

    async def prepare(self, es: ExternalSecret) -> Result | None:
        """Set the finalizer if deletion must wait for us; return an outcome if this reconcile must end here.

        Raises ApiError if the API server rejects the write.
        """
        if es.spec.target.deletion_policy != "Delete" or FINALIZER in es.metadata.finalizers:
            return None
        try:
            await add_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Backoff("the ExternalSecret changed meanwhile")
        return Done()  # our own write comes back as an event

    async def finish(self, es: ExternalSecret, target: Target) -> Result:
        """Clean up after an ExternalSecret that is being deleted. Raises ApiError if the API server prevents it."""
        try:
            if es.spec.target.deletion_policy == "Delete" and self._may_write(es):
                await target.delete(es)
            await remove_finalizer(self._client, _KIND, es.metadata, FINALIZER)
        except NotFound:
            return Done()
        except Conflict:
            return Backoff("the ExternalSecret or its target changed meanwhile")
        return Done()

    def _may_write(self, es: ExternalSecret) -> bool:
        """Return whether we may write the target: targets other than Secrets need the administrator's permission."""
        return es.spec.target.manifest is None or self._rules.generic_targets

    def has_orphans(self, es: ExternalSecret) -> bool:
        """Return whether there may be targets under an earlier name, or of an earlier kind."""
        return self._leftovers.exist(es)

    async def delete_orphans(self, es: ExternalSecret) -> tuple[tuple[Event, ...], tuple[MadeManifest, ...]]:
        """Delete earlier targets; return the events about them and the targets that stay recorded."""
        removal = await self._leftovers.remove(es)
        return tuple(Event(EventType.NORMAL, "Deleted", text) for text in removal.messages), removal.recorded
