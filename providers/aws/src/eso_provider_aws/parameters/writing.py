"""Writing parameters: all values pushed to one parameter become one new version, or none if nothing changed.

    read value and tags -> may we write it? -> set every item -> differs: PutParameter -> update tags

| existing parameter | what a push does |
|---|---|
| nothing | PutParameter with tags and overwrite off; if another writer created it first, the round starts again |
| ours | PutParameter with overwrite on if value or type differ; then tags, if the metadata names any |
| without our tag `managed-by` | nothing: OWNERSHIP_CONFLICT |

Parameter Store compares no versions. Writes of one session to one parameter wait for each other; between processes the
last writer wins.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import Api
from eso_provider_aws.errors import CallSubject
from eso_provider_aws.ownership import DESCRIPTION, MARK, decoded, foreign, listed, owner_of
from eso_provider_aws.parameters.reading import KIND, ParameterReader, about, name_to_write
from eso_sdk.drafts import Draft, removed, text_of
from eso_sdk.errors import invalid_request
from eso_sdk.provider import Pushed
from eso_sdk.pushmetadata import MetadataSpec
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import DeleteItem, PushItem, PushOutcome, PushPrecondition


class Tier(MetadataSpec, frozen=True, kw_only=True):
    """The tier of the parameter."""

    type: Literal["Standard", "Advanced", "Intelligent-Tiering"] = "Standard"
    policies: list[Any] | None = None
    """Expiration and notifications, as Parameter Store writes them."""


class ParameterMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    secret_type: Literal["String", "StringList", "SecureString"] | None = None
    """Absent keeps the type of a parameter that exists, and is String for a new one."""
    kms_key_id: str | None = msgspec.field(default=None, name="kmsKeyID")
    """Key that encrypts a SecureString; absent means alias/aws/ssm."""
    tier: Tier | None = None
    encode_as_decoded: bool | None = None
    """Whether values of a whole Secret are stored as text; absent means base64."""
    tags: dict[str, str] | None = None
    """All tags of the parameter, besides the mark of External Secrets; absent leaves tags alone."""
    description: str | None = None


def metadata_of(item: PushItem | DeleteItem) -> ParameterMetadata:
    """Decode the metadata of one item."""
    key = item.remote.key
    found = decoded(item.provider_metadata, ParameterMetadata, key)
    if found.tier is not None and found.tier.policies and found.tier.type == "Standard":
        raise invalid_request(f'metadata of "{key}": tier.policies needs tier.type Advanced or Intelligent-Tiering')
    return found


def merged(metadata: Iterable[ParameterMetadata]) -> ParameterMetadata:
    """Merge the metadata of several items of one parameter; for each field, the last item that sets it wins."""
    result = ParameterMetadata()
    for each in metadata:
        names = ParameterMetadata.__struct_fields__
        named = {name: value for name in names if (value := getattr(each, name)) is not None}
        result = msgspec.structs.replace(result, **named)
    return result


STANDARD_LIMIT: Final = 4096
ADVANCED_LIMIT: Final = 8192
"""Characters of a value."""
DEFAULT_KEY: Final = "alias/aws/ssm"

_STANDARD: Final = " of the Standard tier; set tier.type Advanced or Intelligent-Tiering"
_POLICIES: Final = "Parameter Store does not accept tier.policies; check types, attributes and number of the policies"
_REFUSALS: Final = {
    "HierarchyTypeMismatchException": "it has another type, which Parameter Store does not change; delete it, or change"
    " secretType",
    "UnsupportedParameterType": "Parameter Store does not have the type that secretType names; correct it",
    "InvalidKeyId": "the KMS key cannot be used; check that kmsKeyID names a key that exists and is enabled",
    "ParameterMaxVersionLimitExceeded": "its oldest version has a label, so no other fits; move or remove the label",
    "ParameterLimitExceeded": "the account has no room for another parameter; delete some, or set tier.type Advanced",
    "ParameterPatternMismatchException": "the value does not match the pattern that the parameter demands",
    "HierarchyLevelLimitExceededException": "its name has more than 15 levels; shorten it",
    "InvalidPolicyTypeException": _POLICIES,
    "InvalidPolicyAttributeException": _POLICIES,
    "IncompatiblePolicyException": _POLICIES,
    "PoliciesLimitExceededException": _POLICIES,
}
"""Errors that only PutParameter has."""


def payload_of(item: PushItem, metadata: ParameterMetadata) -> bytes:
    """Return the bytes of one key, or the whole Secret as a JSON object.

    Its values are in base64, unless the metadata disables it.
    """
    payload, key = item.payload, item.remote.key
    if isinstance(payload, SecretBytes):
        return text_of(payload.reveal(), key).encode()
    if metadata.encode_as_decoded:
        members = {name: text_of(value.reveal(), key, name) for name, value in payload.items()}
    else:
        members = {name: base64.b64encode(value.reveal()).decode() for name, value in payload.items()}
    return msgspec.json.encode(members, order="sorted")


def put_request(name: str, value: bytes, metadata: ParameterMetadata, *, type_now: str) -> dict[str, Any]:
    """Return the fields of PutParameter; `type_now` is the type of an existing parameter, else empty."""
    text = value.decode()
    _check_size(name, text, metadata)
    kind = metadata.secret_type or type_now or "String"
    request: dict[str, Any] = {"Name": name, "Value": text, "Type": kind}
    if kind == "SecureString":
        request["KeyId"] = metadata.kms_key_id or DEFAULT_KEY
    if metadata.description is not None:
        request["Description"] = metadata.description
    tier = metadata.tier
    # A parameter cannot go back to Standard, so an existing one is not changed to it.
    if tier is not None and (tier.type != "Standard" or not type_now):
        request["Tier"] = tier.type
    if tier is not None and tier.policies is not None and tier.type != "Standard":
        request["Policies"] = msgspec.json.encode(tier.policies, order="sorted").decode()
    return request


def refused_write(failed: ProviderError, subject: CallSubject, request: dict[str, Any]) -> ProviderError:
    """Return the error of a rejected PutParameter, with advice."""
    code = failed.backend_code
    if message := _REFUSALS.get(code):
        reason, retry = ErrorReason.INVALID_REQUEST, RetryClass.BACKOFF
        return ProviderError(reason, f"{subject}: {message} ({code})", backend_code=code, retry=retry)
    # Without a tier, the account's default limits the size of a value, and only the service knows it.
    is_large = len(request["Value"].encode()) > STANDARD_LIMIT and "Tier" not in request
    if failed.reason is ErrorReason.INVALID_REQUEST and is_large:
        return _too_large(request["Name"], STANDARD_LIMIT, _STANDARD)
    return failed


def _check_size(name: str, text: str, metadata: ParameterMetadata) -> None:
    if not text:
        raise invalid_request(f"the value for {about(name)} is empty, and Parameter Store stores no empty values")
    if len(text) > ADVANCED_LIMIT:
        raise _too_large(name, ADVANCED_LIMIT, " of Parameter Store; split it, or use Secrets Manager")
    if len(text) > STANDARD_LIMIT and metadata.tier is not None and metadata.tier.type == "Standard":
        raise _too_large(name, STANDARD_LIMIT, _STANDARD)


def _too_large(name: str, limit: int, rest: str) -> ProviderError:
    message = f"the value for {about(name)} has more than {limit} characters, the limit{rest}"
    return ProviderError(ErrorReason.PAYLOAD_TOO_LARGE, message)


ATTEMPTS: Final = 3
_RESERVED: Final = "aws:"
"""The prefix of tags that AWS sets itself; they cannot be removed."""


class ParameterConflictError(Exception):
    """Another writer created the parameter between our read and our write."""


@dataclass(frozen=True, slots=True)
class ParameterState:
    """The parameter before a write."""

    value: bytes | None = field(default=None, repr=False)
    type: str = ""
    version: int = 0
    tags: dict[str, str] = field(default_factory=dict)

    def is_of(self, owner: str) -> bool:
        return self.tags.get(MARK) == owner


class ParameterWriter:
    """Writes the parameters of one session."""

    def __init__(self, api: Api, reader: ParameterReader) -> None:
        self._api = api
        self._reader = reader
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def push(self, items: Sequence[PushItem], _call_key: str = "") -> list[Pushed | ProviderError]:
        """Write all items of one key; return one outcome for each."""
        name = name_to_write(self._reader.key(items[0].remote.key))
        async with self._locked(name):
            for _ in range(ATTEMPTS):
                try:
                    return await self._push(name, items)
                except ParameterConflictError:
                    continue
        raise self._contended(name)

    async def delete(self, items: Sequence[DeleteItem], _call_key: str = "") -> list[bool | ProviderError]:
        """Remove all items of one key; return for each whether it existed."""
        try:
            name = name_to_write(self._reader.key(items[0].remote.key))
        except ProviderError:
            return [False] * len(items)  # nothing can have been pushed parameter
        async with self._locked(name):
            state = await self._read_state(name, valued=any(item.remote.property for item in items))
            if state is None or not state.is_of(owner_of(items)):
                return [False] * len(items)
            draft = Draft(state.value)
            outcomes = [await removed(draft, item) for item in items]
            if True not in outcomes:
                return outcomes
            if draft.value is not None:
                metadata = merged(metadata_of(item) for item in items)
                await self._overwrite(name, draft.value, metadata, state)
            elif not await self._remove(name):
                return [False] * len(items)
            return outcomes

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        """Serialise the writes of one store to one parameter."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            yield

    # --- one attempt -------------------------------------------------------------------------------------------------

    async def _push(self, name: str, items: Sequence[PushItem]) -> list[Pushed | ProviderError]:
        state = await self._read_state(name)
        owner = owner_of(items)
        draft = Draft(state.value if state else None)
        items_metadata: list[ParameterMetadata] = []
        outcomes = [await self._set(item, draft, state, items_metadata) for item in items]
        if not items_metadata or draft.value is None:
            return outcomes
        metadata = merged(items_metadata)
        if state is None:
            version = await self._create(name, draft.value, metadata, owner)
            return [_reported(outcome, PushOutcome.CREATED, version) for outcome in outcomes]
        version, changed = state.version, False
        if draft.value != state.value or metadata.secret_type not in (None, state.type):
            version, changed = await self._overwrite(name, draft.value, metadata, state), True
        changed |= await self._align_tags(name, metadata, state, owner)
        outcome = PushOutcome.UPDATED if changed else PushOutcome.UNCHANGED
        return [_reported(each, outcome, version) for each in outcomes]

    async def _set(
        self, item: PushItem, draft: Draft, state: ParameterState | None, items_metadata: list[ParameterMetadata]
    ) -> Pushed | ProviderError:
        """Put one item into the draft, and collect its metadata."""
        try:
            if item.precondition is PushPrecondition.IF_ABSENT and state and await draft.has(item.remote.property):
                return Pushed(PushOutcome.SKIPPED_EXISTS)
            if state is not None and not state.is_of(owner_of([item])):
                name = self._reader.key(item.remote.key)
                raise foreign(str(self._api.subject("PutParameter", about(name))))
            metadata = metadata_of(item)
            await draft.put(item.remote.key, item.remote.property, payload_of(item, metadata))
        except ProviderError as refused:
            return refused
        items_metadata.append(metadata)
        return Pushed(PushOutcome.UNCHANGED)

    async def _align_tags(self, name: str, metadata: ParameterMetadata, state: ParameterState, owner: str) -> bool:
        """Set exactly the tags of the metadata, if it names any; return whether a tag changed."""
        if metadata.tags is None:
            return False
        desired = {**metadata.tags, MARK: owner}
        obsolete = [key for key in state.tags if key not in desired and not key.startswith(_RESERVED)]
        missing = {key: value for key, value in desired.items() if state.tags.get(key) != value}
        of = {"about": about(name), "ResourceType": KIND, "ResourceId": name}
        if obsolete:
            await self._api.call("RemoveTagsFromResource", **of, TagKeys=obsolete)
        if missing:
            await self._api.call("AddTagsToResource", **of, Tags=listed(missing))
        return bool(obsolete or missing)

    # --- the service -------------------------------------------------------------------------------------------------

    async def _read_state(self, name: str, *, valued: bool = True) -> ParameterState | None:
        """Read the parameter, with its value if needed; None if it does not exist."""
        try:
            if not valued:
                return ParameterState(b"", tags=await self._reader.tags(name))
            parameter = await self._reader.current(name)
            return ParameterState(parameter.value, parameter.type, parameter.version, await self._reader.tags(name))
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise

    async def _create(self, name: str, value: bytes, metadata: ParameterMetadata, owner: str) -> int:
        request = put_request(name, value, metadata, type_now="")
        request |= {"Tags": listed({**(metadata.tags or {}), MARK: owner}), "Overwrite": False}
        request.setdefault("Description", DESCRIPTION)
        try:
            return await self._put(name, request)
        except ProviderError as failed:
            if failed.reason is ErrorReason.ALREADY_EXISTS:
                raise ParameterConflictError from None
            raise

    async def _overwrite(self, name: str, value: bytes, metadata: ParameterMetadata, state: ParameterState) -> int:
        return await self._put(name, put_request(name, value, metadata, type_now=state.type) | {"Overwrite": True})

    async def _put(self, name: str, request: dict[str, Any]) -> int:
        try:
            response = await self._api.call("PutParameter", about=about(name), **request)
        except ProviderError as failed:
            raise refused_write(failed, self._api.subject("PutParameter", about(name)), request) from None
        return int(response.get("Version", 0))

    async def _remove(self, name: str) -> bool:
        try:
            await self._api.call("DeleteParameter", about=about(name), Name=name)
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                return False
            raise
        return True

    def _contended(self, name: str) -> ProviderError:
        message = f"{self._api.subject('PutParameter', about(name))} is being written by others; pushed again later"
        return ProviderError(ErrorReason.PRECONDITION_FAILED, message)


def _reported(outcome: Pushed | ProviderError, made: PushOutcome, version: int) -> Pushed | ProviderError:
    """Return the outcome of an item: its effect on the draft, or its error."""
    if not isinstance(outcome, Pushed) or outcome.outcome is PushOutcome.SKIPPED_EXISTS:
        return outcome
    return Pushed(made, str(version))
