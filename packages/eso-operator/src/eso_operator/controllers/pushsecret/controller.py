"""Reconciles PushSecrets: makes backends hold the values that they select.

    watch -> queue -> reconcile:  gather -> finish an interrupted push -> checks -> sync -> report

It is queued by these changes, and by its own timers:

    the object itself      spec, labels, annotations, finalizers, deletion; not its status
    source Secrets         the one it names, and those that its selector matches or matched
    stores                 those it names, has pushed to, or selects by label
    dependencies           providers, configurations, credentials, templates (`dependencies.wakes`)
    other PushSecrets      that write to one of its remote keys (`ownership.py`)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from eso_api.common import CONTENDED
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_api.references import SelectorError
from eso_operator.controllers.base import Reconciler, api_error_text, result_of
from eso_operator.controllers.outcomes import Step
from eso_operator.controllers.pushsecret.checks import BEFORE_SOURCE, first_stop
from eso_operator.controllers.pushsecret.ownership import KEYS_INDEX, ValueConflict, keys_index
from eso_operator.controllers.pushsecret.pending import FinishedPush
from eso_operator.controllers.pushsecret.push import DELETE
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot
from eso_operator.controllers.pushsecret.status import Pushed, PushFailed, PushOutcome, SourceDeleted, report_of
from eso_operator.controllers.pushsecret.sync import (
    PushSecretDeps,
    depend,
    events_of,
    not_removed,
    ours_of,
    remove,
    state_owner,
    sync,
)
from eso_operator.controllers.refresh import interval_of
from eso_operator.controllers.secretstore.controller import holders
from eso_operator.controllers.secretstore.kinds import StoreKind
from eso_operator.dependencies import ANY_PROVIDER, changed_by_user
from kubebase.meta import JsonObject, Object, ObjectKey, meta_of
from kuberun.cache import Cache, Change
from kuberun.controller import Backoff, Done, ReconcileContext, Requeue, Result
from kuberun.errors import ApiError, NotFound, NotServed
from kuberun.ownership import finalizer_added, finalizer_removed
from kuberun.status import find_condition
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

FINALIZER: Final = "pushsecret.externalsecrets.io/finalizer"

_KIND: Final = PUSH_SECRET.kind()
_NOT_SERVED: Final = "the API server does not know PushSecrets now"
_SOON: Final = 1.0


class PushSecretReconciler(Reconciler[PushSecret]):
    """One reconcile makes the stores of one PushSecret hold the values that it selects."""

    def __init__(self, deps: PushSecretDeps) -> None:
        super().__init__(deps.snapshots.objects, deps.memory, timed=deps.reporter.timed)
        self._deps = deps

    async def fresh(self, obj: PushSecret) -> PushSecret:
        """Return the object with our last write.

        The status lists our values and whether the last push failed. An older one would miss values that we pushed, or
        cancel a retry that was announced.
        """
        return await self._deps.reporter.latest(obj)

    async def hold(self, obj: PushSecret, ctx: ReconcileContext) -> Result | None:
        """Set the finalizer before the first push, or remove it under deletionPolicy None: remote values stay."""
        del ctx
        needed, present = obj.spec.deletion_policy == DELETE, FINALIZER in obj.metadata.finalizers
        if needed == present:
            return None
        change = finalizer_added if needed else finalizer_removed
        return await self._write_finalizer(obj, change(obj.metadata, FINALIZER))

    async def reconcile(self, obj: PushSecret, ctx: ReconcileContext) -> Result:
        """Push the values of the source to the stores of one PushSecret."""
        snapshot = await self._deps.snapshots.gather(obj, ctx.now)
        interrupted = await self._deps.pending.finish(snapshot)
        if interrupted is not None:
            return await self._finish_interrupted(snapshot, interrupted, ctx)
        outcome = first_stop(snapshot, BEFORE_SOURCE)
        if outcome is None:
            snapshot, outcome = await sync(self._deps, snapshot)
        if isinstance(outcome, Pushed) and snapshot.interval_note:
            outcome = replace(outcome, remarks=(*outcome.remarks, snapshot.interval_note))
        return await self._report(snapshot.push, outcome, snapshot.now, ctx)

    async def _finish_interrupted(
        self, snapshot: PushSnapshot, ended: FinishedPush | PushFailed, ctx: ReconcileContext
    ) -> Result:
        """Report a push of generated values that succeeded and was not reported, or that this is not known yet."""
        push = snapshot.push
        if isinstance(ended, PushFailed):
            depend(self._deps, push, (ANY_PROVIDER,))
            return await self._report(push, ended, snapshot.now, ctx)
        if ended.states is not None:
            await self._deps.ledger.retire_all_but(state_owner(push), ended.states)
        result = await self._report(push, ended.outcome, ended.at, ctx)
        # Time has passed since, and the object may have changed: whether a push is due is decided next.
        return result if isinstance(result, Backoff) else Requeue(_SOON, "an interrupted push was finished")

    # --- deletion -----------------------------------------------------------------------------------------------------

    async def finalize(self, obj: PushSecret, ctx: ReconcileContext) -> Result:
        """Remove the values of a PushSecret that is being deleted, then its finalizer."""
        deps = self._deps
        if FINALIZER not in obj.metadata.finalizers:
            return Done()
        known = deps.memory.known(obj.key, obj.metadata.uid)
        if obj.spec.deletion_policy == DELETE and (known is None or not known.emptied):
            old = ours_of(deps, obj)
            removal = await remove(deps, obj, old, final=True)
            depend(deps, obj, removal.depends_on)
            if (failed := not_removed(old, removal)) is not None:
                return await self._report(obj, failed, ctx.now, ctx)
            deps.reporter.publish_events(obj.metadata, *events_of(removal))
            # From now on, values under its remote keys belong to other PushSecrets.
            deps.memory.of(obj.key, obj.metadata.uid).emptied = True
        return await self._write_finalizer(obj, finalizer_removed(obj.metadata, FINALIZER))

    async def gone(self, key: ObjectKey) -> Result:
        """Clean up after a deleted object, including values that were pushed and never recorded."""
        push = self._deps.writes.unrecorded_of(key)
        if push is not None and push.spec.deletion_policy == DELETE:
            try:
                # An object of the same name would own the same values.
                await self._deps.client.get(_KIND, key)
            except NotServed:
                return Backoff(f"it cannot be read: {_NOT_SERVED}")
            except NotFound:
                if isinstance(result := await self._undo(push), Backoff):
                    return result
            except ApiError as problem:
                return Backoff(f"it cannot be read: {api_error_text(problem)}")
        return await super().gone(key)

    async def _undo(self, push: PushSecret) -> Result:
        """Delete unrecorded values of an object that was deleted while we were pushing.

        Its recorded values were deleted with it.
        """
        unrecorded = self._deps.writes.unrecorded(push) if push.spec.deletion_policy == DELETE else {}
        removal = await remove(self._deps, push, unrecorded, final=True)
        self._deps.reporter.publish_events(push.metadata, *events_of(removal))
        return Backoff(Step.DELETE_PUSHED.summary) if removal.failures else Done()

    async def _write_finalizer(self, push: PushSecret, patch: JsonObject | None) -> Result:
        """Write the finalizers. Our write causes the next reconcile."""
        try:
            if patch is not None:
                await self._deps.client.merge_patch(_KIND, push.key, patch)
        except ApiError as problem:
            return result_of(problem, "finalizer not written")
        return Done()

    # --- report -------------------------------------------------------------------------------------------------------

    async def _report(self, push: PushSecret, outcome: PushOutcome, now: datetime, ctx: ReconcileContext) -> Result:
        """Report the outcome once, at the end. What a lost status write says must be reported again."""
        deps = self._deps
        if isinstance(outcome, PushFailed) and outcome.entries is None and deps.writes.unrecorded(push):
            outcome = replace(outcome, entries=ours_of(deps, push))
        within, conflicts = ctx.longest_wait(interval_of(push)), self._conflicts(push, outcome)
        fed_by = deps.fed_by(push.key)
        published = await deps.reporter.publish(
            push, lambda push: report_of(push, outcome, now, retry_within=within, conflicts=conflicts, fed_by=fed_by)
        )
        if isinstance(published.problem, NotServed):
            return Backoff(f"status not written: {_NOT_SERVED}")
        if isinstance(published.problem, NotFound):
            return await self._undo(push)
        if published.problem is not None:
            if isinstance(outcome, Pushed):
                deps.pending.not_reported(push, outcome)
            return published.result
        deps.pending.reported(push)
        match outcome:
            case Pushed(last=last, values=values):
                deps.writes.recorded(push, last, values)
            case PushFailed():
                deps.writes.recorded(push)
            case SourceDeleted():
                deps.writes.clear(push)
            case _:
                pass
        return published.result

    def _conflicts(self, push: PushSecret, outcome: PushOutcome) -> Sequence[ValueConflict] | None:
        """Return the remote keys for which other PushSecrets conflict with it; None while that is unknown.

        After a restart, nothing is known of a PushSecret until it pushes again.
        """
        if isinstance(outcome, SourceDeleted):
            return ()
        writes, owners = self._deps.writes, self._deps.owners
        pushed = isinstance(outcome, Pushed) and outcome.last is not None
        values = outcome.values if isinstance(outcome, Pushed) and pushed else writes.values(push)
        if not values and push.status.synced_push_secrets:
            return None
        found = writes.conflicts(push.key, values)
        if not found and find_condition(push.status.conditions, CONTENDED) is not None:
            others = [other for key in values for other in owners.recording(push, key)]
            return None if any(not writes.values(other) for other in others) else ()
        return found


# --- triggers ---------------------------------------------------------------------------------------------------------

SOURCES_INDEX: Final = "sources"
_BY_LABEL: Final = ""
"""Index key of PushSecrets that select by label; no Secret has this name."""


def sources_of(push: PushSecret) -> Iterable[Hashable]:
    """Index function of PushSecrets: the Secret it names, or its namespace if it selects by label."""
    source = push.spec.selector.secret
    if source is None:
        return ()
    return ((push.metadata.namespace, source.name or _BY_LABEL),)


INDEXES: Final = {SOURCES_INDEX: sources_of, KEYS_INDEX: keys_index}
"""Indexes of PushSecrets for the controller."""


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
        if not changed_by_user(change):
            return []
        near = [
            push.key
            for push in holding(kind, change.key)
            if not change.key.namespace or push.metadata.namespace == change.key.namespace
        ]
        return [ReconcileRequest(key, f"{kind.resource.kind} {change.key} changed") for key in dict.fromkeys(near)]

    return requests


def _selects(push: PushSecret, labels: dict[str, str]) -> bool:
    source = push.spec.selector.secret
    try:
        return source is not None and source.selector is not None and source.selector.matches(labels)
    except SelectorError:
        return False  # its own condition reports it
