"""Reconciles one PushSecret: gather, decide, read the source, select, settle, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from eso_api.pushsecret import PUSH_SECRET, PendingPush, PushSecret, PushSecretStatus
from eso_operator.controllers.pushsecret.decide import BEFORE_PUSH, BEFORE_SOURCE, first_stop
from eso_operator.controllers.pushsecret.deliveries import deliveries, selections, templated
from eso_operator.controllers.pushsecret.finalizer import Finalizer
from eso_operator.controllers.pushsecret.gather import Gatherer
from eso_operator.controllers.pushsecret.memory import NOTHING_KNOWN, Pushes, PushSecretRecord
from eso_operator.controllers.pushsecret.outcome import (
    Conflicted,
    Failed,
    Outcome,
    SourceDeleted,
    Synced,
    report_of,
)
from eso_operator.controllers.pushsecret.pending import Finished, PendingPushes
from eso_operator.controllers.pushsecret.places import Known, Place
from eso_operator.controllers.pushsecret.plan import IF_NOT_EXISTS
from eso_operator.controllers.pushsecret.push import Delivery
from eso_operator.controllers.pushsecret.records import recorded, union
from eso_operator.controllers.pushsecret.refresh import changed, current_version, interval_of
from eso_operator.controllers.pushsecret.select import EntryError, select_all
from eso_operator.controllers.pushsecret.settlement import Planned, Settlement, events_of
from eso_operator.controllers.pushsecret.snapshot import Chosen, NoChoice, PushSnapshot
from eso_operator.controllers.pushsecret.sources import (
    Source,
    SourceError,
    SourceGoneError,
    SourceReader,
    Sources,
    missed,
)
from eso_operator.controllers.pushsecret.triggers import named_stores
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependant, Dependencies, Dependency
from eso_operator.generators.ledger import PUSH_ENTRY
from eso_operator.generators.values import GeneratorLedger, StateOwner
from eso_operator.memory import Memory
from eso_operator.report.messages import api_error_text
from eso_operator.report.reporter import Reporter
from eso_operator.report.steps import Step
from eso_operator.sources.results import Failure
from eso_operator.sources.templates import TemplateMissingError, TemplateReader, template_sources
from eso_operator.telemetry.subsystems import Subsystem
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.secret import render_pushes
from eso_render.sources import TemplateObjects
from eso_wire.errors import RetryClass
from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.controller import Backoff, Done, Requeue, Result, longest_wait
from kuberun.errors import ApiError, Conflict, NotFound, NotServed

_KIND: Final = PUSH_SECRET.kind()
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

    async def reconcile(self, key: ObjectKey) -> Result:
        """Push the values of the source to the stores of one PushSecret."""
        push = self._gatherer.find(key)
        if push is None:
            return await self._gone(key)
        try:
            # The status lists our values and whether the last push failed. An older status would miss values that we
            # pushed, or cancel a retry that was announced.
            push = await self._deps.reporter.latest(push)
        except ApiError as problem:
            return self._deps.reporter.ended_by(problem, _UNREADABLE)
        self._deps.memory.of(key, push.metadata.uid)
        if (waiting := await self._deps.finalizer.prepare(push)) is not None:
            return waiting
        if push.metadata.deletion_timestamp is not None:
            return await self._finish(push)
        with self._deps.reporter.timed(push.metadata):
            snapshot = await self._gatherer.gather(push, self._deps.clock.now())
            if (then := await self._finish_interrupted(snapshot)) is not None:
                return then
            outcome = first_stop(snapshot, BEFORE_SOURCE)
            if outcome is None:
                snapshot, outcome = await self._push(snapshot)
            return await self._report(snapshot, outcome)

    # --- pushing ------------------------------------------------------------------------------------------------------

    async def _finish_interrupted(self, snapshot: PushSnapshot) -> Result | None:
        """Report a push of generated values that succeeded and was not reported; None if there is none."""
        push, ended = snapshot.push, await self._deps.pending.finish(snapshot)
        match ended:
            case Finished(outcome, at, states):
                if states is not None:
                    await self._deps.ledger.retire_all_but(_state_owner(push), states)
                then = await self._say(push, outcome, at)
                # Time has passed since, and the object may have changed: whether a push is due is decided next.
                return then if isinstance(then, Backoff) else Requeue(_SOON, "an interrupted push was finished")
            case Failed():
                self._depend(push, (ANY_PROVIDER,))
                return await self._report(snapshot, ended)
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
        try:
            sources = await self._deps.sources.read(push)
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
        kept = await ledger.keep(_state_owner(push), sources.made)
        try:
            planned = first_stop(snapshot, BEFORE_PUSH) or await self._planned(snapshot, sources)
            if isinstance(planned, Planned):
                pending = await self._deps.pending.begin(snapshot, sources, planned, kept)
                announced = await self._announced(push, planned, pending)
                snapshot = replace(snapshot, push=self._gatherer.paced(announced), version=current_version(push))
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

    async def _finish(self, push: PushSecret) -> Result:
        """Finish a PushSecret that is being deleted: remove its values, then its finalizer."""
        known = self._deps.memory.known(push.key, push.metadata.uid)
        if known is None or not known.emptied:
            failed, removal = await self._deps.settlement.finish(push)
            self._depend(push, removal.depends_on)
            if failed is not None:
                return await self._say(push, failed, self._deps.clock.now())
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

    async def _report(self, snapshot: PushSnapshot, outcome: Outcome) -> Result:
        if isinstance(outcome, Synced) and snapshot.interval_note:
            outcome = replace(outcome, remarks=(*outcome.remarks, snapshot.interval_note))
        return await self._say(snapshot.push, outcome, snapshot.now)

    async def _say(self, push: PushSecret, outcome: Outcome, now: datetime) -> Result:
        """Report the outcome once."""
        if isinstance(outcome, Failed) and outcome.records is None and self._deps.pushes.unrecorded(push):
            outcome = replace(outcome, records=self._deps.settlement.ours(push))
        within, clashes = longest_wait(interval_of(push)), self._deps.settlement.clashes(push, outcome)
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
        return told.then

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
