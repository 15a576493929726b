"""The changes that trigger a reconcile of a PushSecret.

the object itself      spec, labels, annotations, finalizers, deletion; not its status
source Secrets         the one it names, and those that its selector matches or matched
stores                 those it names, has pushed to, or selects by label
dependencies           providers, configurations, credentials, templates (`waking.wakes`)

The finalizer of PushSecrets: set exactly while a deletion must wait for the removal of remote values.

deletionPolicy Delete, alive     added before the first push; that pass pushes nothing
deletionPolicy None              removed, even while the object is being deleted: remote values stay

Reconciles one PushSecret: gather, decide, read the source, select, settle, report.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from eso_api.pushsecret import PUSH_SECRET, PendingPush, PushSecret, PushSecretStatus
from eso_api.references import CORE_GROUP, SelectorError
from eso_operator.controllers.base import Reporter, api_error_text, result_of
from eso_operator.controllers.outcomes import Conflicted, Step
from eso_operator.controllers.pushsecret.checks import BEFORE_PUSH, BEFORE_SOURCE, first_stop
from eso_operator.controllers.pushsecret.ownership import PLACES_INDEX, Pushes, places_of
from eso_operator.controllers.pushsecret.pending import Finished, PendingPushes
from eso_operator.controllers.pushsecret.push import DELETE, IF_NOT_EXISTS
from eso_operator.controllers.pushsecret.record import NOTHING_KNOWN, Known, Place, PushSecretRecord, recorded, union
from eso_operator.controllers.pushsecret.selection import (
    Delivery,
    EntryError,
    deliveries,
    select_all,
    selections,
    templated,
)
from eso_operator.controllers.pushsecret.snapshot import (
    Chosen,
    Gatherer,
    NoChoice,
    PushSnapshot,
    Source,
    SourceError,
    SourceGoneError,
    SourceReader,
    Sources,
    changed,
    current_version,
    interval_of,
    missed,
)
from eso_operator.controllers.pushsecret.status import Failed, Outcome, SourceDeleted, Synced, report_of
from eso_operator.controllers.pushsecret.sync import Planned, Settlement, events_of
from eso_operator.controllers.secretstore.controller import holders
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency, OnObject
from eso_operator.dependencies.wakes import said_changed
from eso_operator.generators.ledger import PUSH_ENTRY, GeneratorLedger, StateOwner
from eso_operator.memory import Memory
from eso_operator.providers.bytelimits import ByteLimits, HeldBytes
from eso_operator.sources.fetch import Failure
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, template_sources
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.secret import render_pushes
from eso_render.sources import TemplateObjects
from eso_wire.errors import RetryClass
from kubebase.clock import Clock
from kubebase.meta import JsonObject, Object, ObjectKey, meta_of
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Requeue, Result
from kuberun.errors import ApiError, Conflict, NotFound, NotServed
from kuberun.ownership import finalizer_added, finalizer_removed
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

SOURCES_INDEX: Final = "sources"

_BY_LABEL: Final = ""
"""Index key of PushSecrets that select by label; no Secret has this name."""


def sources_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: the Secret it names, or its namespace if it selects by label."""
    source = push.spec.selector.secret
    if source is None:
        return ()
    return ((push.metadata.namespace, source.name or _BY_LABEL),)


INDEXES: Final = {SOURCES_INDEX: sources_of, PLACES_INDEX: places_of}
"""Indexes of PushSecrets for the controller."""


def own_changes(change: Change[PushSecret]) -> Iterable[ReconcileRequest]:
    """Return requests for changes by users, not for our own reports. A removed finalizer counts too."""
    if said_changed(change) or triggers.resynced(change) or _finalizers_differ(change):
        return triggers.itself()(change)
    return ()


def source_changes(objects: Cache[PushSecret]) -> EventHandler[Object]:
    """Return the PushSecrets that push a changed Secret, or pushed it until its labels changed."""

    def requests(change: Change[Object]) -> Iterable[ReconcileRequest]:
        reason = f"source {change.key} {'deleted' if change.deleted else 'changed'}"
        labels = [meta_of(state).labels for state in (change.old, change.new) if state is not None]
        return [ReconcileRequest(key, reason) for key in pushing(objects, change.key, *labels)]

    return requests


def pushing(objects: Cache[PushSecret], secret: ObjectKey, *labels: dict[str, str]) -> list[ObjectKey]:
    """Return the PushSecrets that name a Secret, or select one with these labels."""
    named = objects.find_keys(SOURCES_INDEX, (secret.namespace, secret.name))
    selecting = objects.find(SOURCES_INDEX, (secret.namespace, _BY_LABEL))
    return [*named, *(push.key for push in selecting if any(_selects(push, each) for each in labels))]


def store_changes(kind: StoreKind, objects: Cache[PushSecret]) -> EventHandler[Any]:
    """Return the PushSecrets that name a changed store, have pushed to it, or may select it by label."""
    holding = holders(objects)

    def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
        if not said_changed(change):
            return []
        near = [
            push.key
            for push in holding(kind, change.key)
            if not change.key.namespace or push.metadata.namespace == change.key.namespace
        ]
        return [ReconcileRequest(key, f"{kind.resource.kind} {change.key} changed") for key in dict.fromkeys(near)]

    return requests


def named_stores(push: PushSecret) -> Iterator[Dependency]:
    """Yield the named stores, existing or not; whether a provider's own kind is namespaced is unknown here."""
    for ref in push.spec.secret_store_refs:
        if ref.name and ref.label_selector is None:
            group = ref.api_version.rpartition("/")[0] if ref.api_version else CORE_GROUP
            for namespace in (push.metadata.namespace, ""):
                yield OnObject(group, ref.kind or "SecretStore", ObjectKey(namespace, ref.name))


def _selects(push: PushSecret, labels: dict[str, str]) -> bool:
    source = push.spec.selector.secret
    try:
        return source is not None and source.selector is not None and source.selector.matches(labels)
    except SelectorError:
        return False  # its own condition reports it


def _finalizers_differ(change: Change[PushSecret]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers


FINALIZER: Final = "pushsecret.externalsecrets.io/finalizer"

_KIND: Final = PUSH_SECRET.kind()


class Finalizer:
    """Adds and removes the finalizer. The process has one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def prepare(self, push: PushSecret) -> Result | None:
        """Set or remove the finalizer; return an outcome if the reconcile ends here. Our write triggers another one."""
        held, deleting = FINALIZER in push.metadata.finalizers, push.metadata.deletion_timestamp is not None
        if push.spec.deletion_policy == DELETE:
            if held:
                return None
            return Done() if deleting else await self._add(push)
        if held:
            return await self.release(push)
        return Done() if deleting else None

    async def release(self, push: PushSecret) -> Result:
        return await self._write(finalizer_removed(push.metadata, FINALIZER), push)

    async def _add(self, push: PushSecret) -> Result:
        return await self._write(finalizer_added(push.metadata, FINALIZER), push)

    async def _write(self, patch: JsonObject | None, push: PushSecret) -> Result:
        try:
            if patch is not None:
                await self._client.merge_patch(_KIND, push.key, patch)
        except ApiError as problem:
            return result_of(problem, "finalizer not written")
        return Done()


_UNREADABLE: Final = "it cannot be read"

_NOT_SERVED: Final = "the API server does not know PushSecrets now"

_STATE_ENTRIES: Final = (PUSH_ENTRY,)

_SOON: Final = 1.0


@dataclass(frozen=True, slots=True)
class PushSecretDeps:
    """The dependencies of the reconciler."""

    client: Client
    clock: Clock
    sources: SourceReader
    templates: TemplateReader
    settlement: Settlement
    pending: PendingPushes
    ledger: GeneratorLedger
    byte_limits: ByteLimits
    finalizer: Finalizer
    pushes: Pushes
    fed_by: Callable[[ObjectKey], Sequence[ObjectKey]]
    """Returns the ExternalSecrets that are in a loop with a PushSecret."""
    memory: Memory[PushSecretRecord]
    dependencies: Dependencies
    reporter: Reporter[PushSecret]
    rendering: Rendering
    """The renderer of templates."""
    selecting: Rendering
    """The renderer of templates that rename keys: their delimiters cannot be configured."""


class PushSecretReconciler:
    """Makes backends hold the values that PushSecrets select."""

    def __init__(self, gatherer: Gatherer, deps: PushSecretDeps) -> None:
        self._gatherer = gatherer
        self._deps = deps

    async def reconcile(self, key: ObjectKey, ctx: ReconcileContext) -> Result:
        """Push the values of the source to the stores of one PushSecret."""
        push = self._gatherer.find(key)
        if push is None:
            return await self._gone(key)
        try:
            # The status lists our values and whether the last push failed. An older status would miss values that we
            # pushed, or cancel a retry that was announced.
            push = await self._deps.reporter.latest(push)
        except ApiError as problem:
            return result_of(problem, _UNREADABLE)
        self._deps.memory.of(key, push.metadata.uid)
        if (waiting := await self._deps.finalizer.prepare(push)) is not None:
            return waiting
        if push.metadata.deletion_timestamp is not None:
            return await self._finish(push, ctx)
        with self._deps.reporter.timed(push.metadata):
            snapshot = await self._gatherer.gather(push, self._deps.clock.now())
            if (then := await self._finish_interrupted(snapshot, ctx)) is not None:
                return then
            outcome = first_stop(snapshot, BEFORE_SOURCE)
            if outcome is None:
                snapshot, outcome = await self._push(snapshot)
            return await self._report(snapshot, outcome, ctx)

    # --- pushing ------------------------------------------------------------------------------------------------------

    async def _finish_interrupted(self, snapshot: PushSnapshot, ctx: ReconcileContext) -> Result | None:
        """Report a push of generated values that succeeded and was not reported; None if there is none."""
        push, ended = snapshot.push, await self._deps.pending.finish(snapshot)
        match ended:
            case Finished(outcome, at, states):
                if states is not None:
                    await self._deps.ledger.retire_all_but(_state_owner(push), states)
                then = await self._say(push, outcome, at, ctx)
                # Time has passed since, and the object may have changed: whether a push is due is decided next.
                return then if isinstance(then, Backoff) else Requeue(_SOON, "an interrupted push was finished")
            case Failed():
                self._depend(push, (ANY_PROVIDER,))
                return await self._report(snapshot, ended, ctx)
            case _:
                return None

    async def _push(self, snapshot: PushSnapshot) -> tuple[PushSnapshot, Outcome]:
        """Push: source, stores, entries, values.

        A failure is an outcome. The snapshot has the object with our last write.
        """
        push = snapshot.push
        if push.spec.selector.generator_ref is not None and (stop := first_stop(snapshot, BEFORE_PUSH)) is not None:
            self._depend(push)
            return snapshot, stop  # no value is generated if it cannot be pushed
        with self._deps.byte_limits.of_object(push.metadata.namespace) as held:
            return await self._from_sources(snapshot, held)

    async def _from_sources(self, snapshot: PushSnapshot, held: HeldBytes) -> tuple[PushSnapshot, Outcome]:
        push = snapshot.push
        try:
            sources = await self._deps.sources.read(push, held)
        except SourceGoneError as error:
            return snapshot, await self._without_source(push, error)
        except SourceError as error:
            self._depend(push, missed(error))
            failure = Failure("spec.selector", error.reason, error.message, "", "", error.retry, error.retry_after)
            return snapshot, Failed(Step.READ_SOURCE, (replace(failure, waits=error.waits),))
        try:
            return await self._from(snapshot, sources)
        except Conflict:
            return snapshot, Conflicted("an object changed meanwhile")
        except ApiError as problem:
            return snapshot, _failed("spec", "ApiServer", api_error_text(problem))

    async def _from(self, snapshot: PushSnapshot, sources: Sources) -> tuple[PushSnapshot, Outcome]:
        """Push from the sources.

        The state of generated values is recorded before the first push, and until every store has the next ones.
        """
        push, ledger = snapshot.push, self._deps.ledger
        kept = await ledger.record(_state_owner(push), sources.made)
        try:
            planned = first_stop(snapshot, BEFORE_PUSH) or await self._planned(snapshot, sources)
            if isinstance(planned, Planned):
                pending = await self._deps.pending.begin(snapshot, sources, planned, kept)
                announced = await self._announced(push, planned, pending)
                snapshot = replace(
                    snapshot, push=self._gatherer.with_min_interval(announced), version=current_version(push)
                )
        except ApiError:
            await ledger.discard(kept)
            raise
        if not isinstance(planned, Planned):
            await ledger.discard(kept)
            self._depend(push, sources.depends_on)
            return snapshot, planned
        settled = await self._deps.settlement.push(snapshot, sources, planned)
        self._depend(push, sources.depends_on, settled.depends_on)
        if not any(result.landed or result.unsure for result in settled.results):
            await ledger.discard(kept)
        elif isinstance(settled.outcome, Synced) and not any(result.left for result in settled.results):
            await ledger.retire(kept)
        return snapshot, settled.outcome

    async def _announced(self, push: PushSecret, planned: Planned, pending: PendingPush | None) -> PushSecret:
        """Return the object after its status records all that will be pushed and later deleted, or is generated."""
        new = self._deps.settlement.announce(push, planned, pending=pending is not None)
        if not new and pending is None:
            return push
        entries, versions = recorded(union(new, planned.ours))

        def announcing(live: PushSecret) -> PushSecretStatus:
            return msgspec.structs.replace(
                live.status, synced_push_secrets=entries, synced_versions=versions, pending_push=pending
            )

        try:
            return await self._deps.reporter.write_again(push, announcing)
        except Conflict:
            self._deps.settlement.withdraw(push)
            raise

    async def _planned(self, snapshot: PushSnapshot, sources: Sources) -> Planned | Outcome:
        """Return the deliveries with their bindings; an outcome if the spec is invalid."""
        push = snapshot.push
        stores = () if isinstance(snapshot.stores, NoChoice) else snapshot.stores
        try:
            templates = await self._deps.templates.read(push.spec.template, push.metadata.namespace)
            rendered = await self._rendered(push, sources.found, templates.objects)
            wanted = await self._wanted(snapshot, stores, rendered)
            return await self._deps.settlement.plan(push, wanted, templates.versions)
        except EntryError as problem:
            return _failed(problem.path, "InvalidSpec", str(problem), problem.remote_key)
        except (TemplateMissingError, RenderError) as problem:
            return _failed("spec.template", "TemplateError", str(problem), step=Step.RENDER_PUSH)

    async def _rendered(
        self, push: PushSecret, sources: Sequence[Source], objects: TemplateObjects
    ) -> tuple[Source, ...]:
        """Return the sources after their template."""
        template = push.spec.template
        if template is None:
            return tuple(sources)
        work = partial(render_pushes, template, [source.values for source in sources], objects=objects)
        made = await self._deps.rendering.run(work, push.metadata.namespace)
        return tuple(map(templated, sources, made))

    async def _wanted(
        self, snapshot: PushSnapshot, stores: Sequence[Chosen], sources: Sequence[Source]
    ) -> tuple[Delivery, ...]:
        """Return the deliveries of each store. Raises EntryError."""
        push = snapshot.push
        work = partial(select_all, selections(push, stores, sources))
        selected = await self._deps.selecting.run(work, push.metadata.namespace)
        return tuple(deliveries(push, stores, sources=sources, known=self._known(snapshot), selected=selected))

    def _known(self, snapshot: PushSnapshot) -> Mapping[Place, Known]:
        """Return the values that need not be written again.

        An edit of the object writes everything again, but only once: our cache may lack the status that records it.
        """
        push, last = snapshot.push, snapshot.remembered
        pushed_before = not changed(push) or (last is not None and last.version == current_version(push))
        replaces = push.spec.update_policy != IF_NOT_EXISTS
        return self._deps.pushes.values(push) if pushed_before or not replaces else NOTHING_KNOWN

    async def _without_source(self, push: PushSecret, error: SourceGoneError) -> Outcome:
        """Return the outcome for a missing source.

        A selector that matches nothing is not an error; a missing named Secret is one.
        """
        if (settled := await self._deps.settlement.without_source(push)) is not None:
            outcome, removal = settled
            self._depend(push, removal.depends_on)
            return outcome
        self._depend(push)
        source = push.spec.selector.secret
        if source is not None and not source.name:
            return Synced(note="no Secret matches spec.selector.secret.selector: nothing is pushed")
        failure = Failure("spec.selector", error.reason, error.message, waits=error.waits)
        return Failed(Step.READ_SOURCE, (failure,))

    # --- deletion -----------------------------------------------------------------------------------------------------

    async def _finish(self, push: PushSecret, ctx: ReconcileContext) -> Result:
        """Finish a PushSecret that is being deleted: remove its values, then its finalizer."""
        known = self._deps.memory.known(push.key, push.metadata.uid)
        if known is None or not known.emptied:
            failed, removal = await self._deps.settlement.finish(push)
            self._depend(push, removal.depends_on)
            if failed is not None:
                return await self._say(push, failed, self._deps.clock.now(), ctx)
            self._deps.reporter.publish_events(push.metadata, *events_of(removal))
            # From now on, values in its places belong to other PushSecrets.
            self._deps.memory.of(push.key, push.metadata.uid).emptied = True
        return await self._deps.finalizer.release(push)

    async def _gone(self, key: ObjectKey) -> Result:
        """Clean up after a deleted object, including values that were pushed and never recorded."""
        if (push := self._deps.settlement.astray(key)) is not None:
            try:
                # An object of the same name would own the same values.
                await self._deps.client.get(_KIND, key)
            except NotServed:
                return Backoff(f"{_UNREADABLE}: {_NOT_SERVED}")
            except NotFound:
                if isinstance(then := await self._undo(push), Backoff):
                    return then
            except ApiError as problem:
                return Backoff(f"{_UNREADABLE}: {api_error_text(problem)}")
        self._deps.memory.forget(key)
        return Done()

    async def _undo(self, push: PushSecret) -> Result:
        """Delete values of an object that another operator deleted while we were pushing."""
        removal = await self._deps.settlement.undo(push)
        self._deps.reporter.publish_events(push.metadata, *events_of(removal))
        return Backoff(Step.DELETE_PUSHED.summary) if removal.failures else Done()

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _report(self, snapshot: PushSnapshot, outcome: Outcome, ctx: ReconcileContext) -> Result:
        if isinstance(outcome, Synced) and snapshot.interval_note:
            outcome = replace(outcome, remarks=(*outcome.remarks, snapshot.interval_note))
        return await self._say(snapshot.push, outcome, snapshot.now, ctx)

    async def _say(self, push: PushSecret, outcome: Outcome, now: datetime, ctx: ReconcileContext) -> Result:
        """Report the outcome once."""
        if isinstance(outcome, Failed) and outcome.records is None and self._deps.pushes.unrecorded(push):
            outcome = replace(outcome, records=self._deps.settlement.ours(push))
        within, clashes = ctx.longest_wait(interval_of(push)), self._deps.settlement.clashes(push, outcome)
        fed_by = self._deps.fed_by(push.key)
        told = await self._deps.reporter.publish(
            push, lambda push: report_of(push, outcome, now, retry_within=within, clashes=clashes, fed_by=fed_by)
        )
        if isinstance(told.problem, NotServed):
            return Backoff(f"status not written: {_NOT_SERVED}")
        if isinstance(told.problem, NotFound):
            return await self._undo(push)
        if told.problem is not None and isinstance(outcome, Synced):
            self._deps.pending.not_reported(push, outcome)
        if told.problem is None:
            self._deps.pending.reported(push)
            self._on_record(push, outcome)
        return told.result

    def _on_record(self, push: PushSecret, outcome: Outcome) -> None:
        """Update the memory after the status was written: facts of a lost write must be reported again."""
        match outcome:
            case Synced(learned=learned):
                self._deps.pushes.recorded(push, learned)
            case Failed():
                self._deps.pushes.recorded(push, None)
            case SourceDeleted():
                self._deps.pushes.clear(push)
            case _:
                pass

    def _depend(self, push: PushSecret, *on: Iterable[Dependency]) -> None:
        """Record the dependencies of the PushSecret; a change of one wakes it."""
        found = {dependency for each in on for dependency in each}
        found |= set(named_stores(push)) | set(template_sources(push.spec.template, push.metadata.namespace))
        self._deps.dependencies.record(Dependant(Subsystem.PUSH_SECRET, push.key), found)


def _state_owner(push: PushSecret) -> StateOwner:
    return StateOwner(PUSH_SECRET.resource(), push.metadata, _STATE_ENTRIES)


def _failed(path: str, reason: str, message: str, remote_key: str = "", *, step: Step = Step.PUSH) -> Failed:
    return Failed(step, (Failure(path, reason, message, remote_key, retry=RetryClass.BACKOFF),))
