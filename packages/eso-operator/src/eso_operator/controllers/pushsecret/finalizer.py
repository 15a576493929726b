"""The finalizer of PushSecrets: set exactly while a deletion must wait for the removal of remote values.

deletionPolicy Delete, alive     added before the first push; that pass pushes nothing
deletionPolicy None              removed, even while the object is being deleted: remote values stay
"""

from __future__ import annotations

from typing import Final

from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.controllers.pushsecret.plan import DELETE
from eso_operator.report.messages import outcome_of
from kubebase.meta import JsonObject
from kuberun.client import Client
from kuberun.controller import Done, Result
from kuberun.errors import ApiError
from kuberun.ownership import finalizer_added, finalizer_removed

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
            return outcome_of(problem, "PushSecret", "finalizer not written")
        return Done()
