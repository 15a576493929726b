"""Reading parameters: ten to a call if the identity may read batches, else one by one.

| request | call |
|---|---|
| several values, also of versions and labels | GetParameters, 10 parameters each |
| one value, or one that a batch did not return | GetParameter |
| `metadataPolicy: Fetch` | ListTagsForResource: the tags as a JSON object |
| whether a parameter exists | GetParameter without decryption |

GetParameters is refused as a whole if one of its parameters is denied or has a name that AWS does not accept. Then the
parameters are read one by one, and those at fault stay out of batches for an hour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_aws.api import NO_BATCH_SECONDS, Api, Batching
from eso_provider_aws.errors import of_code
from eso_provider_aws.ownership import tags_of
from eso_sdk.batches import side_by_side
from eso_sdk.errors import backend_error, invalid_request, unsupported
from eso_sdk.extract import part_of
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import MetadataPolicy, RemoteRef, ValueMetadata
from kubebase.bounded import ExpiringDict

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
