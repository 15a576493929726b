"""AWS Parameter Store: reads in batches, finds, and writes that become one new version for each parameter.

A version or label is split off the key. Versions are the version numbers of Parameter Store.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Literal
from weakref import WeakValueDictionary

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import (
    DESCRIPTION,
    MARK,
    NO_BATCH_SECONDS,
    Api,
    Batching,
    decoded,
    foreign,
    listed,
    owner_of,
    tags_of,
)
from eso_provider_aws.changes.listings import PARAMETERS
from eso_provider_aws.clients import PARAMETER_STORE
from eso_provider_aws.errors import CallSubject, of_code
from eso_provider_aws.kinds import ParameterStoreConfig
from eso_provider_aws.store import ValueFinder, ValueReader, ValueStore, ValueWriter
from eso_sdk.errors import backend_error, invalid_request, unsupported
from eso_sdk.extract import part_of
from eso_sdk.matching import Matcher
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Pushed, Value
from eso_sdk.push import Draft, MetadataSpec, removed, text_of
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import (
    DeleteItem,
    FindQuery,
    Found,
    MetadataPolicy,
    PushItem,
    PushOutcome,
    PushPrecondition,
    RemoteRef,
    ValueMetadata,
)
from kubebase.bounded import ExpiringDict

# --- Reading parameters: ten to a call if the identity may read batches, else one by one -----------------------------
#
# | request | call |
# |---|---|
# | several values, also of versions and labels | GetParameters, 10 parameters each |
# | one value, or one that a batch did not return | GetParameter |
# | `metadataPolicy: Fetch` | ListTagsForResource: the tags as a JSON object |
# | whether a parameter exists | GetParameter without decryption |
#
# GetParameters is refused as a whole if one of its parameters is denied or has a name that AWS does not accept. Then
# the parameters are read one by one, and those at fault stay out of batches for an hour.

_ARN: Final = "arn:"
_PARTS_OF_ARN: Final = 6


@dataclass(frozen=True, slots=True)
class Address:
    """One version of a parameter; the latest one without a selector."""

    name: str
    """Name or ARN."""
    selector: str = ""
    """Number of a version, or a label."""

    def __str__(self) -> str:
        return f"{self.name}:{self.selector}" if self.selector else self.name

    @property
    def is_arn(self) -> bool:
        return self.name.startswith(_ARN)

    @property
    def parameter(self) -> str:
        """Return the same text for every spelling of a parameter.

        An ARN does not show whether the name begins with a slash.
        """
        return self.name.rpartition(":parameter/")[2].lstrip("/")


def address_of(key: str, version: str = "") -> Address:
    """Split a key into name and selector. Names contain no colons."""
    parts = key.strip().split(":")
    count = _PARTS_OF_ARN if key.startswith(_ARN) else 1
    name, selector = ":".join(parts[:count]), ":".join(parts[count:])
    if selector and version:
        raise invalid_request(f'"{key}" ends with a version or label, and version names another; remove one of them')
    return Address(name, selector or version)


def name_to_write(key: str) -> str:
    """Return the name of the parameter to write. Raise for versions and for parameters of another account."""
    address = address_of(key)
    if address.is_arn:
        raise invalid_request(f'"{key}" is an ARN, and Parameter Store writes by name only; use the parameter\'s name')
    if address.selector:
        raise invalid_request(f'"{key}" names a version or label, which cannot be written; remove what follows ":"')
    return address.name


BATCH: Final = 10
MAX_APART: Final = 10_000
KIND: Final = "Parameter"
"""The resource type of a parameter in tag calls."""

_OF_ONE: Final = frozenset({ErrorReason.PERMISSION_DENIED, ErrorReason.INVALID_REQUEST})
"""Failures of a batch that one of its parameters may cause."""


@dataclass(frozen=True, slots=True)
class ParameterRequest:
    """The content of one read. References with equal requests share the result."""

    address: Address
    metadata: bool = False

    @property
    def about(self) -> str:
        return about(str(self.address))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One version of a parameter, or its tags."""

    value: bytes = field(repr=False)
    version: int = 0
    type: str = ""
    modified: datetime | None = None

    @classmethod
    def of(cls, response: dict[str, Any]) -> Parameter:
        modified = response.get("LastModifiedDate")
        return cls(response["Value"].encode(), response.get("Version", 0), response.get("Type", ""), modified)

    @property
    def metadata(self) -> ValueMetadata:
        # References to secrets of Secrets Manager have version 0, whatever their value is.
        return ValueMetadata(provider_version=str(self.version or ""), updated_at=self.modified)


ParameterResult = Parameter | ProviderError


class ParameterReader:
    """Reads the parameters of one session."""

    def __init__(self, api: Api, prefix: str, gate: asyncio.Semaphore) -> None:
        self.batching = Batching(api, "GetParameters", what="ten parameters")
        self._api = api
        self._prefix = prefix
        self._gate = gate
        self._apart: ExpiringDict[ParameterRequest, None] = ExpiringDict(MAX_APART, api.clock)

    def key(self, key: str) -> str:
        """Return the parameter name of a remote key."""
        return f"{self._prefix}{key}"

    def request(self, ref: RemoteRef) -> ParameterRequest:
        """Return the request of a reference. Tags have no versions."""
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return ParameterRequest(Address(address_of(self.key(ref.key)).name), metadata=True)
        return ParameterRequest(address_of(self.key(ref.key), ref.version))

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        requests = [self._request_or_error(ref) for ref in refs]
        distinct = dict.fromkeys(request for request in requests if isinstance(request, ParameterRequest))
        results = await self.results(distinct)
        return [
            await _value(results[request] if isinstance(request, ParameterRequest) else request, ref)
            for request, ref in zip(requests, refs, strict=True)
        ]

    async def results(self, requests: Iterable[ParameterRequest]) -> dict[ParameterRequest, ParameterResult]:
        """ParameterResult every request with as few calls as possible."""
        groups = self._groups(requests)

        async def read_group(group: list[ParameterRequest]) -> dict[ParameterRequest, ParameterResult]:
            return await (self._batch(group) if len(group) > 1 else self._one_by_one(group))

        def late(group: list[ParameterRequest], error: ProviderError) -> dict[ParameterRequest, ParameterResult]:
            return dict.fromkeys(group, error)

        done = await side_by_side(groups, read_group, late=late, gate=self._gate, clock=self._api.clock)
        return {request: found for part in done for request, found in part.items()}

    async def check(self, ref: RemoteRef) -> Check:
        """Return whether a reference leads to a value. Only properties and tags need its value."""
        if ref.property or ref.metadata_policy is MetadataPolicy.FETCH:
            (found,) = await self.read([ref])
            if isinstance(found, ProviderError):
                raise found
            return Check(exists=True, version=found.metadata.provider_version)
        parameter = await self._one(self.request(ref), decrypted=False)
        return Check(exists=True, version=parameter.metadata.provider_version)

    async def current(self, name: str) -> Parameter:
        """Return the current value, for a push to compare with."""
        return await self._one(ParameterRequest(Address(name)))

    async def tags(self, name: str) -> dict[str, str]:
        """Return the tags of a parameter."""
        response = await self._api.call("ListTagsForResource", about=about(name), ResourceType=KIND, ResourceId=name)
        return tags_of(response.get("TagList", ()))

    # --- batches -----------------------------------------------------------------------------------------------------

    def _groups(self, requests: Iterable[ParameterRequest]) -> list[list[ParameterRequest]]:
        """Return the requests grouped by call.

        A batch has at most one version of a parameter, because results are matched by name.
        """
        groups: list[list[ParameterRequest]] = []
        batches: list[dict[str, ParameterRequest]] = []
        for request in requests:
            if request.metadata or self.batching.is_denied or request in self._apart:
                groups.append([request])
                continue
            name = request.address.parameter
            room = (batch for batch in batches if len(batch) < BATCH and name not in batch)
            if (batch := next(room, None)) is None:
                batches.append(batch := {})
            batch[name] = request
        return [*(list(batch.values()) for batch in batches), *groups]

    async def _batch(self, group: list[ParameterRequest]) -> dict[ParameterRequest, ParameterResult]:
        names = [str(request.address) for request in group]
        subject = f"{len(group)} parameters"
        try:
            response = await self._api.call("GetParameters", about=subject, Names=names, WithDecryption=True)
        except ProviderError as failed:
            if failed.reason not in _OF_ONE:
                return dict.fromkeys(group, failed)
            return await self._sorted_out(group, failed)
        found = {Address(each["Name"]).parameter: Parameter.of(each) for each in response.get("Parameters", ())}
        absent = frozenset(response.get("InvalidParameters", ()))
        return {
            request: found.get(request.address.parameter) or await self._missing(request, absent) for request in group
        }

    async def _missing(self, request: ParameterRequest, absent: frozenset[str]) -> ParameterResult:
        """Return the error for a request that a batch left out."""
        name = str(request.address)
        subject = self._api.subject("GetParameters", request.about)
        if name not in absent:
            return backend_error(f"{subject}: the service left it out of its response to GetParameters")
        if request.address.selector or request.address.is_arn:
            # A batch does not report which is missing: the parameter, its version, or the permission to a shared one.
            return (await self._one_by_one([request]))[request]
        return of_code("ParameterNotFound", "", self._api.subject("GetParameter", request.about))

    async def _sorted_out(
        self, group: list[ParameterRequest], failed: ProviderError
    ) -> dict[ParameterRequest, ParameterResult]:
        """Read the parameters of a rejected batch one by one, and remember those that caused it."""
        found = await self._one_by_one(group)
        faulty = [request for request, result in found.items() if _reason(result) in _OF_ONE]
        for request in faulty:
            self._apart.put(request, None, NO_BATCH_SECONDS)
        readable = all(isinstance(result, Parameter) or result.is_not_found for result in found.values())
        if readable and failed.reason is ErrorReason.PERMISSION_DENIED:
            self.batching.deny()
        return found

    # --- one by one --------------------------------------------------------------------------------------------------

    async def _one_by_one(self, group: list[ParameterRequest]) -> dict[ParameterRequest, ParameterResult]:
        found: dict[ParameterRequest, ParameterResult] = {}
        for request in group:
            try:
                found[request] = await (self._tags(request) if request.metadata else self._one(request))
                self._apart.discard(request)
            except ProviderError as failed:
                found[request] = failed
        return found

    async def _one(self, request: ParameterRequest, *, decrypted: bool = True) -> Parameter:
        try:
            return Parameter.of(await self._get(request.about, str(request.address), decrypted=decrypted))
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND and request.address.selector:
                raise await self._absence(request) from None
            raise

    async def _tags(self, request: ParameterRequest) -> Parameter:
        try:
            tags = await self.tags(request.address.name)
        except ProviderError as failed:
            if failed.reason is ErrorReason.SECRET_NOT_FOUND:
                raise await self._absence(request) from None
            raise
        return Parameter(msgspec.json.encode(tags, order="sorted"))

    async def _absence(self, request: ParameterRequest) -> ProviderError:
        """Distinguish a parameter that does not exist from one without that version, or whose tags cannot be listed."""
        name = request.address.name
        try:
            await self._get(about(name), name, decrypted=False)
        except ProviderError as failed:
            return failed
        subject = self._api.subject("GetParameter", request.about)
        if request.metadata:
            return unsupported(f"{subject} exists, but its tags cannot be listed; name it without ARN and account")
        return of_code("ParameterVersionNotFound", "", subject)

    async def _get(self, subject: str, name: str, *, decrypted: bool) -> dict[str, Any]:
        response = await self._api.call("GetParameter", about=subject, Name=name, WithDecryption=decrypted)
        found: dict[str, Any] = response["Parameter"]
        return found

    def _request_or_error(self, ref: RemoteRef) -> ParameterRequest | ProviderError:
        try:
            return self.request(ref)
        except ProviderError as wrong:
            return wrong


def about(name: str) -> str:
    """Return the name of a parameter in errors."""
    return f'parameter "{name}"'


def _reason(result: ParameterResult) -> ErrorReason | None:
    return result.reason if isinstance(result, ProviderError) else None


async def _value(result: ParameterResult, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    try:
        return Value(SecretBytes(await part_of(result.value, ref)), result.metadata)
    except ProviderError as missing:
        return missing


# --- Finding parameters: by hierarchy with values at once, or listed first and read ten at a time --------------------
#
# | query | calls |
# |---|---|
# | names below a path | GetParametersByPath, recursive |
# | the same, where that is denied | DescribeParameters, then GetParameters |
# | tags | DescribeParameters with a filter for each tag, then GetParameters |
#
# The root has all parameters, also those whose names do not begin with a slash.


ROOT: Final = "/"
PAGE: Final = 50
"""Most that DescribeParameters lists at a time."""
READ_AT_ONCE: Final = 100
"""Names that are read together; full batches, however few names of a page match."""


class ParameterFinder:
    """Finds parameters of one session."""

    def __init__(self, api: Api, reader: ParameterReader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching parameters with their values. A name wins over tags."""
        path = f"/{query.path.strip('/')}"
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        if query.tags and not query.name_regexp:
            tags = [_filter(f"tag:{key}", "Equals", value) for key, value in query.tags.items()]
            async for found in self._listed(tags, path, matcher):
                yield found
            return
        yielded: set[str] = set()
        try:
            async for found in self._below(path, matcher):
                yielded.add(found.key)
                yield found
        except ProviderError as failed:
            if failed.reason is not ErrorReason.PERMISSION_DENIED:
                raise
            # The call itself may be denied, or the KMS key of a parameter that does not even match.
            async for found in self._listed([], path, matcher, denied=failed):
                if found.key not in yielded:
                    yield found

    async def _below(self, path: str, matcher: Matcher) -> AsyncIterator[Found]:
        about = f'parameters below "{path}"'
        async for page in self._api.pages(
            "GetParametersByPath", about=about, Path=path, Recursive=True, WithDecryption=True
        ):
            for entry in page.get("Parameters", ()):
                if await matcher.accepts(entry["Name"]):
                    yield _found(entry["Name"], Parameter.of(entry))

    async def _listed(
        self, filters: Sequence[dict[str, Any]], path: str, matcher: Matcher, *, denied: ProviderError | None = None
    ) -> AsyncIterator[Found]:
        """List names, then read those that match. `denied` is the error that made the listing necessary."""
        below = [] if path == ROOT else [_filter("Path", "Recursive", path)]
        unread: list[str] = []
        async for names in self._names([*filters, *below], path, denied):
            unread += [name for name in names if await matcher.accepts(name)]
            while len(unread) >= READ_AT_ONCE:
                for found in await self._values(unread[:READ_AT_ONCE]):
                    yield found
                del unread[:READ_AT_ONCE]
        for found in await self._values(unread):
            yield found

    async def _names(
        self, filters: list[dict[str, Any]], path: str, denied: ProviderError | None
    ) -> AsyncIterator[list[str]]:
        about = f'parameters below "{path}"'
        try:
            async for page in self._api.pages(
                "DescribeParameters", about=about, ParameterFilters=filters, MaxResults=PAGE
            ):
                yield [entry["Name"] for entry in page.get("Parameters", ())]
        except ProviderError as failed:
            # The permission to read a hierarchy is the one to name: it needs fewer calls.
            raise (denied if denied and failed.reason is ErrorReason.PERMISSION_DENIED else failed) from None

    async def _values(self, names: Sequence[str]) -> list[Found]:
        """Return the values of listed parameters.

        Parameters deleted since then are left out; other errors are raised.
        """
        results = await self._reader.results(ParameterRequest(Address(name)) for name in names)
        found: list[Found] = []
        for request, result in results.items():
            if isinstance(result, Parameter):
                found.append(_found(request.address.name, result))
            elif result.reason is not ErrorReason.SECRET_NOT_FOUND:
                raise result
        return found


def _filter(key: str, option: str, value: str) -> dict[str, Any]:
    return {"Key": key, "Option": option, "Values": [value]}


def _found(name: str, parameter: Parameter) -> Found:
    return Found(name, SecretBytes(parameter.value), parameter.metadata)


# ---------------------------------------------------------------------------------------------------------------------
# Writing parameters: all values pushed to one parameter become one new version, or none if nothing changed.
#
#     read value and tags -> may we write it? -> set every item -> differs: PutParameter -> update tags
#
# | existing parameter | what a push does |
# |---|---|
# | nothing | PutParameter with tags and overwrite off; if another writer created it first, the round starts again |
# | ours | PutParameter with overwrite on if value or type differ; then tags, if the metadata names any |
# | without our tag `managed-by` | nothing: OWNERSHIP_CONFLICT |
#
# Parameter Store compares no versions. Writes of one session to one parameter wait for each other; between processes
# the last writer wins.


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


# --- An opened store of Parameter Store ------------------------------------------------------------------------------


class ParametersStore(ValueStore[ParameterStoreConfig]):
    """Parameters of one region of one account."""

    SERVICE = PARAMETER_STORE
    SOURCE = PARAMETERS
    API_NAME: ClassVar[str] = "AWS/ParameterStore"

    def parts(self) -> tuple[ValueReader, ValueFinder, ValueWriter]:
        reader = ParameterReader(self.api, self.config.prefix, self.gate)
        return reader, ParameterFinder(self.api, reader), ParameterWriter(self.api, reader)
