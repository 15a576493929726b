"""Writing secrets: everything that is pushed to one secret becomes one new version, or none if nothing changed.

    GetSecret -> may we write it? -> the latest value -> set every item -> labels, annotations, topics -> equal: stop
    -> AddSecretVersion

| existing secret | what a push does |
|---|---|
| nothing | CreateSecret, AddSecretVersion; if another writer created it first, the secret is read again |
| with our label `managed-by` | UpdateSecret if its settings differ, AddSecretVersion if its value differs |
| without our label | nothing: OWNERSHIP_CONFLICT, also for a property |

Writes of this process to one secret wait for each other. Settings and deletion compare the etag. Versions have none:
between processes the last writer wins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from eso_provider_gcp.api import Api
from eso_provider_gcp.reading import UNREADABLE, Reader, SecretValue, number_of
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_sdk.push import Draft, MetadataSpec, decode_metadata, payload_of, removed
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition

MARK: Final = "managed-by"
OWNER: Final = "external-secrets"
"""The label of secrets that External Secrets may overwrite and delete."""


class SecretMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """All annotations of the secret."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the secret, besides the mark of External Secrets."""
    topics: list[str] | None = None
    """Pub/Sub topics that get the changes: projects/P/topics/T; absent leaves topics alone."""
    merge_policy: Literal["", "Replace", "Merge"] = ""
    """What becomes of labels that the secret already has: Replace (default) removes them, Merge keeps them."""
    cmek_key_name: str = ""
    """Key of Cloud KMS that encrypts the secret; set at creation."""
    replication_location: str = ""
    """The only location of the secret; set at creation."""
    replication_locations: list[str] = msgspec.field(default_factory=list)
    """The locations of the secret; set at creation."""

    @property
    def locations(self) -> list[str]:
        """Return where the secret is unchanged; empty lets Google choose."""
        return self.replication_locations or ([self.replication_location] if self.replication_location else [])


def metadata_of(items: Sequence[PushItem]) -> SecretMetadata | None:
    """Decode the metadata of the items of one secret; the last item that has some counts. None if there is none."""
    found: SecretMetadata | None = None
    for item in items:
        if not item.provider_metadata:
            continue
        if item.remote.property:
            raise invalid_request(
                f'metadata of "{item.remote.key}" cannot be set by an entry with remoteRef.property; set it by an entry'
                " that pushes the whole value"
            )
        found = decode_metadata(item.provider_metadata, SecretMetadata, item.remote.key)
    return found


def labels_of(metadata: SecretMetadata | None, existing: Mapping[str, str], owner: str) -> dict[str, str]:
    """Return the labels that a secret should have."""
    if metadata is None:
        return {**existing, MARK: owner}
    unchanged = existing if metadata.merge_policy == "Merge" else {}
    return {**metadata.labels, **unchanged, MARK: owner}


def replication_of(metadata: SecretMetadata | None) -> dict[str, Any]:
    """Return the replication of a new secret."""
    encryption: dict[str, Any] = {}
    if metadata is not None and metadata.cmek_key_name:
        encryption = {"customer_managed_encryption": {"kms_key_name": metadata.cmek_key_name}}
    if metadata is None or not metadata.locations:
        return {"automatic": encryption}
    return {"user_managed": {"replicas": [{"location": each, **encryption} for each in metadata.locations]}}


ATTEMPTS: Final = 3
MAX_BYTES: Final = 64 * 1024
BEING_CREATED: Final = timedelta(seconds=60)
"""A secret without a version that is younger belongs to the writer that is about to add the first one."""
_AGAIN: Final = frozenset({ErrorReason.ALREADY_EXISTS, ErrorReason.PRECONDITION_FAILED, ErrorReason.SECRET_NOT_FOUND})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SecretState:
    """A secret before a write."""

    secret: Any = None
    """As the service describes it; None if there is none."""
    latest: SecretValue | None = None
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
        return await self._serialised(key, lambda: self._push(key, items, owner, metadata))

    async def delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        return await self._serialised(items[0].remote.key, lambda: self._delete(items))

    async def _serialised(self, key: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Serialise the writes to one secret. Read it again if another process changed it."""
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
        state = await self._read_state(key, owner, items)
        draft = Draft(state.latest.value if state.latest else None)
        before = draft.value
        outcomes = [await self._set(item, draft, state, owner) for item in items]
        if not any(_writes(outcome) for outcome in outcomes):
            return outcomes
        value = _storable(draft.value, key)
        aligned = await self._align(key, state, owner, metadata)
        if state.latest is not None and draft.value == before:
            done = Pushed(PushOutcome.UPDATED if aligned else PushOutcome.UNCHANGED, state.latest.version)
            return [done if _writes(outcome) else outcome for outcome in outcomes]
        version = await self._add(key, value)
        return [Pushed(each.outcome, version) if isinstance(each, Pushed) else each for each in outcomes]

    async def _read_state(self, key: str, owner: str, items: Sequence[PushItem]) -> SecretState:
        """Read the secret. A foreign one is read only if a precondition needs it: that may be denied."""
        secret = await self._secret(key)
        found = SecretState(secret)
        guarded = any(item.precondition is PushPrecondition.IF_ABSENT for item in items)
        if secret is None or not (found.is_of(owner) or guarded):
            return found
        try:
            return SecretState(secret, await self._reader.current(key))
        except ProviderError as failed:
            if failed.backend_code in UNREADABLE:
                return SecretState(secret, unreadable=failed)
            if not failed.is_not_found:
                raise
        if guarded and self._api.clock.now() - secret.create_time < BEING_CREATED:
            message = f"{self._api.subject('CreateSecret', key)} is being created by another writer; retried later"
            raise ProviderError(ErrorReason.BACKEND_ERROR, message)
        return found

    async def _secret(self, key: str) -> Any:
        try:
            return await self._api.call("GetSecret", {"name": self._api.secret(key)}, key=key)
        except ProviderError as missing:
            if missing.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise
            return None

    async def _set(self, item: PushItem, draft: Draft, state: SecretState, owner: str) -> Pushed | ProviderError:
        """Put one item into the draft."""
        name = item.remote.property
        try:
            if item.precondition is PushPrecondition.IF_ABSENT and await _has(name, draft, state):
                return Pushed(PushOutcome.SKIPPED_EXISTS, state.latest.version if state.latest else "")
            if state.secret is not None and not state.is_of(owner):
                return self._foreign(item.remote.key, owner)
            if name and state.unreadable is not None and state.unreadable.backend_code == "DISABLED":
                return state.unreadable
            changed = await draft.put(item.remote.key, name, payload_of(item))
        except ProviderError as refused:
            return refused
        if not state.has_value:
            return Pushed(PushOutcome.CREATED)
        return Pushed(PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED)

    async def _align(self, key: str, state: SecretState, owner: str, metadata: SecretMetadata | None) -> bool:
        """Create the secret, or give it the settings of the push; return whether anything changed."""
        secret = state.secret
        if secret is None:
            await self._create(key, owner, metadata)
            return True
        desired: dict[str, Any] = {"labels": labels_of(metadata, dict(secret.labels), owner)}
        existing: dict[str, Any] = {"labels": dict(secret.labels)}
        if metadata is not None:
            desired["annotations"], existing["annotations"] = metadata.annotations, dict(secret.annotations)
        if metadata is not None and metadata.topics is not None:
            desired["topics"] = sorted(set(metadata.topics))
            existing["topics"] = sorted(topic.name for topic in secret.topics)
        differing = {name: value for name, value in desired.items() if value != existing[name]}
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
            f"{self._api.subject('AddSecretVersion', key)} exists and was not created by External Secrets: it has no"
            f" label {MARK}: {owner}; choose another remoteKey, or add that label to hand it over",
        )

    # --- delete ------------------------------------------------------------------------------------------------------

    async def _delete(self, items: Sequence[DeleteItem]) -> list[bool | ProviderError]:
        key = items[0].remote.key
        state = SecretState(await self._secret(key))
        if not state.is_of(items[0].owner_token or OWNER):
            return [False] * len(items)
        if any(not item.remote.property for item in items):
            await self._remove(key, state)
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
                await self._remove(key, state)
            else:
                await self._add(key, draft.value)
        return outcomes

    async def _remove(self, key: str, state: SecretState) -> None:
        request = {"name": self._api.secret(key), "etag": state.secret.etag}
        await self._api.call("DeleteSecret", request, key=key)


def _storable(value: bytes | None, key: str) -> bytes:
    """Return the value; raise if Secret Manager cannot store it."""
    if not value:
        raise invalid_request(f'the value for "{key}" is empty, and Secret Manager stores no empty values')
    if len(value) > MAX_BYTES:
        message = f'the value for "{key}" has more than {MAX_BYTES} bytes, the limit of Secret Manager; split it'
        raise ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, message)
    return value


async def _has(name: str, draft: Draft, state: SecretState) -> bool:
    """Return whether a property exists; without a name, whether there is a value."""
    return state.has_value and (not name or await draft.has(name))


def _topics(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def _writes(outcome: Pushed | ProviderError) -> bool:
    return isinstance(outcome, Pushed) and outcome.outcome is not PushOutcome.SKIPPED_EXISTS
