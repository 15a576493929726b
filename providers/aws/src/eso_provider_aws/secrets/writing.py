"""Writing secrets: everything that is pushed to one secret becomes one new version, or none when nothing changed.

Secrets Manager compares no versions. Writes of one session to one secret wait for each other; between processes the
last writer wins. Only the creation of a secret is atomic: who loses that race looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from eso_api.stores.aws import SecretsManagerDeletion
from eso_provider_aws.api import Api
from eso_provider_aws.ownership import OWNER
from eso_provider_aws.secrets.alignment import Alignment
from eso_provider_aws.secrets.metadata import Settings
from eso_provider_aws.secrets.pushing import Push
from eso_provider_aws.secrets.reading import Reader, about
from eso_provider_aws.secrets.standing import Standing, standing_of, with_value
from eso_provider_aws.secrets.versions import ConflictError, check_original, form_of, put_version
from eso_sdk.drafts import Draft, removed
from eso_sdk.provider import Pushed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem

ATTEMPTS: Final = 3

T = TypeVar("T")


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, api: Api, reader: Reader, deletes: SecretsManagerDeletion) -> None:
        self._api = api
        self._reader = reader
        self._deletes = deletes
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem], call_key: str) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        secret_id = self._reader.secret_id(items[0].remote.key)
        return await self._alone(secret_id, lambda: Push(self._api, self._reader, secret_id, items, call_key).run())

    async def delete(self, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        secret_id = self._reader.secret_id(items[0].remote.key)
        return await self._alone(secret_id, lambda: self._delete(secret_id, items, call_key))

    async def _alone(self, secret_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Serialise the writes of one store to one secret. Read the secret again if another writer changed it."""
        async with self._locks.setdefault(secret_id, asyncio.Lock()):
            for _ in range(ATTEMPTS):
                try:
                    return await attempt()
                except ConflictError:
                    continue
                except ProviderError as failed:
                    if failed.reason is not ErrorReason.SECRET_NOT_FOUND:
                        raise
        words = f"{self._api.asked('PutSecretValue', about(secret_id))} is being changed by others; tried again later"
        raise ProviderError(ErrorReason.PRECONDITION_FAILED, words)

    async def _delete(self, secret_id: str, items: Sequence[DeleteItem], call_key: str) -> list[bool | ProviderError]:
        standing = await standing_of(self._reader, secret_id)
        if not standing.exists or not standing.is_of(items[0].owner_token or OWNER):
            return [False] * len(items)
        check_original(self._api, secret_id, standing)
        if any(not item.remote.property for item in items):
            await self._remove(secret_id, standing)
            return [True] * len(items)
        standing = await with_value(self._reader, standing)
        draft = Draft(standing.secret.value if standing.secret else None)
        outcomes = [await removed(draft, item) for item in items]
        if any(outcome is True for outcome in outcomes):
            if draft.value is None:
                await self._remove(secret_id, standing)
            else:
                gone = frozenset(item.remote.property for item in items)
                await Alignment(self._api, secret_id, standing.arn).release_policy(standing, gone)
                form = form_of(draft.value, standing, Settings())
                await put_version(self._api, secret_id, standing, form, call_key)
        return outcomes

    async def _remove(self, secret_id: str, standing: Standing) -> None:
        """Delete the secret: by ARN, because another one may have taken its name."""
        if standing.replicas:
            regions = sorted(standing.replicas)
            await self._call("RemoveRegionsFromReplication", secret_id, standing, RemoveReplicaRegions=regions)
        how: dict[str, Any] = {}
        if self._deletes.force_delete_without_recovery:
            how["ForceDeleteWithoutRecovery"] = True
        elif self._deletes.recovery_window_in_days:
            how["RecoveryWindowInDays"] = self._deletes.recovery_window_in_days
        await self._call("DeleteSecret", secret_id, standing, **how)

    async def _call(self, operation: str, secret_id: str, standing: Standing, **parameters: Any) -> None:
        await self._api.call(operation, about=about(secret_id), SecretId=standing.arn, **parameters)
