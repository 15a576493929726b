"""Reading objects. References to one object and version share one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_azure import vault as objects
from eso_provider_azure.vault import Api, Kind, Name, Stored, tags_of, vault_itself
from eso_sdk.errors import invalid_request, property_not_found
from eso_sdk.extract import Dots, NotAnObjectError, json_map, part_of, property_of
from eso_sdk.matching import Matcher
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Value
from eso_sdk.store import members_of
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, Found, MetadataPolicy, RemoteRef

DOTS: Final = Dots.PATH_FIRST
"""What the operator in Go does for this backend."""


async def value_of(stored: Stored, name: Name, ref: RemoteRef) -> bytes:
    """Return the value that a reference names. A certificate has no properties."""
    return stored.value if name.kind is Kind.CERTIFICATE else await part_of(stored.value, ref, DOTS)


async def metadata_of(stored: Stored, ref: RemoteRef) -> bytes:
    """Return the tags and times of an object, or the one that a property names: `TAG`, or `TAG.gjson`."""
    known = {**stored.tags, **stored.attributes}
    if not ref.property:
        return msgspec.json.encode(known, order="sorted")
    if ref.property in known:
        return known[ref.property].encode()
    tag, dot, path = ref.property.partition(".")
    found = await property_of(known[tag].encode(), path, ref.key) if dot and tag in known else None
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


async def metadata_map(stored: Stored, name: Name, ref: RemoteRef) -> dict[str, bytes]:
    """Return tags and times as `NAME_TAG`; a tag with a JSON object becomes `NAME_TAG_MEMBER`."""
    if ref.property:
        return {f"{ref.key}_{ref.property}": await metadata_of(stored, ref)}
    found: dict[str, bytes] = {}
    for tag, text in stored.tags.items():
        members = _strings(text)
        if members is None:
            found[f"{name.name}_{tag}"] = text.encode()
        else:
            found |= {f"{name.name}_{tag}_{member}": value for member, value in members.items()}
    return found | {f"{name.name}_{time}": text.encode() for time, text in stored.attributes.items()}


def _strings(text: str) -> dict[str, bytes] | None:
    """Return the members of a JSON object whose members are all strings; None for every other text."""
    try:
        found: Any = msgspec.json.decode(text, type=dict[str, str])
        return json_map(text.encode()) if found is not None else None
    except (msgspec.DecodeError, msgspec.ValidationError, NotAnObjectError, RecursionError):
        return None


ReadRequest = tuple[Name, str]
"""An object and the version to read; empty for the current one."""
ReadResult = Stored | ProviderError

_ABSENT: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class Reader:
    """Reads the objects of one session."""

    def __init__(self, api: Api, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._gate = gate

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference, in order."""
        requests = [_request_of(ref) for ref in refs]
        distinct = list(dict.fromkeys(request for request in requests if not isinstance(request, ProviderError)))
        results = await self.results(distinct)
        return [
            request if isinstance(request, ProviderError) else await _value(results[request], request[0], ref)
            for request, ref in zip(requests, refs, strict=True)
        ]

    async def read_map(self, ref: RemoteRef) -> Mapping[str, bytes]:
        """Return the members of a secret, or its tags and times."""
        name = Name.parse(ref.key)
        if name.kind is not Kind.SECRET:
            raise invalid_request(f'"{ref.key}" cannot be extracted: a {name.kind.label} has no members')
        stored = await self.one(name, ref.version)
        if ref.metadata_policy is MetadataPolicy.FETCH:
            return await metadata_map(stored, name, ref)
        return members_of(SecretBytes(await value_of(stored, name, ref)), ref.key)

    async def check(self, ref: RemoteRef) -> Check:
        """Tell whether a reference leads to a value."""
        (found,) = await self.read([ref])
        if isinstance(found, ProviderError):
            raise found
        return Check(exists=True, version=found.metadata.provider_version)

    async def results(self, requests: Sequence[ReadRequest]) -> dict[ReadRequest, ReadResult]:
        """Read many objects side by side."""
        found = await side_by_side(
            requests, self._one_or_error, late=lambda _, error: error, gate=self._gate, clock=self._api.clock
        )
        return dict(zip(requests, found, strict=True))

    async def one(self, name: Name, version: str = "") -> Stored:
        """Read one object."""
        vault, version_id = self._api.vault, version or None
        match name.kind:
            case Kind.SECRET:
                subject = self._api.subject("GetSecret", name, version)
                return objects.secret(
                    await self._api.call(subject, lambda: vault.secrets.get_secret(name.name, version_id))
                )
            case Kind.KEY:
                subject = self._api.subject("GetKey", name, version)
                return objects.key(await self._api.call(subject, lambda: vault.keys.get_key(name.name, version_id)))
            case Kind.CERTIFICATE:
                subject = self._api.subject("GetCertificate", name, version)
                certificates = vault.certificates
                if version:
                    found = await self._api.call(
                        subject, lambda: certificates.get_certificate_version(name.name, version)
                    )
                else:
                    found = await self._api.call(subject, lambda: certificates.get_certificate(name.name))
                return objects.certificate(found)

    async def current(self, name: Name) -> Stored | None:
        """Return the present object for a write; None if there is none."""
        try:
            return await self.one(name)
        except ProviderError as failed:
            if failed.reason not in _ABSENT:
                raise
            return None

    async def _one_or_error(self, request: ReadRequest) -> ReadResult:
        try:
            return await self.one(*request)
        except ProviderError as failed:
            return failed


def _request_of(ref: RemoteRef) -> ReadRequest | ProviderError:
    try:
        return Name.parse(ref.key), ref.version
    except ProviderError as refused:
        return refused


async def _value(result: ReadResult, name: Name, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    try:
        if ref.metadata_policy is MetadataPolicy.FETCH:
            # Tags change without a new version, so the version does not show whether they did.
            return Value(SecretBytes(await metadata_of(result, ref)))
        return Value(SecretBytes(await value_of(result, name, ref)), result.metadata)
    except ProviderError as missing:
        return missing


# --- Finding secrets: the list has names and tags, then the values of matching secrets are read ----------------------


MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200


class Finder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values. Secrets that were deleted since the listing are left out."""
        names = await self._names(query)
        for start in range(0, len(names), READ_AT_ONCE):
            requests: list[ReadRequest] = [
                (Name(Kind.SECRET, name), "") for name in names[start : start + READ_AT_ONCE]
            ]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, Stored):
                    yield Found(request[0].name, SecretBytes(result.value), result.metadata)
                elif result.reason is not ErrorReason.SECRET_NOT_FOUND:
                    raise result

    async def _names(self, query: FindQuery) -> list[str]:
        """Return the names of all enabled secrets that match, sorted. A path has always been ignored."""
        matcher = Matcher(replace(query, path=""))
        names: list[str] = []
        listed = self._api.vault.secrets.list_properties_of_secrets().by_page()
        async for page in self._api.pages(vault_itself(self._api.vault, Kind.SECRET), listed):
            names += [each.name for each in page if each.enabled and await matcher.accepts(each.name, tags_of(each))]
            if len(names) > MAX_SECRETS:
                raise invalid_request(f"more than {MAX_SECRETS} secrets match; narrow find.name or find.tags")
        return sorted(names)
