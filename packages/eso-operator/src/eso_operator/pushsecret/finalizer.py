"""The finalizer of PushSecrets: there exactly while deletion has to wait for remote values to be removed.

deletionPolicy Delete, alive     added before the first push; that pass pushes nothing
deletionPolicy None              taken off, even while the object is being deleted: remote values stay
"""

from __future__ import annotations

from typing import Final

from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_operator.pushsecret.plan import DELETE
from kuberun.client import Client
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.meta import JsonObject
from kuberun.ownership import finalizer_added, finalizer_removed

FINALIZER: Final = "pushsecret.externalsecrets.io/finalizer"
_KIND: Final = PUSH_SECRET.kind()


class Finalizer:
    """One for the process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def prepare(self, push: PushSecret) -> Outcome | None:
        """Put it right; an outcome when there is nothing more to do now. What is written comes back as an event."""
        held, deleting = FINALIZER in push.metadata.finalizers, push.metadata.deletion_timestamp is not None
        if push.spec.deletion_policy == DELETE:
            if held:
                return None
            return Done() if deleting else await self._add(push)
        if held:
            return await self.release(push)
        return Done() if deleting else None

    async def release(self, push: PushSecret) -> Outcome:
        return await self._write(finalizer_removed(push.metadata, FINALIZER), push)

    async def _add(self, push: PushSecret) -> Outcome:
        return await self._write(finalizer_added(push.metadata, FINALIZER), push)

    async def _write(self, patch: JsonObject | None, push: PushSecret) -> Outcome:
        try:
            if patch is not None:
                await self._client.merge_patch(_KIND, push.key, patch)
        except NotFound:
            return Done()
        except Conflict:
            return Retry("the PushSecret changed meanwhile")
        except ApiError as problem:
            return Retry(f"finalizer not written: the API server answered {problem.reason or problem.code}")
        return Done()
