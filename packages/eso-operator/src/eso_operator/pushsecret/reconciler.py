"""One PushSecret: gather, decide, read the source, select, settle, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.pushsecret.decide import BEFORE_PUSH, BEFORE_SOURCE, NOT_PUSHED, first_stop
from eso_operator.pushsecret.deliveries import deliveries, selections, templated
from eso_operator.pushsecret.finalizer import Finalizer
from eso_operator.pushsecret.gather import Gatherer
from eso_operator.pushsecret.memory import NOTHING_KNOWN, Memory
from eso_operator.pushsecret.outcome import (
    ORPHANED,
    Collided,
    Failed,
    Outcome,
    SourceDeleted,
    Synced,
    report_of,
)
from eso_operator.pushsecret.places import Known, Place
from eso_operator.pushsecret.plan import IF_NOT_EXISTS
from eso_operator.pushsecret.push import Delivery
from eso_operator.pushsecret.records import recorded, union
from eso_operator.pushsecret.refresh import changed, current_version, interval_of
from eso_operator.pushsecret.select import EntryError, select_all
from eso_operator.pushsecret.settlement import NOT_DELETED, Planned, Settlement, news_of
from eso_operator.pushsecret.snapshot import Chosen, NoChoice, Snapshot
from eso_operator.pushsecret.sources import Source, SourceError, SourceGoneError, SourceReader, Sources, missed
from eso_operator.pushsecret.triggers import named_stores
from eso_operator.stores.target import Connection
from eso_operator.sync.dependencies import Dependant, Dependencies, Dependency
from eso_operator.sync.due import NotDue
from eso_operator.sync.fetch import Failure
from eso_operator.sync.generate import GeneratorLedger, StateOwner
from eso_operator.sync.homes import Homes
from eso_operator.sync.ledger import PUSH_ENTRY
from eso_operator.sync.reporting import News
from eso_operator.sync.templates import TemplateMissingError, read_templates, template_sources
from eso_operator.telemetry.objects import ObjectSeries, Subsystem
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.secret import render_pushes
from eso_render.sources import TemplateObjects
from eso_wire.errors import RetryClass
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Retry, longest_wait
from kuberun.controller import Outcome as Then
from kuberun.errors import ApiError, Conflict, NotFound, NotServed
from kuberun.events import EventRecorder
from kuberun.meta import ObjectKey
from kuberun.status import OwnWrites, status_patch, write_status

_log = structlog.get_logger(__name__)

_KIND: Final = PUSH_SECRET.kind()
_NO_SOURCE: Final = "could not get source secret"
_STATE_ENTRIES: Final = (PUSH_ENTRY,)


@dataclass(frozen=True, slots=True)
class Outside:
    """What the reconciler works with."""

    client: Client
    clock: Clock
    sources: SourceReader
    settlement: Settlement
    ledger: GeneratorLedger
    finalizer: Finalizer
    memory: Memory
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    series: ObjectSeries
    recorder: EventRecorder
    homes: Homes
    rendering: Rendering
    """Of templates."""
    selecting: Rendering
    """Of the templates that rename keys: their delimiters are no setting."""


class PushSecretReconciler:
    """Keeps backends as PushSecrets want them."""

    def __init__(self, gatherer: Gatherer, outside: Outside) -> None:
        self._gatherer = gatherer
        self._outside = outside
        self._own = OwnWrites()
        # Of objects on their way out, by uid: what is in their places from now on is somebody else's.
        self._emptied: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Then:
        """Make the stores of one PushSecret hold what its source holds."""
        push = self._gatherer.find(key)
        if push is None:
            return await self._gone(key)
        started = self._outside.clock.monotonic()
        try:
            push = await self._as_we_left_it(push)
        except NotFound:
            return Done()
        except ApiError as problem:
            return Retry(f"it cannot be read: the API server answered {problem.reason or problem.code}")
        if (waiting := await self._outside.finalizer.prepare(push)) is not None:
            return waiting
        if push.metadata.deletion_timestamp is not None:
            return await self._finish(push)
        snapshot = await self._gatherer.gather(push, self._outside.clock.now())
        outcome = first_stop(snapshot, BEFORE_SOURCE)
        if outcome is None:
            snapshot, outcome = await self._push(snapshot)
        then = await self._report(snapshot, outcome)
        self._outside.series.reconciled(Subsystem.PUSH_SECRET, push.metadata, self._outside.clock.monotonic() - started)
        return then

    async def _as_we_left_it(self, push: PushSecret) -> PushSecret:
        """With our own last word on it: what is ours, and whether the last push failed, is known from the status.

        An older status would forget what we pushed, or take back a retry that has been promised.
        """
        return await self._outside.client.get(_KIND, push.key) if self._own.behind(push.metadata) else push

    # --- pushing ------------------------------------------------------------------------------------------------------

    async def _push(self, snapshot: Snapshot) -> tuple[Snapshot, Outcome]:
        """Source, stores, entries, values. What fails is an outcome. The snapshot has the object as we left it."""
        push = snapshot.push
        if push.spec.selector.generator_ref is not None and (stop := first_stop(snapshot, BEFORE_PUSH)) is not None:
            self._depend(push)
            return snapshot, stop  # nothing is made that could not go anywhere
        try:
            sources = await self._outside.sources.read(push)
        except SourceGoneError as error:
            return snapshot, await self._without_source(push, error)
        except SourceError as error:
            self._depend(push, missed(error))
            failure = Failure("spec.selector", error.reason, error.message, "", "", error.retry, error.retry_after)
            return snapshot, Failed(_NO_SOURCE, (failure,))
        try:
            return await self._from(snapshot, sources)
        except Conflict:
            return snapshot, Collided("an object changed meanwhile")
        except ApiError as problem:
            return snapshot, _failed("spec", "ApiServer", f"the API server answered {problem.reason or problem.code}")

    async def _from(self, snapshot: Snapshot, sources: Sources) -> tuple[Snapshot, Outcome]:
        """State of generated values is on record before the first push, and until every store has the next ones."""
        push, ledger = snapshot.push, self._outside.ledger
        kept = await ledger.keep(StateOwner(PUSH_SECRET.resource(), push.metadata, _STATE_ENTRIES), sources.made)
        try:
            planned = first_stop(snapshot, BEFORE_PUSH) or await self._planned(snapshot, sources)
            if isinstance(planned, Planned):
                snapshot = replace(snapshot, push=self._gatherer.paced(await self._announced(push, planned)))
        except ApiError:
            await ledger.discard(kept)
            raise
        if not isinstance(planned, Planned):
            await ledger.discard(kept)
            self._depend(push, sources.depends_on)
            return snapshot, planned
        settled = await self._outside.settlement.push(snapshot, sources, planned)
        self._depend(push, sources.depends_on, settled.depends_on)
        if not any(result.landed or result.unsure for result in settled.results):
            await ledger.discard(kept)
        elif isinstance(settled.outcome, Synced) and not any(result.left for result in settled.results):
            await ledger.retire(kept)
        return snapshot, settled.outcome

    async def _announced(self, push: PushSecret, planned: Planned) -> PushSecret:
        """The object with everything on record that is about to be pushed and will have to be deleted some day."""
        new = self._outside.settlement.announce(push, planned)
        if not new:
            return push
        entries, versions = recorded(union(new, planned.ours))
        status = msgspec.structs.replace(push.status, synced_push_secrets=entries, synced_versions=versions)
        if (patch := status_patch(push.metadata, push.status, status)) is None:
            return push
        try:
            written = await self._outside.client.merge_patch(_KIND, push.key, patch, subresource="status")
        except Conflict:
            self._outside.settlement.withdraw(push)
            raise
        self._own.wrote(push.metadata)
        return written

    async def _planned(self, snapshot: Snapshot, sources: Sources) -> Planned | Outcome:
        """What goes where, and by which way; an outcome if the spec does not say so."""
        push = snapshot.push
        stores = () if isinstance(snapshot.stores, NoChoice) else snapshot.stores
        try:
            templates = await read_templates(self._outside.client, push.spec.template, push.metadata.namespace)
            rendered = await self._rendered(push, sources.found, templates.objects)
            wanted = await self._wanted(snapshot, stores, rendered)
            bound = await self._outside.settlement.bind(wanted)
            return Planned(bound, self._outside.settlement.ours(push), templates.versions)
        except EntryError as problem:
            return _failed(problem.path, "InvalidSpec", str(problem), problem.remote_key)
        except (TemplateMissingError, RenderError) as problem:
            return _failed("spec.template", "TemplateError", str(problem))

    async def _rendered(
        self, push: PushSecret, sources: Sequence[Source], objects: TemplateObjects
    ) -> tuple[Source, ...]:
        """The sources as the template makes them."""
        template = push.spec.template
        if template is None:
            return tuple(sources)
        work = partial(render_pushes, template, [source.values for source in sources], objects=objects)
        made = await self._outside.rendering.run(work, push.metadata.namespace)
        return tuple(map(templated, sources, made))

    async def _wanted(
        self, snapshot: Snapshot, stores: Sequence[Chosen], sources: Sequence[Source]
    ) -> tuple[Delivery, ...]:
        """What goes to each store. Raises EntryError."""
        push = snapshot.push
        work = partial(select_all, selections(push, stores, sources))
        selected = await self._outside.selecting.run(work, push.metadata.namespace)
        return tuple(deliveries(push, stores, sources=sources, known=self._known(snapshot), selected=selected))

    def _known(self, snapshot: Snapshot) -> Mapping[Place, Known]:
        """What need not be written again.

        An edit of the object writes everything again, but only once: the status that says so may not be in our cache.
        """
        push, last = snapshot.push, snapshot.remembered
        pushed_before = not changed(push) or (last is not None and last.version == current_version(push))
        replaces = push.spec.update_policy != IF_NOT_EXISTS
        return self._outside.memory.values(push) if pushed_before or not replaces else NOTHING_KNOWN

    async def _without_source(self, push: PushSecret, error: SourceGoneError) -> Outcome:
        """The source is not there. Selecting nothing is no error; missing what is named is one."""
        if (settled := await self._outside.settlement.without_source(push)) is not None:
            outcome, removal = settled
            self._depend(push, removal.depends_on)
            return outcome
        self._depend(push)
        source = push.spec.selector.secret
        if source is not None and not source.name:
            return Synced(note="no Secret matches spec.selector.secret.selector: nothing is pushed")
        return Failed(_NO_SOURCE, (Failure("spec.selector", error.reason, error.message),))

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _finish(self, push: PushSecret) -> Then:
        """Being deleted: first what it pushed, then itself."""
        if self._emptied.get(push.key) != push.metadata.uid:
            failed, removal = await self._outside.settlement.finish(push)
            self._depend(push, removal.depends_on)
            if failed is not None:
                return await self._say(push, failed, self._outside.clock.now())
            self._tell(push, news_of(removal))
            self._emptied[push.key] = push.metadata.uid
        return await self._outside.finalizer.release(push)

    async def _gone(self, key: ObjectKey) -> Then:
        """Nothing of it stays here, nor what was pushed for it and never got on record."""
        if (push := self._outside.settlement.astray(key)) is not None:
            try:
                # One of the same name would be the owner of the same values.
                await self._outside.client.get(_KIND, key)
            except NotServed:
                return Retry("it cannot be read: the API server does not know PushSecrets now")
            except NotFound:
                if isinstance(then := await self._undo(push), Retry):
                    return then
            except ApiError as problem:
                return Retry(f"it cannot be read: the API server answered {problem.reason or problem.code}")
        return self._forget(key)

    async def _undo(self, push: PushSecret) -> Then:
        """It went while we were pushing, by the hand of another operator that could not know of it."""
        removal = await self._outside.settlement.undo(push)
        self._tell(push, news_of(removal))
        return Retry(NOT_DELETED) if removal.failures else Done()

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _report(self, snapshot: Snapshot, outcome: Outcome) -> Then:
        if isinstance(outcome, Synced) and snapshot.interval_note:
            outcome = replace(outcome, remarks=(*outcome.remarks, snapshot.interval_note))
        then = await self._say(snapshot.push, outcome, snapshot.now)
        if not isinstance(outcome, NotDue):
            _log.info("push secret reconciled", push_secret=str(snapshot.push.key), outcome=type(outcome).__name__)
        return then

    async def _say(self, push: PushSecret, outcome: Outcome, now: datetime) -> Then:
        """Say what came of it, once: status, events, metrics."""
        if isinstance(outcome, Failed) and outcome.records is None and self._outside.memory.unrecorded(push):
            outcome = replace(outcome, records=self._outside.settlement.ours(push))
        clashes = self._outside.settlement.clashes(push, outcome)
        report = report_of(push, outcome, now, retry_within=longest_wait(interval_of(push)), clashes=clashes)
        try:
            if report.flush and await write_status(
                self._outside.client, _KIND, push.metadata, old=push.status, new=report.status
            ):
                self._own.wrote(push.metadata)
        except NotServed:
            return Retry("status not written: the API server does not know PushSecrets now")
        except NotFound:
            return await self._undo(push)
        except Conflict:
            return Retry("the PushSecret changed meanwhile")
        except ApiError as problem:
            return Retry(f"status not written: the API server answered {problem.reason or problem.code}")
        self._on_record(push, outcome)
        self._tell(push, report.news)
        self._outside.series.conditions(Subsystem.PUSH_SECRET, push.metadata, report.status.conditions)
        return report.then

    def _on_record(self, push: PushSecret, outcome: Outcome) -> None:
        """Not before the status is written: what was lost has to be said again."""
        match outcome:
            case Synced(learned=learned):
                self._outside.memory.recorded(push, learned)
            case Failed():
                self._outside.memory.recorded(push, None)
            case SourceDeleted():
                self._outside.memory.forget(push.key)
            case _:
                pass

    def _tell(self, push: PushSecret, news: Sequence[News]) -> None:
        resource, about = self._outside.homes.subject(PUSH_SECRET.resource(), push.metadata)
        for each in news:
            self._outside.recorder.record(resource, about, each.type, each.reason, each.message)
            if each.reason == ORPHANED:
                _log.warning("remote values stay behind", push_secret=str(push.key), what=each.message)

    def _depend(self, push: PushSecret, *on: Iterable[Dependency]) -> None:
        """What the PushSecret goes by: a change of it is worth a look."""
        found = {dependency for each in on for dependency in each}
        found |= set(named_stores(push)) | set(template_sources(push.spec.template, push.metadata.namespace))
        self._release(self._outside.dependencies.record(Dependant(Subsystem.PUSH_SECRET, push.key), found))

    def _release(self, unused: Iterable[Connection]) -> None:
        for connection in unused:
            self._outside.forget_connection(connection)

    def _forget(self, key: ObjectKey) -> Then:
        """Gone: nothing of it stays here."""
        self._outside.series.forget(Subsystem.PUSH_SECRET, key)
        self._release(self._outside.dependencies.forget(Dependant(Subsystem.PUSH_SECRET, key)))
        self._outside.memory.forget(key)
        self._own.forget(key)
        self._emptied.pop(key, None)
        self._outside.settlement.forget(key)
        return Done()


def _failed(path: str, reason: str, message: str, remote_key: str = "") -> Failed:
    return Failed(NOT_PUSHED, (Failure(path, reason, message, remote_key, retry=RetryClass.BACKOFF),))
