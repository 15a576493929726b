"""One ExternalSecret: gather, decide, fetch, plan, apply, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.externalsecret.cleanup import Cleanup
from eso_operator.externalsecret.decide import first_stop
from eso_operator.externalsecret.gather import Gatherer
from eso_operator.externalsecret.outcome import (
    DELETED,
    MISSING,
    Collided,
    Failed,
    Outcome,
    Report,
    Skipped,
    Stalled,
    Synced,
    report_of,
)
from eso_operator.externalsecret.snapshot import Snapshot
from eso_operator.externalsecret.templates import TemplateReader, TemplateSourceError
from eso_operator.sync.dependencies import Dependant, Dependencies
from eso_operator.sync.fetch import Fetched, Fetcher
from eso_operator.sync.generate import GeneratorLedger
from eso_operator.sync.reporting import News
from eso_operator.targets.changes import Create, Keep, Refuse, Untouched, Update
from eso_operator.targets.target import Applied, Target
from eso_operator.telemetry.objects import ObjectSeries, Subsystem
from eso_render.errors import RenderError
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Retry
from kuberun.controller import Outcome as Then
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder, EventType
from kuberun.meta import ObjectKey
from kuberun.status import write_status

_log = structlog.get_logger(__name__)

_KIND: Final = EXTERNAL_SECRET.kind()
_NO_DATA: Final = "could not get secret data from provider"
_NOT_WRITTEN: Final = "could not update secret"


@dataclass(frozen=True, slots=True)
class Outside:
    """What the reconciler works with."""

    client: Client
    clock: Clock
    fetcher: Fetcher
    ledger: GeneratorLedger
    templates: TemplateReader
    cleanup: Cleanup
    dependencies: Dependencies
    series: ObjectSeries
    recorder: EventRecorder
    target_of: Callable[[ExternalSecret], Target]


class ExternalSecretReconciler:
    """Keeps targets as their ExternalSecrets want them."""

    def __init__(self, gatherer: Gatherer, outside: Outside) -> None:
        self._gatherer = gatherer
        self._outside = outside

    async def reconcile(self, key: ObjectKey) -> Then:
        """Make the target of one ExternalSecret match its backend."""
        es = self._gatherer.find(key)
        if es is None:
            return self._forget(key)
        started = self._outside.clock.monotonic()
        if es.metadata.deletion_timestamp is not None:
            return await self._outside.cleanup.finish(es, self._outside.target_of(es))
        if (waiting := await self._outside.cleanup.prepare(es)) is not None:
            return waiting
        snapshot = await self._gatherer.gather(es, self._outside.target_of(es), self._outside.clock.now())
        outcome = first_stop(snapshot) or await self._sync(snapshot)
        then = await self._report(snapshot, outcome)
        self._outside.series.synced(es.metadata)
        self._outside.series.reconciled(
            Subsystem.EXTERNAL_SECRET, es.metadata, self._outside.clock.monotonic() - started
        )
        return then

    async def _sync(self, snapshot: Snapshot) -> Outcome:
        """Fetch, plan, apply. What fails is an outcome."""
        fetched = await self._outside.fetcher.fetch(snapshot.es)
        self._outside.dependencies.record(_dependant(snapshot.es), fetched.depends_on)
        if fetched.failures:
            await self._outside.ledger.roll_back(fetched.made)
            return Failed(_NO_DATA, failures=fetched.failures)
        try:
            await self._outside.ledger.commit(snapshot.es, fetched.made)
            return await self._settle(snapshot, fetched)
        except Conflict:
            return Collided("the target changed meanwhile")
        except TemplateSourceError as problem:
            return Failed(_NOT_WRITTEN, str(problem))
        except RenderError as problem:
            return Failed(_NOT_WRITTEN, str(problem))
        except ApiError as problem:
            return Failed(_NOT_WRITTEN, f"the API server refused: {problem.reason or problem.code}: {problem.message}")

    async def _settle(self, snapshot: Snapshot, fetched: Fetched) -> Outcome:
        es, target = snapshot.es, self._outside.target_of(snapshot.es)
        missing = _missing_news(fetched)
        if not fetched.values and (emptied := await self._without_values(es, target, missing)) is not None:
            return emptied
        orphans = await self._outside.cleanup.delete_orphans(es, target)
        objects = await self._outside.templates.read(es)
        change = await target.plan(es, fetched.values, objects)
        match change:
            case Create() | Update():
                applied = await target.apply(es, change)
                news = (*missing, *orphans, _written(es, applied))
                return Synced(
                    news=news, changed=True, binding=_binding(es, applied.name), refresh_within=fetched.refresh_within
                )
            case Keep(why=Untouched.MISSING):
                return Synced(_absent_target(es), MISSING, missing)
            case Keep():
                name = "" if change.why is Untouched.POLICY_NONE else target_of_name(es)
                binding = _binding(es, name) if name else ""
                return Synced(news=(*missing, *orphans), binding=binding, refresh_within=fetched.refresh_within)
            case Refuse(why=why, by=by):
                return Stalled(why.value, by)
            case _:
                assert_never(change)

    async def _without_values(self, es: ExternalSecret, target: Target, news: tuple[News, ...]) -> Outcome | None:
        """The backend has nothing: what the deletion policy says. None means: go on with an empty target."""
        match es.spec.target.deletion_policy:
            case "Delete":
                if es.spec.target.creation_policy != "Owner":
                    return Stalled("could not delete secret", "deletionPolicy Delete needs creationPolicy Owner")
                text = "secret deleted due to DeletionPolicy=Delete"
                deleted = await target.delete(es)
                told = (*news, News(EventType.NORMAL, "Deleted", text)) if deleted else news
                return Synced(text, DELETED, told, changed=deleted)
            case "Retain":
                return Synced("secret retained due to DeletionPolicy=Retain", news=news)
            case _:
                return None

    async def _report(self, snapshot: Snapshot, outcome: Outcome) -> Then:
        """Say what came of it, once: status, events, metrics."""
        es = snapshot.es
        report = report_of(es, outcome, snapshot.now)
        self._gatherer.remember(es, outcome, snapshot.now)
        if report.failed:
            self._outside.series.failed(es.metadata)
        try:
            await self._write(es, report)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the ExternalSecret changed meanwhile")
        except ApiError as problem:
            return Retry(f"status not written: the API server answered {problem.reason or problem.code}")
        for news in report.news:
            self._outside.recorder.record(EXTERNAL_SECRET.resource(), es.metadata, news.type, news.reason, news.message)
        self._outside.series.conditions(Subsystem.EXTERNAL_SECRET, es.metadata, report.status.conditions)
        if not isinstance(outcome, Skipped):
            _log.info("external secret reconciled", external_secret=str(es.key), outcome=type(outcome).__name__)
        return report.then

    async def _write(self, es: ExternalSecret, report: Report) -> None:
        if report.flush:
            await write_status(self._outside.client, _KIND, es.metadata, old=es.status, new=report.status)

    def _forget(self, key: ObjectKey) -> Then:
        """Gone: nothing of it stays here."""
        self._outside.series.forget(Subsystem.EXTERNAL_SECRET, key)
        self._outside.dependencies.forget(Dependant(Subsystem.EXTERNAL_SECRET, key))
        self._gatherer.forget(key)
        return Done()


def _dependant(es: ExternalSecret) -> Dependant:
    return Dependant(Subsystem.EXTERNAL_SECRET, es.key)


def target_of_name(es: ExternalSecret) -> str:
    return es.spec.target.name or es.metadata.name


def _binding(es: ExternalSecret, name: str) -> str:
    return name if es.spec.target.manifest is None else ""


def _written(es: ExternalSecret, applied: Applied) -> News:
    manifest = es.spec.target.manifest
    text = applied.done.value if manifest is None else f"{applied.done.name.title()} {manifest.kind} {applied.name}"
    return News(EventType.NORMAL, applied.done.name.title(), text)


def _absent_target(es: ExternalSecret) -> str:
    what = "secret" if es.spec.target.manifest is None else "resource"
    return f"{what} will not be created due to CreationPolicy=Merge"


def _missing_news(fetched: Fetched) -> tuple[News, ...]:
    return tuple(
        News(
            EventType.NORMAL,
            "MissingProviderSecret",
            f"secret does not exist at provider using {missing.path}"
            + (f" (key={missing.remote_key})" if missing.remote_key else ""),
        )
        for missing in fetched.missing
    )
