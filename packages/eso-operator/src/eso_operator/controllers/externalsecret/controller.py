"""Reconciles ExternalSecrets: reads values from stores and keeps the target up to date.

    watch -> queue -> reconcile:  gather -> checks -> sync -> report

It is queued by changes of itself, of its target, and of its dependencies (`dependencies`), by changes that
providers announce (`changes.feed`), and by its own timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_operator.controllers.base import Reconciler, result_of
from eso_operator.controllers.externalsecret.checks import first_stop
from eso_operator.controllers.externalsecret.snapshot import Snapshot, unread
from eso_operator.controllers.externalsecret.status import Failed, Outcome, Synced, report_of
from eso_operator.controllers.externalsecret.sync import ExternalSecretDeps, SyncError, gather, maintain, refused, sync
from eso_operator.controllers.outcomes import Ignored, Step
from eso_operator.targets.metadata import FINALIZER, TARGET_INDEX, target_name
from kubebase.meta import Object, ObjectKey, ObjectMeta
from kuberun.cache import Cache, Change
from kuberun.controller import Done, ReconcileContext, Result
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.ownership import add_finalizer, remove_finalizer
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

_KIND: Final = EXTERNAL_SECRET.kind()


class ExternalSecretReconciler(Reconciler[ExternalSecret]):
    """One reconcile brings one ExternalSecret and its target up to date."""

    def __init__(self, deps: ExternalSecretDeps) -> None:
        super().__init__(deps.gatherer.objects, deps.memory, timed=deps.reporter.timed)
        self._deps = deps

    async def reconcile(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result:
        """Make the target of one ExternalSecret match its backend."""
        try:
            snapshot = await gather(self._deps, obj, ctx)
        except SyncError as failed:
            return await self._report(unread(obj, ctx), failed.outcome)
        stop = first_stop(snapshot)
        if stop is None:
            snapshot, outcome = await sync(self._deps, snapshot, ctx)
        else:
            snapshot, outcome = await maintain(self._deps, snapshot, stop)
        return await self._report(snapshot, outcome)

    async def hold(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result | None:
        """Set the finalizer if deletion must wait for us. Our own write comes back as an event."""
        if obj.spec.target.deletion_policy != "Delete" or FINALIZER in obj.metadata.finalizers:
            return None
        try:
            await add_finalizer(self._deps.client, _KIND, obj.metadata, FINALIZER)
        except (NotFound, Conflict) as problem:
            return result_of(problem)
        except ApiError as problem:
            failed = Failed(Step.WRITE, f"finalizer not set: {refused(problem)}")
            return await self._report(unread(obj, ctx), failed)
        return Done()

    async def finalize(self, obj: ExternalSecret, ctx: ReconcileContext) -> Result:
        """Remove the target, then the finalizer. If that is blocked, report the reason in the status."""
        deps, target = self._deps, obj.spec.target
        deps.changes.unsubscribe(obj.key)
        try:
            may_write = target.manifest is None or deps.gatherer.rules.generic_targets
            if target.deletion_policy == "Delete" and may_write:
                await deps.target_of(obj).delete(obj)
            await remove_finalizer(deps.client, _KIND, obj.metadata, FINALIZER)
        except (NotFound, Conflict) as problem:
            return result_of(problem)
        except ApiError as problem:
            return await self._report(unread(obj, ctx), Failed(Step.DELETE, refused(problem)))
        return Done()

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
        elif isinstance(outcome, Synced):
            # A sync that the memory has may seem later than a status of the same second, which has no fraction.
            deps.gatherer.forget_last(published.obj)
        return published.result


# --- triggers ---------------------------------------------------------------------------------------------------------


def target_of(es: ExternalSecret) -> list[tuple[str, str]]:
    """Index function: the Secret that an ExternalSecret writes to. Other kinds have their own watches."""
    return [(es.metadata.namespace, target_name(es))] if es.spec.target.manifest is None else []


def makers_of(objects: Cache[ExternalSecret]) -> Callable[[str, str], ExternalSecret | None]:
    """Return a function that finds the ExternalSecret of a Secret, by the Secret's namespace and name."""

    def maker(namespace: str, name: str) -> ExternalSecret | None:
        return next(iter(objects.find(TARGET_INDEX, (namespace, name))), None)

    return maker


def target_changes(
    objects: Cache[ExternalSecret], written_by_us: Callable[[ObjectKey, ObjectMeta], bool]
) -> EventHandler[Object]:
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
