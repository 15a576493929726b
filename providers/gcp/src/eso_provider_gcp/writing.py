"""Writing secrets: everything that is pushed to one secret becomes one new version, or none if nothing changed.

    GetSecret -> may we write it? -> the latest value -> set every item -> labels, annotations, topics -> equal: stop
    -> AddSecretVersion

| existing secret | what a push does |
|---|---|
| nothing | CreateSecret, AddSecretVersion; if another writer created it first, look again |
| with our label `managed-by` | UpdateSecret if its settings differ, AddSecretVersion if its value differs |
| without our label | nothing: OWNERSHIP_CONFLICT, also for a property |

Writes of this process to one secret wait for each other. Settings and deletion compare the etag. Versions have none:
between processes the last writer wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from eso_provider_gcp.api import Api
from eso_provider_gcp.metadata import MARK, OWNER, SecretMetadata, labels_of, metadata_of, replication_of
from eso_provider_gcp.reading import UNREADABLE, Answer, Reader, number_of
from eso_sdk.drafts import Draft, payload_of, removed
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition

ATTEMPTS: Final = 3
MAX_BYTES: Final = 64 * 1024
BEING_CREATED: Final = timedelta(seconds=60)
"""A secret without a version that is younger belongs to the writer that is about to add the first one."""
_AGAIN: Final = frozenset({ErrorReason.ALREADY_EXISTS, ErrorReason.PRECONDITION_FAILED, ErrorReason.SECRET_NOT_FOUND})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """A secret before a write."""

    secret: Any = None
    """As the service describes it; None if there is none."""
    latest: Answer | None = None
    """Its latest value; None if there is none."""
    unreadable: ProviderError | None = None
    """Why the latest value cannot be read, although there is one."""

    def is_of(self, owner: str) -> bool:
        return self.secret is not None and self.secret.labels.get(MARK) == owner

    @property
    def has_value(self) -> bool:
        return self.latest is not None or self.unreadable is not None


class Writer:
    """Writes the secrets of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader

    async def push(self, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        key = items[0].remote.key
        owner = items[0].owner_token or OWNER
        metadata = metadata_of(items)
        return await self._alone(key, lambda: self._push(key, items, owner, metadata))

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        return await self._alone(items[0].remote.key, lambda: self._delete(items))

    async def _alone(self, key: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Serialise the writes to one secret. Look at it again if another process changed it."""
        async with self._api.runtime.lock(self._api.secret(key)):
            for _ in range(ATTEMPTS - 1):
                try:
                    return await attempt()
                except ProviderError as failed:
                    if failed.reason not in _AGAIN:
                        raise
            return await attempt()

    # --- push --------------------------------------------------------------------------------------------------------

    async def _push(
        self, key: str, items: Sequence[PushItem], owner: str, metadata: SecretMetadata | None
    ) -> list[Pushed | ProviderError]:
        standing = await self._standing(key, owner, items)
        draft = Draft(standing.latest.value if standing.latest else None)
        before = draft.value
        outcomes = [await self._set(item, draft, standing, owner) for item in items]
        if not any(_writes(outcome) for outcome in outcomes):
            return outcomes
        value = _storable(draft.value, key)
        aligned = await self._align(key, standing, owner, metadata)
        if standing.latest is not None and draft.value == before:
            settled = Pushed(PushOutcome.UPDATED if aligned else PushOutcome.UNCHANGED, standing.latest.version)
            return [settled if _writes(outcome) else outcome for outcome in outcomes]
        version = await self._add(key, value)
        return [Pushed(each.outcome, version) if isinstance(each, Pushed) else each for each in outcomes]

    async def _standing(self, key: str, owner: str, items: Sequence[PushItem]) -> Standing:
        """Look at the secret. A foreign one is read only if a precondition needs it: that may be denied."""
        secret = await self._secret(key)
        found = Standing(secret)
        guarded = any(item.precondition is PushPrecondition.IF_ABSENT for item in items)
        if secret is None or not (found.is_of(owner) or guarded):
            return found
        try:
            return Standing(secret, await self._reader.current(key))
        except ProviderError as failed:
            if failed.backend_code in UNREADABLE:
                return Standing(secret, unreadable=failed)
            if not failed.is_not_found:
                raise
        if guarded and self._api.clock.now() - secret.create_time < BEING_CREATED:
            words = f"{self._api.asked('CreateSecret', key)} is being created by another writer; tried again later"
            raise ProviderError(ErrorReason.BACKEND_ERROR, words)
        return found

    async def _secret(self, key: str) -> Any:
        try:
            return await self._api.call("GetSecret", {"name": self._api.secret(key)}, key=key)
        except ProviderError as missing:
            if missing.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise
            return None

    async def _set(self, item: PushItem, draft: Draft, standing: Standing, owner: str) -> Pushed | ProviderError:
        """Put one item into the draft."""
        name = item.remote.property
        try:
            if item.precondition is PushPrecondition.IF_ABSENT and await _has(name, draft, standing):
                return Pushed(PushOutcome.SKIPPED_EXISTS, standing.latest.version if standing.latest else "")
            if standing.secret is not None and not standing.is_of(owner):
                return self._foreign(item.remote.key, owner)
            if name and standing.unreadable is not None and standing.unreadable.backend_code == "DISABLED":
                return standing.unreadable
            changed = await draft.put(item.remote.key, name, payload_of(item))
        except ProviderError as refused:
            return refused
        if not standing.has_value:
            return Pushed(PushOutcome.CREATED)
        return Pushed(PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED)

    async def _align(self, key: str, standing: Standing, owner: str, metadata: SecretMetadata | None) -> bool:
        """Create the secret, or give it the settings of the push; return whether anything changed."""
        secret = standing.secret
        if secret is None:
            await self._create(key, owner, metadata)
            return True
        wanted: dict[str, Any] = {"labels": labels_of(metadata, dict(secret.labels), owner)}
        existing: dict[str, Any] = {"labels": dict(secret.labels)}
        if metadata is not None:
            wanted["annotations"], existing["annotations"] = metadata.annotations, dict(secret.annotations)
        if metadata is not None and metadata.topics is not None:
            wanted["topics"] = sorted(set(metadata.topics))
            existing["topics"] = sorted(topic.name for topic in secret.topics)
        differing = {name: value for name, value in wanted.items() if value != existing[name]}
        if not differing:
            return False
        if "topics" in differing:
            differing["topics"] = _topics(differing["topics"])
        changed = {"name": secret.name, "etag": secret.etag, **differing}
        request = {"secret": changed, "update_mask": {"paths": sorted(differing)}}
        await self._api.call("UpdateSecret", request, key=key)
        return True

    async def _create(self, key: str, owner: str, metadata: SecretMetadata | None) -> None:
        name = self._api.secret(key)
        secret: dict[str, Any] = {"labels": labels_of(metadata, {}, owner)}
        if not self._api.location:
            secret["replication"] = replication_of(metadata)
        elif metadata is not None and metadata.locations:
            raise invalid_request(
                f'metadata of "{key}" names replication locations, but the store has location {self._api.location};'
                " regional secrets are not replicated"
            )
        elif metadata is not None and metadata.cmek_key_name:
            secret["customer_managed_encryption"] = {"kms_key_name": metadata.cmek_key_name}
        if metadata is not None:
            secret["annotations"] = metadata.annotations
            secret["topics"] = _topics(metadata.topics or ())
        request = {"parent": name.rpartition("/secrets/")[0], "secret_id": key, "secret": secret}
        await self._api.call("CreateSecret", request, key=key)

    async def _add(self, key: str, value: bytes) -> str:
        request = {"parent": self._api.secret(key), "payload": {"data": value}}
        return number_of((await self._api.call("AddSecretVersion", request, key=key)).name)

    def _foreign(self, key: str, owner: str) -> ProviderError:
        return ProviderError(
            ErrorReason.OWNERSHIP_CONFLICT,
            f"{self._api.asked('AddSecretVersion', key)} exists and was not created by External Secrets: it has no"
            f" label {MARK}: {owner}; choose another remoteKey, or add that label to hand it over",
        )

    # --- delete ------------------------------------------------------------------------------------------------------

    async def _delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        key = items[0].remote.key
        standing = Standing(await self._secret(key))
        if not standing.is_of(items[0].owner_token or OWNER):
            return [False] * len(items)
        if any(not item.remote.property for item in items):
            await self._remove(key, standing)
            return [True] * len(items)
        try:
            draft = Draft((await self._reader.current(key)).value)
        except ProviderError as missing:
            if not missing.is_not_found:
                raise
            return [False] * len(items)
        outcomes = [await removed(draft, item) for item in items]
        if any(outcome is True for outcome in outcomes):
            if draft.value is None:
                await self._remove(key, standing)
            else:
                await self._add(key, draft.value)
        return outcomes

    async def _remove(self, key: str, standing: Standing) -> None:
        request = {"name": self._api.secret(key), "etag": standing.secret.etag}
        await self._api.call("DeleteSecret", request, key=key)


def _storable(value: bytes | None, key: str) -> bytes:
    """Return the value; raise if Secret Manager cannot store it."""
    if not value:
        raise invalid_request(f'the value for "{key}" is empty, and Secret Manager keeps no empty values')
    if len(value) > MAX_BYTES:
        words = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secret Manager; split it'
        raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, words)
    return value


async def _has(name: str, draft: Draft, standing: Standing) -> bool:
    """Return whether a property exists; without a name, whether there is a value."""
    return standing.has_value and (not name or await draft.has(name))


def _topics(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def _writes(outcome: Pushed | ProviderError) -> bool:
    return isinstance(outcome, Pushed) and outcome.outcome is not PushOutcome.SKIPPED_EXISTS
