"""The work of one reconcile, in order. After a crash at any `await` the next reconcile continues without loss.

    1 target recorded in the status     before it is written: an unrecorded one is not cleaned up
    2 values read or generated
    3 changes of these keys subscribed  before the write: a change during the write must requeue the object
    4 generated state recorded          before the write: an unrecorded one is not revoked
    5 target written
    6 former targets removed            after the write: a target exists at all times
    7 former state retired             after the former targets, which may hold older credentials

A step that fails raises SyncError with the outcome; nothing else is raised to the reconciler.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final, assert_never

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, MadeManifest
from eso_api.values import SecretBytes
from eso_operator.changes.feed import ChangeFeed
from eso_operator.changes.followers import ReadState
from eso_operator.controllers.base import Event, Reporter
from eso_operator.controllers.contention import Allowance
from eso_operator.controllers.externalsecret.checks import first_stop, repairs_drift
from eso_operator.controllers.externalsecret.loops import Loops
from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.externalsecret.snapshot import Snapshot, SnapshotGatherer, sources_of
from eso_operator.controllers.externalsecret.status import (
    TARGET_CONTENDED,
    TEMPLATE_ERROR,
    UNKNOWN_TARGET_KIND,
    Failed,
    Intact,
    Outcome,
    Stalled,
    Synced,
    TargetUnread,
    Waiting,
    refused_target,
)
from eso_operator.controllers.outcomes import DELETED, MISSING, Conflicted, Ignored, Step
from eso_operator.controllers.refresh import NotDue, current_version, watches_changes
from eso_operator.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency
from eso_operator.generators.ledger import GeneratorLedger, RecordedStates, StateOwner
from eso_operator.memory import Memory
from eso_operator.providers.bytelimits import ByteLimits, HeldBytes
from eso_operator.sources.entries import Generate, entries_of
from eso_operator.sources.fetch import Fetched, Fetcher, MissingRemoteKey
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, TemplateVersion
from eso_operator.stores.resolved import ResolutionError
from eso_operator.targets.former import FormerTargets
from eso_operator.targets.metadata import NONE, OWNER, GeneratedMark, target_name, with_states
from eso_operator.targets.target import (
    Applied,
    CreateTarget,
    KeepTarget,
    PartlyAppliedError,
    Present,
    RefuseTarget,
    Target,
    UnknownKindError,
    Untouched,
    UpdateTarget,
    is_recorded,
    with_record,
)
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.errors import RenderError
from eso_wire.errors import ProviderError
from kubebase.clock import Clock, rfc3339
from kubebase.redaction import Redactor
from kuberun.client import Client
from kuberun.controller import ReconcileContext
from kuberun.errors import ApiError, BadResponse, Conflict, Forbidden, NotFound, ServerError, Unreachable
from kuberun.events import EventType
from kuberun.ownership import is_controlled_by

_RESOURCE: Final = EXTERNAL_SECRET.resource()
_CONTENDED: Final = "another writer changes the target back each time; its metadata.managedFields name it"
_REPAIRS_AT_ONCE: Final = 20
_REPAIR_SECONDS: Final = 10.0
"""Drift is reverted at once up to 20 times, then every 10 s."""


def repair_allowance(clock: Clock) -> Allowance:
    """Return how often drift of one target is repaired."""
    return Allowance(clock, burst=_REPAIRS_AT_ONCE, refill=_REPAIR_SECONDS)


class SyncError(Exception):
    """A step failed; the reconcile ends with this outcome.

    `written` has the templates of a target that holds the new values, or may hold them; None if it does not.
    """

    def __init__(self, outcome: Outcome, written: frozenset[TemplateVersion] | None = None) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.written = written


@dataclass(frozen=True, slots=True)
class ExternalSecretDeps:
    """What a reconcile of an ExternalSecret needs."""

    client: Client
    gatherer: SnapshotGatherer
    fetcher: Fetcher
    ledger: GeneratorLedger
    templates: TemplateReader
    former: FormerTargets
    memory: Memory[ExternalSecretRecord]
    repairs: Allowance
    loops: Loops
    dependencies: Dependencies
    reporter: Reporter[ExternalSecret]
    target_of: Callable[[ExternalSecret], Target]
    changes: ChangeFeed
    byte_limits: ByteLimits


async def sync(deps: ExternalSecretDeps, snapshot: Snapshot, ctx: ReconcileContext) -> tuple[Snapshot, Outcome]:
    """Read the values and write the target. Assumes that no check stopped. Return the outcome, and what it is about."""
    outcome: Outcome
    with deps.byte_limits.of_object(snapshot.es.metadata.namespace) as held:
        try:
            if _generates(snapshot.es):
                # The cache may lack a target with generated values that was written just before a status was lost.
                snapshot = await _read(snapshot.es, deps.gatherer.confirmed(snapshot, deps.target_of(snapshot.es)))
                if (stop := first_stop(snapshot)) is not None:
                    return await maintain(deps, snapshot, stop)
            _limit_repairs(deps, snapshot)
            snapshot = await _record_target(deps, snapshot)
            fetched = await _fetch(deps, snapshot, ctx, held)
            if watches_changes(snapshot.es):
                deps.changes.subscribe(snapshot.es.key, fetched.watched_keys, fetched.read_state)
            states = await _record_generated(deps, snapshot.es, fetched)
            outcome = await _write(deps, snapshot, fetched, states)
            await deps.ledger.retire(states)
        except SyncError as failed:
            outcome = failed.outcome
    _unsubscribe_unless_needed(deps, snapshot.es, outcome)
    return snapshot, outcome


async def maintain(deps: ExternalSecretDeps, snapshot: Snapshot, stop: Outcome) -> tuple[Snapshot, Outcome]:
    """Finish what an earlier reconcile, or another process, left undone, if a check found that nothing must be read."""
    _unsubscribe_unless_needed(deps, snapshot.es, stop)
    if not isinstance(stop, NotDue | Intact):
        return snapshot, stop
    outcome: NotDue | Intact = stop
    try:
        if _has_its_target(deps, snapshot):  # one that was written without a record gets it now
            snapshot = await _record_target(deps, snapshot)
        if watches_changes(snapshot.es):
            await _subscribe_unread(deps, snapshot)
        if deps.reporter.is_stale(snapshot.es):
            # This version of the object does not have the last report, which may say that a retry is needed.
            return snapshot, Conflicted("the cache is older than our last write")
        if _has_its_target(deps, snapshot) and (deps.former.exist(snapshot.es) or _names_another_secret(snapshot.es)):
            outcome = Intact(stop.after, *await _remove_former(snapshot.es, deps.former))
        generated = snapshot.generated
        if generated is not None and generated.states is not None:
            # The reconcile that generated them may have been interrupted before it retired the older states.
            await deps.ledger.retire_all_but(_state_owner(snapshot.es), generated.states)
    except SyncError as failed:
        return snapshot, failed.outcome
    return snapshot, outcome


async def gather(deps: ExternalSecretDeps, es: ExternalSecret, ctx: ReconcileContext) -> Snapshot:
    """Return the snapshot of the object. Raises SyncError if the target cannot be read.

    The sources are recorded before the target is read, so that a change in the meantime requeues the object.
    """
    _depend(deps, es, sources_of(es) | deps.dependencies.of(_dependant(es)))
    return await _read(es, deps.gatherer.gather(es, deps.target_of(es), ctx))


async def _read(es: ExternalSecret, reading: Awaitable[Snapshot]) -> Snapshot:
    """Return what is read. Secrets are watched, so a failed read of one is reported only if it persists."""
    try:
        return await reading
    except UnknownKindError as problem:
        raise SyncError(Failed(Step.READ_TARGET, str(problem), UNKNOWN_TARGET_KIND)) from None
    except ApiError as problem:
        passing = es.spec.target.manifest is None and not isinstance(problem, Forbidden)
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
        es = await deps.reporter.write(es, msgspec.structs.replace(es.status, manifests=list(with_record(es))))
    except (Conflict, NotFound):
        raise SyncError(Conflicted("the ExternalSecret changed meanwhile")) from None
    except ApiError as problem:
        raise SyncError(Failed(Step.WRITE, f"target not put on record: {refused(problem)}")) from None
    return replace(snapshot, es=es)


async def _fetch(deps: ExternalSecretDeps, snapshot: Snapshot, ctx: ReconcileContext, held: HeldBytes) -> Fetched:
    """Return the values of all entries, and record their dependencies."""
    es = snapshot.es
    # What was read before the request for this reconcile, or before a change was announced, is stale.
    fresh_since = max(ctx.requested_at, snapshot.notified_at or ctx.requested_at)
    fetched = await deps.fetcher.fetch(es, fresh_since=fresh_since, held=held)
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


async def _write(deps: ExternalSecretDeps, snapshot: Snapshot, fetched: Fetched, states: RecordedStates) -> Synced:
    """Write the target. The states of new values that did not reach it are discarded."""
    es, mark = snapshot.es, _mark(snapshot, fetched, states)
    try:
        synced = await write_target(es, deps.target_of(es), fetched, mark, templates=deps.templates, former=deps.former)
    except SyncError as failed:
        if failed.written is None:
            await deps.ledger.discard(states)
        elif mark is not None:  # the new values are in use, and the older ones may be
            deps.gatherer.writing(snapshot, mark, failed.written)
        raise
    if mark is not None:
        deps.gatherer.writing(snapshot, mark, synced.templates)
    synced = replace(synced, remarks=fetched.remarks)
    if synced.changed and repairs_drift(snapshot):
        record = deps.memory.of(es.key, es.metadata.uid)
        record.repairs = deps.repairs.after_rewrite(record.repairs, current_version(es))
    deps.loops.refreshed(es, fetched, synced, snapshot.now)
    return synced


def _unsubscribe_unless_needed(deps: ExternalSecretDeps, es: ExternalSecret, outcome: Outcome) -> None:
    if isinstance(outcome, Ignored | Stalled) or not watches_changes(es):
        deps.changes.unsubscribe(es.key)


def _mark(snapshot: Snapshot, fetched: Fetched, states: RecordedStates) -> GeneratedMark | None:
    """Return what the target will say of its values; None if none of them is generated."""
    if not fetched.made:
        return None
    within = fetched.refresh_within
    mark = GeneratedMark(
        time=rfc3339(snapshot.now),
        version=snapshot.synced_version,
        renew_time=None if within is None else rfc3339(snapshot.now + timedelta(seconds=within)),
    )
    return with_states(mark, tuple(state.name for state in states.new))


def _has_its_target(deps: ExternalSecretDeps, snapshot: Snapshot) -> bool:
    """Return whether the target exists and belongs to it. The status from before our last write does not say so yet."""
    es, found = snapshot.es, snapshot.target
    return (
        isinstance(found, Present)
        and is_controlled_by(found.metadata, es.metadata.uid)
        and not deps.reporter.is_stale(es)
    )


async def _subscribe_unread(deps: ExternalSecretDeps, snapshot: Snapshot) -> None:
    """Subscribe to the sources of an object that another process has refreshed, once its providers are known.

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


async def write_target(
    es: ExternalSecret,
    target: Target,
    fetched: Fetched,
    mark: GeneratedMark | None = None,
    *,
    templates: TemplateReader,
    former: FormerTargets,
) -> Synced:
    """Make the target hold the values, generated ones with their mark. Raises SyncError."""
    events = tuple(map(_missing_event, fetched.missing))
    try:
        synced = None if fetched.values else await _without_values(es, target, former)
        if synced is None:
            synced = await _with_values(es, target, fetched, mark, templates=templates, former=former)
    except SyncError as failed:
        if isinstance(failed.outcome, Failed):
            failed.outcome = replace(failed.outcome, events=(*events, *failed.outcome.events))
        raise
    return replace(synced, events=(*events, *synced.events))


async def _without_values(es: ExternalSecret, target: Target, former: FormerTargets) -> Synced | None:
    """Apply the deletion policy if the backend has no values. Return None to continue with an empty target."""
    match es.spec.target.deletion_policy:
        case "Delete":
            if es.spec.target.creation_policy != OWNER:
                raise SyncError(Stalled(Step.DELETE, "deletionPolicy Delete needs creationPolicy Owner"))
            with _step(Step.DELETE):
                deleted = await target.delete(es)
            gone = Synced(_DELETED, DELETED, (_deleted(es),) if deleted else (), changed=deleted)
            return await _without_former(es, gone, former)
        case "Retain":
            return Synced("secret retained due to DeletionPolicy=Retain")
        case _:
            return None


async def _with_values(
    es: ExternalSecret,
    target: Target,
    fetched: Fetched,
    mark: GeneratedMark | None,
    *,
    templates: TemplateReader,
    former: FormerTargets,
) -> Synced:
    """Plan and apply. The former target is deleted last, so that a Secret exists at all times."""
    with _step(Step.RENDER):
        sources = await templates.read(es.spec.target.template, es.metadata.namespace)
        change = await target.plan(es, fetched.values, sources.objects, mark)
    synced = Synced(refresh_within=fetched.refresh_within, templates=sources.versions)
    match change:
        case CreateTarget() | UpdateTarget():
            with _step(Step.WRITE, _Written.PERHAPS, values=fetched.values, templates=sources.versions):
                applied = await target.apply(es, change)
            synced = replace(
                synced,
                events=(_written(es, applied),),
                changed=True,
                binding=_binding(es),
                overwritten=change.overwritten if isinstance(change, UpdateTarget) else None,
                target_version=applied.version,
            )
        case KeepTarget(why=why, version=version):
            synced = replace(_unchanged(es, why, synced), target_version=version)
        case RefuseTarget():
            raise SyncError(refused_target(change))
        case _:
            assert_never(change)
    return await _without_former(es, synced, former)


async def _without_former(es: ExternalSecret, synced: Synced, former: FormerTargets) -> Synced:
    events, recorded = await _remove_former(es, former, _Written.YES, synced.templates)
    if not events and recorded == synced.manifests:
        return synced
    return replace(synced, events=(*synced.events, *events), manifests=recorded)


async def _remove_former(
    es: ExternalSecret,
    former: FormerTargets,
    after: _Written = _Written.NO,
    templates: frozenset[TemplateVersion] = frozenset(),
) -> tuple[tuple[Event, ...], tuple[MadeManifest, ...]]:
    """Delete earlier targets; return the events about them and the targets that stay recorded."""
    with _step(Step.REMOVE_FORMER, after, templates=templates):
        removal = await former.remove(es)
    return tuple(Event(EventType.NORMAL, "Deleted", text) for text in removal.messages), removal.recorded


@contextmanager
def _step(
    step: Step,
    after: _Written = _Written.NO,
    *,
    values: Mapping[str, SecretBytes] = _NO_VALUES,
    templates: frozenset[TemplateVersion] = frozenset(),
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
        raise SyncError(_stopped(step, partly.problem, values), templates) from None
    except ApiError as problem:
        perhaps = after is _Written.PERHAPS and isinstance(problem, Unreachable | BadResponse | ServerError)
        written = templates if perhaps or after is _Written.YES else None
        raise SyncError(_stopped(step, problem, values), written) from None


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


def _missing_event(missing: MissingRemoteKey) -> Event:
    """Return the event about missing values with the text that existing alerts match.

    The text says dataFrom for entries of data, too, and names the remote key for entries of data only.
    """
    if of_data := _DATA_PATH.fullmatch(missing.path):
        where = f"spec.dataFrom[{of_data[1]}] (key={missing.remote_key})"
    else:
        where = missing.path.partition("].")[0].rstrip("]") + "]"
    return Event(EventType.NORMAL, "MissingProviderSecret", f"secret does not exist at provider using {where}")
