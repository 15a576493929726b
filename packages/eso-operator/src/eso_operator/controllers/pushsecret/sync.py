"""The work of one reconcile, in order. After a crash at any `await` the next reconcile continues without loss.

    1 generated state recorded   before a value is pushed: a credential without a record would never be revoked
    2 stores bound               before anything is recorded: an entry that certainly cannot be sent needs no record,
                                 which would have to be removed at once, and again after every retry
    3 entries recorded           before they are pushed: a value without a record would never be deleted
    4 values pushed              to all stores separately; what landed is remembered at once, recorded or not
    5 unwanted values removed    after the push, and only if all of it succeeded
    6 values pushed again        that the removal may have taken along
    7 former state retired       after every store has the new values

Every end is an outcome; nothing is raised to the reconciler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from eso_api.pushsecret import PUSH_SECRET, PushSecret, PushSecretStatus
from eso_api.references import CORE_GROUP
from eso_operator.controllers.base import Event, Reporter, api_error_text
from eso_operator.controllers.outcomes import Conflicted, Step
from eso_operator.controllers.pushsecret.checks import BEFORE_PUSH, first_stop
from eso_operator.controllers.pushsecret.ownership import Owners, Writes
from eso_operator.controllers.pushsecret.pending import PendingPushes
from eso_operator.controllers.pushsecret.push import (
    DELETE,
    IF_NOT_EXISTS,
    BoundDelivery,
    Guarantee,
    Pusher,
    StoreResult,
)
from eso_operator.controllers.pushsecret.record import (
    NOTHING,
    LastPush,
    PushSecretRecord,
    RemoteKey,
    RemoteValue,
    SyncedEntries,
    SyncedEntry,
    entries_of,
    status_fields,
    without,
)
from eso_operator.controllers.pushsecret.removal import Removal, Remover
from eso_operator.controllers.pushsecret.selection import (
    Delivery,
    EntryError,
    deliveries,
    select_all,
    selections,
    templated,
)
from eso_operator.controllers.pushsecret.snapshot import (
    PushSnapshot,
    PushSource,
    PushSources,
    SnapshotReader,
    SourceError,
    SourceGoneError,
    changed,
    missed,
)
from eso_operator.controllers.pushsecret.status import (
    Pushed,
    PushFailed,
    PushOutcome,
    SourceDeleted,
    left_alone,
    orphaned,
)
from eso_operator.controllers.refresh import current_version
from eso_operator.dependencies import Dependant, Dependencies, Dependency, OnObject
from eso_operator.generators.ledger import PUSH_ENTRY, GeneratorLedger, RecordedStates, StateOwner
from eso_operator.memory import Memory
from eso_operator.providers.bytelimits import ByteLimits, HeldBytes
from eso_operator.sources.fetch import Failure
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, TemplateVersion, template_sources
from eso_operator.stores.resolved import same_backend
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.secret import render_pushes
from eso_render.templates import TemplateObjects
from eso_wire.errors import RetryClass
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.errors import ApiError, Conflict

_STATE_ENTRIES: Final = (PUSH_ENTRY,)


@dataclass(frozen=True, slots=True)
class PushSecretDeps:
    """What a reconcile of a PushSecret needs."""

    client: Client
    snapshots: SnapshotReader
    templates: TemplateReader
    pusher: Pusher
    remover: Remover
    writes: Writes
    owners: Owners
    pending: PendingPushes
    ledger: GeneratorLedger
    byte_limits: ByteLimits
    fed_by: Callable[[ObjectKey], Sequence[ObjectKey]]
    """Returns the ExternalSecrets that are in a loop with a PushSecret."""
    memory: Memory[PushSecretRecord]
    dependencies: Dependencies
    reporter: Reporter[PushSecret]
    rendering: Rendering
    """The renderer of templates."""
    selecting: Rendering
    """The renderer of templates that rename keys: their delimiters cannot be configured."""


@dataclass(frozen=True, slots=True)
class PlannedPush:
    """What is pushed, and what was ours before."""

    deliveries: tuple[BoundDelivery, ...]
    ours: SyncedEntries
    templates: frozenset[TemplateVersion] = frozenset()
    """The versions of the templates that shaped the values."""


async def sync(deps: PushSecretDeps, snapshot: PushSnapshot) -> tuple[PushSnapshot, PushOutcome]:
    """Push the values. Assumes that no check of `BEFORE_SOURCE` stopped.

    The snapshot that is returned has the object with our last write.
    """
    push = snapshot.push
    if push.spec.selector.generator_ref is not None and (stop := first_stop(snapshot, BEFORE_PUSH)) is not None:
        depend(deps, push)
        return snapshot, stop  # no value is generated if it cannot be pushed
    with deps.byte_limits.of_object(push.metadata.namespace) as held:
        return await _push_sources(deps, snapshot, held)


async def _push_sources(
    deps: PushSecretDeps, snapshot: PushSnapshot, held: HeldBytes
) -> tuple[PushSnapshot, PushOutcome]:
    """Read the sources and push their values. A failure is an outcome."""
    push = snapshot.push
    try:
        sources = await deps.snapshots.sources.read(push, held)
    except SourceGoneError as error:
        return snapshot, await _without_source(deps, push, error)
    except SourceError as error:
        depend(deps, push, missed(error))
        return snapshot, PushFailed(Step.READ_SOURCE, (error.failure,))
    try:
        return await _push(deps, snapshot, sources)
    except Conflict:
        return snapshot, Conflicted("an object changed meanwhile")
    except ApiError as problem:
        return snapshot, _failed("spec", "ApiServer", api_error_text(problem))


async def _push(deps: PushSecretDeps, snapshot: PushSnapshot, sources: PushSources) -> tuple[PushSnapshot, PushOutcome]:
    push = snapshot.push
    # Before a value is pushed: a credential without a record would never be revoked.
    states = await deps.ledger.record(state_owner(push), sources.made)
    try:
        planned = first_stop(snapshot, BEFORE_PUSH) or await _plan(deps, snapshot, sources)
        if isinstance(planned, PlannedPush):
            # Before they are pushed: a value without a record would never be deleted.
            snapshot = await _record_entries(deps, snapshot, sources, planned, states)
    except ApiError:
        await deps.ledger.discard(states)
        raise
    if not isinstance(planned, PlannedPush):
        await deps.ledger.discard(states)
        depend(deps, push, sources.depends_on)
        return snapshot, planned
    results, removal = await push_and_remove(deps, snapshot.push, planned)
    outcome = _outcome(snapshot, sources, planned, results, removal)
    depend(deps, push, sources.depends_on, removal.depends_on, *(result.depends_on for result in results))
    if not any(result.landed or result.unsure for result in results):
        await deps.ledger.discard(states)
    elif isinstance(outcome, Pushed) and not any(result.left for result in results):
        await deps.ledger.retire(states)  # only now: no store holds a value of an older state
    return snapshot, outcome


# --- planning and recording -------------------------------------------------------------------------------------------


async def _plan(deps: PushSecretDeps, snapshot: PushSnapshot, sources: PushSources) -> PlannedPush | PushOutcome:
    """Return what is pushed to each store; an outcome if the spec is invalid."""
    push, namespace = snapshot.push, snapshot.push.metadata.namespace
    stores = () if isinstance(snapshot.stores, Failure) else snapshot.stores
    try:
        templates = await deps.templates.read(push.spec.template, namespace)
        rendered = await _rendered(deps, push, sources.found, templates.objects)
        selected = await deps.selecting.run(partial(select_all, selections(push, stores, rendered)), namespace)
        wanted = deliveries(push, stores, sources=rendered, known=_known(deps, snapshot), selected=selected)
        prepared = await _prepared(deps, wanted)
    except EntryError as problem:
        return _failed(problem.path, "InvalidSpec", str(problem), problem.remote_key)
    except (TemplateMissingError, RenderError) as problem:
        return _failed("spec.template", "TemplateError", str(problem), step=Step.RENDER_PUSH)
    prepared, ours = await _moved_from_former_stores(deps, push, prepared)
    return PlannedPush(prepared, ours, templates.versions)


async def _rendered(
    deps: PushSecretDeps, push: PushSecret, sources: Sequence[PushSource], objects: TemplateObjects
) -> tuple[PushSource, ...]:
    """Return the sources after their template."""
    template = push.spec.template
    if template is None:
        return tuple(sources)
    work = partial(render_pushes, template, [source.values for source in sources], objects=objects)
    return tuple(map(templated, sources, await deps.rendering.run(work, push.metadata.namespace)))


def _known(deps: PushSecretDeps, snapshot: PushSnapshot) -> Mapping[RemoteKey, RemoteValue]:
    """Return the values that need not be written again.

    An edit of the object writes everything again, but only once: our cache may lack the status that records it.
    """
    push, last = snapshot.push, snapshot.remembered
    pushed_before = not changed(push) or (last is not None and last.version == current_version(push))
    replaces = push.spec.update_policy != IF_NOT_EXISTS
    return deps.writes.values(push) if pushed_before or not replaces else NOTHING


async def _prepared(deps: PushSecretDeps, wanted: Iterable[Delivery]) -> tuple[BoundDelivery, ...]:
    """Bind each store, as far as possible."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(deps.pusher.prepare(delivery)) for delivery in wanted]
    return tuple(task.result() for task in tasks)


async def _moved_from_former_stores(
    deps: PushSecretDeps, push: PushSecret, prepared: Sequence[BoundDelivery]
) -> tuple[tuple[BoundDelivery, ...], SyncedEntries]:
    """Return the deliveries and our entries, with the entries of a former store moved to its successor.

    The status names stores. If a PushSecret switches from a v1 store to a v2 store of the same backend, or back, the
    entries of the former store are in the same place as the new ones. They would count as unwanted, and the values that
    were just pushed would be deleted. Entries of a former store that is unusable stay where they are recorded.
    """
    found, ours = list(prepared), ours_of(deps, push)
    current = {each.delivery.store.key for each in found}
    for former in dict.fromkeys(key.store for key in ours if key.store not in current):
        bound = await deps.remover.bound_or_none(push, former) if found else None
        for index, each in enumerate(found):
            if bound is None or each.bound is None or not same_backend(each.bound, bound):
                continue
            store = each.delivery.store.key
            moved = {key._replace(store=store): entry for key, entry in ours.items() if key.store == former}
            ours = {key: entry for key, entry in ours.items() if key.store != former} | moved
            # Under IfNotExists, they must not be taken for values of somebody else.
            owning = replace(each.delivery, ours=each.delivery.ours.union(moved))
            found[index] = replace(each, delivery=owning)
            break
    return tuple(found), ours


async def _record_entries(
    deps: PushSecretDeps, snapshot: PushSnapshot, sources: PushSources, planned: PlannedPush, states: RecordedStates
) -> PushSnapshot:
    """Record in the status what will be pushed and must be deleted at some time, and a push of generated values.

    Under IfNotExists it is unknown before the push whether an entry will be ours, and foreign values must never be
    deleted.
    """
    push = snapshot.push
    pending = await deps.pending.begin(snapshot, sources, planned.deliveries, planned.ours, states)
    sendable = [each.delivery for each in planned.deliveries if each.bound is not None]
    entries = [(delivery.key(entry), entry) for delivery in sendable for entry in delivery.entries]
    records = pending is not None or _is_recorded_first(push)
    new = {key: SyncedEntry(entry.data) for key, entry in entries if key not in planned.ours} if records else {}
    deps.owners.announce(push, new)
    written = push
    if new or pending is not None:
        fields = status_fields({**new, **planned.ours})

        def recording(live: PushSecret) -> PushSecretStatus:
            return msgspec.structs.replace(live.status, pending_push=pending, **fields)

        try:
            written = await deps.reporter.write_again(push, recording)
        except Conflict:
            deps.owners.withdraw(push)
            raise
    return replace(snapshot, push=deps.snapshots.with_min_interval(written), version=current_version(push))


def ours_of(deps: PushSecretDeps, push: PushSecret) -> SyncedEntries:
    """Return all entries that must be removed at some time: recorded, or pushed and not recorded yet.

    An entry that was recorded and then refused does not count: a store that never accepted a value must not block the
    deletion of the PushSecret.
    """
    written = without(entries_of(push.status), deps.owners.refused(push))
    return {**deps.writes.unrecorded(push), **written}


def _is_recorded_first(push: PushSecret) -> bool:
    return push.spec.deletion_policy == DELETE and push.spec.update_policy != IF_NOT_EXISTS


# --- pushing and removing ---------------------------------------------------------------------------------------------


async def push_and_remove(
    deps: PushSecretDeps, push: PushSecret, planned: PlannedPush
) -> tuple[list[StoreResult], Removal]:
    """Push everything; then, if all of it succeeded, remove unwanted values."""
    removal = Removal()
    deps.owners.sending(push)
    try:
        results = await _push_all(deps, planned.deliveries)
    except BaseException:
        # Cancelled, or an unexpected error: values that were written by then are ours.
        _remember(deps, push, [each.result for each in planned.deliveries])
        raise
    deps.owners.sent(push, {key for result in results for key in (*result.entries, *_unsure(push, result))})
    _remember(deps, push, results)
    if not any(result.failures for result in results) and push.spec.deletion_policy == DELETE:
        removal = await remove(deps, push, without(planned.ours, _pushed(results).keys()), final=False)
        await _push_again(deps, planned.deliveries, results, removal)
        _remember(deps, push, results)
    return results, removal


async def remove(deps: PushSecretDeps, push: PushSecret, entries: SyncedEntries, *, final: bool) -> Removal:
    """Remove values, and forget those that are gone. `final` if the PushSecret is being deleted."""
    removal = await deps.remover.remove(push, entries, final=final) if entries else Removal()
    deps.writes.removed(push, removal.gone)
    return removal


async def _push_all(deps: PushSecretDeps, prepared: Iterable[BoundDelivery]) -> list[StoreResult]:
    """Push to all stores separately, so that a failing store does not delay the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(deps.pusher.push(each)) for each in prepared]
    return [task.result() for task in tasks]


async def _push_again(
    deps: PushSecretDeps, pushed: Sequence[BoundDelivery], results: Sequence[StoreResult], removal: Removal
) -> None:
    """Push values again that a removal may have deleted.

    Two stores may be one backend. And the removal of a property may delete more: some backends can only remove the
    whole remote key, and removing the last property removes the key.
    """
    lost = {key.name for key in removal.gone} if removal.removed else set()
    known = {key: value for result in results for key, value in result.known.items()}
    by_store = {result.store.key: result for result in results}
    again = []
    for each in pushed:
        part = each.delivery.only(lambda entry: entry.remote.key in lost)
        keys = [key for key in map(part.key, part.entries) if key in known]
        uncertain = {key: known[key]._replace(digest=b"", version="") for key in keys}
        if part.by_source:
            again.append(replace(part, known=uncertain))
    for later in await _push_all(deps, await _prepared(deps, again)):
        by_store[later.store.key].take_over(later, lost)


async def _without_source(deps: PushSecretDeps, push: PushSecret, error: SourceGoneError) -> PushOutcome:
    """Delete the values of a missing source, if the policy requires it.

    A selector that matches nothing is not an error; a missing named Secret is one.
    """
    old = ours_of(deps, push)
    if old and push.spec.deletion_policy == DELETE:
        removal = await remove(deps, push, old, final=False)
        depend(deps, push, removal.depends_on)
        return not_removed(old, removal) or SourceDeleted(events_of(removal))
    depend(deps, push)
    source = push.spec.selector.secret
    if source is not None and not source.name:
        return Pushed(note="no Secret matches spec.selector.secret.selector: nothing is pushed")
    return PushFailed(Step.READ_SOURCE, (error.failure,))


def _remember(deps: PushSecretDeps, push: PushSecret, results: Sequence[StoreResult]) -> None:
    known = {key: value for result in results for key, value in result.known.items()}
    deps.writes.wrote(push, known, _pushed(results))


# --- outcomes ---------------------------------------------------------------------------------------------------------


def _outcome(
    snapshot: PushSnapshot,
    sources: PushSources,
    planned: PlannedPush,
    results: Sequence[StoreResult],
    removal: Removal,
) -> PushOutcome:
    push, pushed = snapshot.push, _pushed(results)
    if failures := tuple(failure for result in results for failure in result.failures):
        unsure = {key: entry for result in results for key, entry in _unsure(push, result).items()}
        left = {**pushed, **unsure, **without(planned.ours, removal.gone)}
        return PushFailed(Step.PUSH, failures, left, events_of(removal))
    if (failed := not_removed(planned.ours, removal)) is not None:
        return replace(failed, entries={**pushed, **(failed.entries or {})})
    renew = sources.renew_within
    return Pushed(
        entries=pushed,
        existing=tuple(f"{result.store}: {key}" for result in results for key in result.existing),
        weaker=tuple(str(result.store) for result in results if result.guarantee is Guarantee.CHECKED),
        yielded=any(result.yielded for result in results),
        wrote=bool(removal.removed or sum(result.written for result in results)),
        renew_within=renew,
        events=events_of(removal),
        last=LastPush(
            at=snapshot.now,
            version=snapshot.version or current_version(push),
            sources=sources.marks,
            stores=snapshot.store_marks,
            renew_at=snapshot.now + timedelta(seconds=renew) if renew is not None else None,
            templates=planned.templates,
        ),
        values={key: value for result in results for key, value in result.known.items()},
    )


def not_removed(old: SyncedEntries, removal: Removal) -> PushFailed | None:
    """Return the failure of a removal that did not succeed yet."""
    if not removal.failures:
        return None
    left = without(old, removal.gone)
    return PushFailed(Step.DELETE_PUSHED, tuple(removal.failures), left, events_of(removal))


def events_of(removal: Removal) -> tuple[Event, ...]:
    """Return the events about values that were not deleted."""
    return (*orphaned(removal.orphans), *left_alone(removal.others))


def _failed(path: str, reason: str, message: str, remote_key: str = "", *, step: Step = Step.PUSH) -> PushFailed:
    return PushFailed(step, (Failure(path, reason, message, remote_key, retry=RetryClass.BACKOFF),))


def _pushed(results: Iterable[StoreResult]) -> dict[RemoteKey, SyncedEntry]:
    return {key: entry for result in results for key, entry in result.entries.items()}


def _unsure(push: PushSecret, result: StoreResult) -> SyncedEntries:
    """Return the entries that may have been written, if they are recorded."""
    return result.unsure if _is_recorded_first(push) else NOTHING


# --- dependencies and generated state ---------------------------------------------------------------------------------


def depend(deps: PushSecretDeps, push: PushSecret, *on: Iterable[Dependency]) -> None:
    """Record the dependencies of the PushSecret; a change of one requeues it."""
    found = {dependency for each in on for dependency in each}
    found |= set(_named_stores(push)) | set(template_sources(push.spec.template, push.metadata.namespace))
    deps.dependencies.record(Dependant(Subsystem.PUSH_SECRET, push.key), found)


def _named_stores(push: PushSecret) -> Iterator[Dependency]:
    """Yield the named stores, existing or not; whether a provider's own kind is namespaced is unknown here."""
    for ref in push.spec.secret_store_refs:
        if ref.name and ref.label_selector is None:
            group = ref.api_version.rpartition("/")[0] if ref.api_version else CORE_GROUP
            for namespace in (push.metadata.namespace, ""):
                yield OnObject(group, ref.kind or "SecretStore", ObjectKey(namespace, ref.name))


def state_owner(push: PushSecret) -> StateOwner:
    return StateOwner(PUSH_SECRET.resource(), push.metadata, _STATE_ENTRIES)
