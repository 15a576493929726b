"""Reconciles one ExternalSecret: runs `steps.STEPS` in order, unless the object is gone or being deleted."""

from __future__ import annotations

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.externalsecret.gather import unseen
from eso_operator.controllers.externalsecret.outcome import Failed, Outcome
from eso_operator.controllers.externalsecret.outside import Outside
from eso_operator.controllers.externalsecret.settlement import refused
from eso_operator.controllers.externalsecret.steps import STEPS, ReconcileStep, Work, report
from eso_operator.report.steps import Step
from kubebase.meta import ObjectKey
from kuberun.controller import Done, Result
from kuberun.errors import ApiError


class ExternalSecretReconciler:
    """Makes the targets of ExternalSecrets match their backends."""

    def __init__(self, outside: Outside, steps: tuple[ReconcileStep, ...] = STEPS) -> None:
        self._outside = outside
        self._steps = steps

    async def reconcile(self, key: ObjectKey) -> Result:
        """Make the target of one ExternalSecret match its backend."""
        outside = self._outside
        es = outside.gatherer.find(key)
        if es is None:
            outside.memory.forget(key)
            return Done()
        if es.metadata.deletion_timestamp is not None:
            return await self._finish(es)
        if (waiting := await self._prepare(es)) is not None:
            return waiting
        with outside.reporter.timed(es.metadata):
            work = Work(unseen(es, outside.clock.now()))
            for step in self._steps:
                await step(outside, work)
            return work.then

    async def _finish(self, es: ExternalSecret) -> Result:
        """Clean up after an object that is being deleted. If that is blocked, report the reason in its status."""
        self._outside.changes.unsubscribe(es.key)
        try:
            return await self._outside.cleanup.finish(es, self._outside.target_of(es))
        except ApiError as problem:
            return await self._held_up(es, Failed(Step.DELETE, refused(problem)))

    async def _prepare(self, es: ExternalSecret) -> Result | None:
        """Set the finalizer before the first write that must be undone later; return an outcome to wait for it."""
        try:
            return await self._outside.cleanup.prepare(es)
        except ApiError as problem:
            return await self._held_up(es, Failed(Step.WRITE, f"finalizer not set: {refused(problem)}"))

    async def _held_up(self, es: ExternalSecret, outcome: Outcome) -> Result:
        work = Work(unseen(es, self._outside.clock.now()), outcome)
        await report(self._outside, work)
        return work.then
