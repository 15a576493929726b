"""Writes to one remote Secret: read, plan, write, and start again if another writer changed it in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eso_provider_kubernetes.clusterstore import AnyClusterStore
from eso_provider_kubernetes.failures import Request
from eso_provider_kubernetes.pushmetadata import OWNER
from eso_provider_kubernetes.secretobject import SECRETS
from eso_provider_kubernetes.secretwrites import Pushing, PushPlan, is_marked, plan_deletion, plan_push
from eso_sdk.errors import unavailable, version_differs
from eso_sdk.provider import Pushed
from eso_wire.errors import ProviderError
from eso_wire.values import DeleteItem, PushPrecondition, SourceSecret
from kubebase.backoff import ExponentialBackoff, system_random
from kubebase.meta import JsonObject, ObjectKey, meta_of, raw, version_of
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.requests import DeleteOptions

_RAW_SECRETS: Final = raw(SECRETS)
_ATTEMPTS: Final = 8
_PAUSE: Final = ExponentialBackoff(first=0.05, cap=1.0, jitter=1.0)


class SecretWriter:
    """Writes with the resourceVersion it read, so that no other writer's change is lost."""

    def __init__(self, store: AnyClusterStore) -> None:
        self._store = store

    async def push(
        self, key: ObjectKey, pushings: Sequence[Pushing], source: SourceSecret, *, guarded: bool
    ) -> Sequence[Pushed | ProviderError]:
        """Write the items; return one outcome for each."""
        try:
            for attempt in range(_ATTEMPTS):
                await self._store.clock.sleep(_PAUSE.delay(attempt, system_random))
                live = await self._live(key)
                plan = plan_push(live, pushings, source, guarded=guarded)
                if plan.document is None:
                    return _outcomes(plan, version_of(live or {}))
                if (version := await self._write(key, plan)) is not None:
                    return _outcomes(plan, version)
        except ProviderError as error:
            return [error] * len(pushings)
        return [_beaten(key, pushing) for pushing in pushings]

    async def delete(
        self, key: ObjectKey, items: Sequence[DeleteItem], *, guarded: bool
    ) -> Sequence[bool | ProviderError]:
        """Delete properties (the Secret itself if empty); return for each whether it existed.

        A Secret of a guarded namespace that no push created counts as absent.
        """
        properties = [item.remote.property for item in items]
        owner = next((item.owner_token for item in items if item.owner_token), OWNER)
        try:
            if not guarded and not any(properties):
                existed = await self._delete(key, DeleteOptions())
                return [existed is not False] * len(properties)
            for attempt in range(_ATTEMPTS):
                await self._store.clock.sleep(_PAUSE.delay(attempt, system_random))
                live = await self._live(key)
                if live is None or (guarded and not is_marked(live, owner)):
                    return [False] * len(properties)
                plan = plan_deletion(live, properties)
                if plan.removes:
                    meta = meta_of(live)
                    options = DeleteOptions(uid=meta.uid, resource_version=meta.resource_version)
                    done = await self._delete(key, options) is not None
                else:
                    done = plan.document is None or await self._update(key, plan.document) is not None
                if done:
                    return plan.existed
        except ProviderError as error:
            return [error] * len(properties)
        return [_busy(key)] * len(properties)

    async def _live(self, key: ObjectKey) -> JsonObject | None:
        request = Request("get", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("GetSecret"):
                return await self._store.client.get(_RAW_SECRETS, key)
        except NotFound as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return None
            raise problem from None
        except ApiError as error:
            raise self._store.failure(error, request) from None

    async def _write(self, key: ObjectKey, plan: PushPlan) -> str | None:
        """Carry out the plan; return the new version ("" if unchanged), or None if another writer was first."""
        if plan.document is None:
            return ""
        if not plan.creates:
            return await self._update(key, plan.document)
        metadata = {**(plan.document.get("metadata") or {}), "namespace": key.namespace, "name": key.name}
        try:
            with self._store.observe("CreateSecret"):
                made = await self._store.client.create(_RAW_SECRETS, {**plan.document, "metadata": metadata})
        except AlreadyExists:
            return None
        except ApiError as error:
            raise self._store.failure(error, Request("create", SECRETS, key.namespace, key.name)) from None
        return version_of(made)

    async def _update(self, key: ObjectKey, document: JsonObject) -> str | None:
        """Update the Secret; return its version, or None if it was changed or deleted since the read."""
        request = Request("update", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("UpdateSecret"):
                return version_of(await self._store.client.update(_RAW_SECRETS, document))
        except Conflict:
            return None
        except ApiError as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return None
            raise problem from None

    async def _delete(self, key: ObjectKey, options: DeleteOptions) -> bool | None:
        """Delete the Secret; return whether it existed, or None if it changed since the read."""
        request = Request("delete", SECRETS, key.namespace, key.name)
        try:
            with self._store.observe("DeleteSecret"):
                await self._store.client.delete(_RAW_SECRETS, key, options)
        except Conflict:
            return None
        except ApiError as error:
            problem = self._store.failure(error, request)
            if problem.is_not_found:
                return False
            raise problem from None
        return True


def _outcomes(plan: PushPlan, version: str) -> Sequence[Pushed | ProviderError]:
    return [one if isinstance(one, ProviderError) else Pushed(one, version) for one in plan.outcomes]


def _beaten(key: ObjectKey, pushing: Pushing) -> Pushed | ProviderError:
    if pushing.item.precondition is PushPrecondition.IF_VERSION:
        return version_differs(key.name)
    return _busy(key)


def _busy(key: ObjectKey) -> ProviderError:
    return unavailable(
        f'other writers changed Secret "{key.name}" {_ATTEMPTS} times while it was written; it is retried'
    )
