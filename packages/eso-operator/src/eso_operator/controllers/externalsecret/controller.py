"""Reconciles ExternalSecrets: reads values from stores and keeps the target up to date.

    watch -> queue -> reconcile:  gather -> checks -> sync -> report

It is queued by changes of itself, of its target, and of its dependencies (`dependencies.wakes`), by changes that
providers announce (`changes.feed`), and by its own timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.base import Reconciler
from eso_operator.controllers.externalsecret.checks import first_stop
from eso_operator.controllers.externalsecret.snapshot import Snapshot, unread
from eso_operator.controllers.externalsecret.status import Failed, Ignored, Outcome, Synced, report_of
from eso_operator.controllers.externalsecret.sync import (
    ExternalSecretDeps,
    SyncError,
    gathered,
    maintain,
    refused,
    sync,
)
from eso_operator.controllers.outcomes import Step
from eso_operator.dependencies.wakes import said_changed
from eso_operator.targets.metadata import TARGET_INDEX, target_name
from kubebase.meta import Object, ObjectKey, ObjectMeta, meta_of
from kuberun import triggers
from kuberun.cache import Cache, Change
from kuberun.controller import ReconcileContext, Result
from kuberun.errors import ApiError
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest


class ExternalSecretReconciler(Reconciler[ExternalSecret]):
    """One reconcile brings one ExternalSecret and its target up to date."""

    def __init__(self, deps: ExternalSecretDeps) -> None:
        super().__init__(deps.gatherer.objects, deps.memory, timed=deps.reporter.timed)
        self._deps = deps

    async def reconcile(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result:
        """Make the target of one ExternalSecret match its backend."""
        snapshot = unread(obj, ctx)
        try:
            snapshot = await gathered(self._deps, obj, snapshot, ctx)
        except SyncError as failed:
            return await self._report(snapshot, failed.outcome)
        stop = first_stop(snapshot)
        result = await (sync(self._deps, snapshot, ctx) if stop is None else maintain(self._deps, snapshot, stop))
        return await self._report(result.snapshot, result.outcome)

    async def finalize(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result:
        """Clean up after an object that is being deleted. If that is blocked, report the reason in its status."""
        self._deps.changes.unsubscribe(obj.key)
        try:
            return await self._deps.cleanup.finish(obj, self._deps.target_of(obj))
        except ApiError as problem:
            return await self._report(unread(obj, ctx), Failed(Step.DELETE, refused(problem)))

    async def hold(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result | None:
        """Set the finalizer before the first write that must be undone later; return a result to wait for it."""
        try:
            return await self._deps.cleanup.prepare(obj)
        except ApiError as problem:
            failed = Failed(Step.WRITE, f"finalizer not set: {refused(problem)}")
            return await self._report(unread(obj, ctx), failed)

    async def _report(self, snapshot: Snapshot, outcome: Outcome) -> Result:
        """Report the outcome once, at the end: a written status says that the work is done."""
        deps = self._deps
        contended = None if isinstance(outcome, Ignored) else deps.loops.verdict(snapshot.es)
        published = await deps.reporter.publish(
            snapshot.es, lambda es: report_of(snapshot.about(es), outcome, contended)
        )
        if isinstance(outcome, Synced) and published.problem is None:
            # Only after the status is written: a lost status must be written again.
            deps.gatherer.remember(
                published.obj,
                snapshot.now,
                outcome.templates,
                version=snapshot.synced_version,
                renew_within=outcome.refresh_within,
            )
            deps.changes.mark_read(published.obj.key, snapshot.notified_at)
        return published.result


# --- triggers ---------------------------------------------------------------------------------------------------------

WrittenByUs = Callable[[ObjectKey, ObjectMeta], bool]
"""Returns whether an ExternalSecret wrote exactly this version of its target."""


def target_of(es: ExternalSecret) -> list[tuple[str, str]]:
    """Index function: the Secret that an ExternalSecret writes to. Other kinds have their own watches."""
    return [(es.metadata.namespace, target_name(es))] if es.spec.target.manifest is None else []


def makers_of(objects: Cache[ExternalSecret]) -> Callable[[str, str], ExternalSecret | None]:
    """Return a function that finds the ExternalSecret of a Secret, by the Secret's namespace and name."""

    def maker(namespace: str, name: str) -> ExternalSecret | None:
        return next(iter(objects.find(TARGET_INDEX, (namespace, name))), None)

    return maker


def own_changes(change: Change[ExternalSecret]) -> Iterable[ReconcileRequest]:
    """Select changes by users, not our own reports. A removed finalizer counts, too."""
    if said_changed(change) or triggers.resynced(change) or _finalizers_differ(change):
        return triggers.itself()(change)
    return ()


def target_changes(objects: Cache[ExternalSecret], written_by_us: WrittenByUs) -> EventHandler[Object]:
    """Map a Secret to every ExternalSecret that writes to it, except to its only writer after its own write.

    The label is not required: an ExternalSecret that waits for a Secret to appear, or for its owner to release it, has
    not labelled it yet.
    """

    def requests(change: Change[Object]) -> Iterable[ReconcileRequest]:
        users = objects.find_keys(TARGET_INDEX, (change.key.namespace, change.key.name))
        if len(users) == 1 and isinstance(change.new, Object) and written_by_us(users[0], change.new.metadata):
            return ()
        what = f"target {change.key} {'deleted' if change.deleted else 'changed'}"
        return [ReconcileRequest(key, what) for key in users]

    return requests


def _finalizers_differ(change: Change[ExternalSecret]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers
