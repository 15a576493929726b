"""One PushSecret: gather, decide, read the source, select, push, remove what is stale, report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.pushsecret import records
from eso_operator.pushsecret.decide import BEFORE_PUSH, BEFORE_SOURCE, NOT_PUSHED, first_stop
from eso_operator.pushsecret.deliveries import deliveries, templated
from eso_operator.pushsecret.finalizer import Finalizer
from eso_operator.pushsecret.gather import Gatherer
from eso_operator.pushsecret.generated import GeneratedStates
from eso_operator.pushsecret.memory import NOTHING_KNOWN, Known, LastPush, Memory, Place
from eso_operator.pushsecret.outcome import (
    Collided,
    Failed,
    Outcome,
    Skipped,
    SourceDeleted,
    Synced,
    orphaned,
    report_of,
)
from eso_operator.pushsecret.plan import DELETE, IF_NOT_EXISTS, Guarantee
from eso_operator.pushsecret.push import Delivery, Pusher, StoreResult
from eso_operator.pushsecret.refresh import changed, current_version
from eso_operator.pushsecret.removal import Remover, Urgency
from eso_operator.pushsecret.select import EntryError
from eso_operator.pushsecret.snapshot import NoChoice, Snapshot
from eso_operator.pushsecret.sources import Source, SourceError, SourceGoneError, SourceReader, Sources, missed
from eso_operator.pushsecret.triggers import named_stores
from eso_operator.stores.target import Connection
from eso_operator.sync.dependencies import Dependant, Dependencies, Dependency
from eso_operator.sync.fetch import Failure
from eso_operator.sync.reporting import News
from eso_operator.sync.templates import TemplateMissingError, read_templates, template_sources
from eso_operator.telemetry.objects import ObjectSeries, Subsystem
from eso_render.errors import RenderError
from eso_render.scopes import RenderText
from eso_wire.errors import RetryClass
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Retry
from kuberun.controller import Outcome as Then
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder
from kuberun.meta import ObjectKey
from kuberun.status import write_status

_log = structlog.get_logger(__name__)

_KIND: Final = PUSH_SECRET.kind()
_NO_SOURCE: Final = "could not get source secret"
_NOT_DELETED: Final = "could not delete secret"


@dataclass(frozen=True, slots=True)
class Outside:
    """What the reconciler works with."""

    client: Client
    clock: Clock
    sources: SourceReader
    pusher: Pusher
    remover: Remover
    states: GeneratedStates
    finalizer: Finalizer
    memory: Memory
    dependencies: Dependencies
    forget_connection: Callable[[Connection], None]
    series: ObjectSeries
    recorder: EventRecorder
    render: RenderText


class PushSecretReconciler:
    """Keeps backends as PushSecrets want them."""

    def __init__(self, gatherer: Gatherer, outside: Outside) -> None:
        self._gatherer = gatherer
        self._outside = outside

    async def reconcile(self, key: ObjectKey) -> Then:
        """Make the stores of one PushSecret hold what its source holds."""
        push = self._gatherer.find(key)
        if push is None:
            return self._forget(key)
        started = self._outside.clock.monotonic()
        if (waiting := await self._outside.finalizer.prepare(push)) is not None:
            return waiting
        if push.metadata.deletion_timestamp is not None:
            return await self._finish(push)
        snapshot = await self._gatherer.gather(push, self._outside.clock.now())
        outcome = first_stop(snapshot, BEFORE_SOURCE) or await self._push(snapshot)
        then = await self._report(snapshot, outcome)
        self._outside.series.reconciled(Subsystem.PUSH_SECRET, push.metadata, self._outside.clock.monotonic() - started)
        return then

    # --- pushing ------------------------------------------------------------------------------------------------------

    async def _push(self, snapshot: Snapshot) -> Outcome:
        """Source, stores, entries, values. What fails is an outcome."""
        push = snapshot.push
        try:
            sources = await self._outside.sources.read(push)
        except SourceGoneError as error:
            return await self._without_source(snapshot, error)
        except SourceError as error:
            self._depend(push, missed(error))
            failure = Failure("spec.selector", error.reason, error.message, "", "", error.retry, error.retry_after)
            return Failed(_NO_SOURCE, (failure,))
        try:
            return await self._from(snapshot, sources)
        except Conflict:
            return Collided("an object changed meanwhile")
        except ApiError as problem:
            return _failed("spec", "ApiServer", f"the API server answered {problem.reason or problem.code}")

    async def _from(self, snapshot: Snapshot, sources: Sources) -> Outcome:
        push = snapshot.push
        kept = await self._outside.states.keep(push, sources.made)
        planned = first_stop(snapshot, BEFORE_PUSH) or await self._deliveries(snapshot, sources)
        if not isinstance(planned, list):
            await self._outside.states.discard(kept)
            self._depend(push, sources.depends_on)
            return planned
        results = await self._deliver(planned)
        self._depend(push, sources.depends_on, *(result.depends_on for result in results))
        outcome = await self._settle(snapshot, sources, results)
        if not any(result.landed for result in results):
            await self._outside.states.discard(kept)
        elif isinstance(outcome, Synced) and not any(result.left for result in results):
            await self._outside.states.retire(kept)
        return outcome

    async def _deliveries(self, snapshot: Snapshot, sources: Sources) -> list[Delivery] | Outcome:
        push = snapshot.push
        stores = () if isinstance(snapshot.stores, NoChoice) else snapshot.stores
        try:
            rendered = await self._rendered(push, sources.found)
            return list(deliveries(push, stores, rendered, self._known(snapshot)))
        except EntryError as problem:
            return _failed(problem.path, "InvalidSpec", str(problem), problem.remote_key)
        except (TemplateMissingError, RenderError) as problem:
            return _failed("spec.template", "TemplateError", str(problem))

    def _known(self, snapshot: Snapshot) -> Mapping[Place, Known]:
        """What need not be written again.

        An edit of the object writes everything again, but only once: the status that says so may not be in our cache.
        """
        push, last = snapshot.push, snapshot.remembered
        pushed_before = not changed(push) or (last is not None and last.version == current_version(push))
        replaces = push.spec.update_policy != IF_NOT_EXISTS
        return self._outside.memory.values(push) if pushed_before or not replaces else NOTHING_KNOWN

    async def _rendered(self, push: PushSecret, found: Sequence[Source]) -> list[Source]:
        templates = await read_templates(self._outside.client, push.spec.template, push.metadata.namespace)
        return [templated(push, source, templates.objects, self._outside.render) for source in found]

    async def _deliver(self, planned: Sequence[Delivery]) -> list[StoreResult]:
        """Every store on its own: one that fails does not hold up the others."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._outside.pusher.push(delivery)) for delivery in planned]
        return [task.result() for task in tasks]

    async def _settle(self, snapshot: Snapshot, sources: Sources, results: Sequence[StoreResult]) -> Outcome:
        """Remove what is stale, once everything else is in place."""
        push = snapshot.push
        new = {result.store.key: result.pushed for result in results if result.pushed}
        old = records.known(push.status.synced_push_secrets, push.status.synced_versions)
        values = {place: known for result in results for place, known in result.known.items()}
        if failures := tuple(failure for result in results for failure in result.failures):
            self._outside.memory.partly(push, values)
            return Failed(NOT_PUSHED, failures, records.union(new, old))
        removed = 0
        news: tuple[News, ...] = ()
        if push.spec.deletion_policy == DELETE and (unwanted := records.stale(new, old)):
            removal = await self._outside.remover.remove(push, unwanted, Urgency.STALE)
            removed, news = removal.removed, orphaned(removal.orphans)
            if removal.failures:
                self._outside.memory.partly(push, values)
                left = records.union(new, records.without(old, removal.gone))
                return Failed(_NOT_DELETED, tuple(removal.failures), left, news)
        renew = sources.renew_within
        renew_at = snapshot.now + timedelta(seconds=renew) if renew is not None else None
        last = LastPush(snapshot.now, current_version(push), sources.marks, snapshot.store_marks, renew_at)
        self._outside.memory.pushed(push, last, values)
        return Synced(
            records=new,
            existing=tuple(f"{result.store}: {key}" for result in results for key in result.existing),
            weaker=tuple(str(result.store) for result in results if result.guarantee is Guarantee.CHECKED),
            wrote=bool(removed or sum(result.written for result in results)),
            renew_within=renew,
            news=news,
        )

    async def _without_source(self, snapshot: Snapshot, error: SourceGoneError) -> Outcome:
        """The source is not there: delete what came from it, if the policy says so."""
        push = snapshot.push
        self._depend(push)
        self._outside.memory.forget(push.key)
        old = records.known(push.status.synced_push_secrets, push.status.synced_versions)
        if push.spec.deletion_policy == DELETE and old:
            removal = await self._outside.remover.remove(push, records.stale({}, old), Urgency.STALE)
            self._depend(push, removal.depends_on)
            news = orphaned(removal.orphans)
            if removal.failures:
                return Failed(_NOT_DELETED, tuple(removal.failures), records.without(old, removal.gone), news)
            return SourceDeleted(news)
        source = push.spec.selector.secret
        if source is not None and not source.name:
            return Synced(note="no Secret matches spec.selector.secret.selector: nothing is pushed")
        return Failed(_NO_SOURCE, (Failure("spec.selector", error.reason, error.message),))

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _finish(self, push: PushSecret) -> Then:
        """Being deleted: first what it pushed, then itself."""
        old = records.known(push.status.synced_push_secrets, push.status.synced_versions)
        removal = await self._outside.remover.remove(push, records.stale({}, old), Urgency.FINAL)
        self._depend(push, removal.depends_on)
        news = orphaned(removal.orphans)
        if removal.failures:
            left = records.without(old, removal.gone)
            failed = Failed(_NOT_DELETED, tuple(removal.failures), left, news)
            return await self._say(push, failed, self._outside.clock.now())
        for each in news:
            self._outside.recorder.record(PUSH_SECRET.resource(), push.metadata, each.type, each.reason, each.message)
        return await self._outside.finalizer.release(push)

    # --- telling ------------------------------------------------------------------------------------------------------

    async def _report(self, snapshot: Snapshot, outcome: Outcome) -> Then:
        then = await self._say(snapshot.push, outcome, snapshot.now)
        if not isinstance(outcome, Skipped):
            _log.info("push secret reconciled", push_secret=str(snapshot.push.key), outcome=type(outcome).__name__)
        return then

    async def _say(self, push: PushSecret, outcome: Outcome, now: datetime) -> Then:
        """Say what came of it, once: status, events, metrics."""
        report = report_of(push, outcome, now)
        try:
            if report.flush:
                await write_status(self._outside.client, _KIND, push.metadata, old=push.status, new=report.status)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the PushSecret changed meanwhile")
        except ApiError as problem:
            return Retry(f"status not written: the API server answered {problem.reason or problem.code}")
        for news in report.news:
            self._outside.recorder.record(PUSH_SECRET.resource(), push.metadata, news.type, news.reason, news.message)
        self._outside.series.conditions(Subsystem.PUSH_SECRET, push.metadata, report.status.conditions)
        return report.then

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
        return Done()


def _failed(path: str, reason: str, message: str, remote_key: str = "") -> Failed:
    return Failed(NOT_PUSHED, (Failure(path, reason, message, remote_key, retry=RetryClass.BACKOFF),))
