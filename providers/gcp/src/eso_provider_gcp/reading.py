"""Reading secrets: the value of a version, or the labels and annotations of a secret.

| reference | calls |
|---|---|
| a value | AccessSecretVersion; many references to one version share it |
| the latest version, which is disabled or destroyed, with LatestOrFetch | ListSecretVersions, AccessSecretVersion |
| `metadataPolicy: Fetch` | GetSecret |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from eso_api.values import SecretBytes
from eso_provider_gcp.api import Api
from eso_sdk.errors import invalid_request, property_not_found
from eso_sdk.extract import part_of
from eso_sdk.matching import Matcher
from eso_sdk.operations import side_by_side
from eso_sdk.provider import Check, Value
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, Found, MetadataPolicy, RemoteRef, ValueMetadata

LATEST: Final = "latest"
FETCH: Final = "LatestOrFetch"
UNREADABLE: Final = frozenset({"DISABLED", "DESTROYED"})
_ENABLED: Final = "state:ENABLED"
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of the service; many references may share it."""

    key: str
    version: str = LATEST
    metadata: bool = False


@dataclass(frozen=True, slots=True)
class SecretValue:
    """A value, with its version."""

    value: bytes = field(repr=False)
    version: str = ""


class Reader:
    """Reads the secrets of one session."""

    def __init__(self, api: Api, policy: str, gate: asyncio.Semaphore) -> None:
        self._api = api
        self._falls_back = policy == FETCH
        self._gate = gate

    async def read(self, refs: Sequence[RemoteRef]) -> list[Value | ProviderError]:
        """Return one value or error for each reference; every version is read once."""
        requests = [_request_of(ref) for ref in refs]
        results = await self.results(requests)
        return [await _value(results[request], ref) for request, ref in zip(requests, refs, strict=True)]

    async def results(self, requests: Sequence[ReadRequest]) -> dict[ReadRequest, SecretValue | ProviderError]:
        """Return the result of each distinct request."""
        distinct = list(dict.fromkeys(requests))
        found = await side_by_side(distinct, self._read_one, late=_late, gate=self._gate, clock=self._api.clock)
        return dict(zip(distinct, found, strict=True))

    async def check(self, ref: RemoteRef) -> Check:
        """Return whether a reference leads to a value. Only a property needs the value itself."""
        if ref.property or ref.metadata_policy is MetadataPolicy.FETCH:
            (found,) = await self.read([ref])
            if isinstance(found, ProviderError):
                raise found
            return Check(exists=True, version=found.metadata.provider_version)
        if ref.version and ref.version != LATEST:
            request = {"name": self._api.version(ref.key, ref.version)}
            found = await self._api.call("GetSecretVersion", request, key=ref.key, version=ref.version)
            return Check(exists=found.state.name == "ENABLED", version=number_of(found.name))
        newest = await self.newest(ref.key)
        return Check(exists=bool(newest), version=newest)

    async def current(self, key: str) -> SecretValue:
        """Return the latest value, for a push to compare with."""
        return await self._access(ReadRequest(key))

    async def newest(self, key: str) -> str:
        """Return the number of the newest enabled version; empty if there is none."""
        found: tuple[datetime, str] | None = None
        request = {"parent": self._api.secret(key), "filter": _ENABLED, "page_size": _PAGE}
        async for page in self._api.pages("ListSecretVersions", request, "versions", key=key):
            for version in page:
                created = (version.create_time, number_of(version.name))
                found = created if found is None else max(found, created)
        return found[1] if found else ""

    async def _read_one(self, requested: ReadRequest) -> SecretValue | ProviderError:
        try:
            return await (self._described(requested.key) if requested.metadata else self._access(requested))
        except ProviderError as failed:
            if not self._falls_back or requested.version != LATEST or failed.backend_code not in UNREADABLE:
                return failed
            unreadable = failed
        try:
            newest = await self.newest(requested.key)
            return await self._access(ReadRequest(requested.key, newest)) if newest else unreadable
        except ProviderError as failed:
            return failed

    async def _access(self, requested: ReadRequest) -> SecretValue:
        request = {"name": self._api.version(requested.key, requested.version)}
        named = "" if requested.version == LATEST else requested.version
        found = await self._api.call("AccessSecretVersion", request, key=requested.key, version=named)
        return SecretValue(found.payload.data, number_of(found.name))

    async def _described(self, key: str) -> SecretValue:
        found = await self._api.call("GetSecret", {"name": self._api.secret(key)}, key=key)
        document = {"annotations": dict(found.annotations), "labels": dict(found.labels)}
        return SecretValue(msgspec.json.encode(document, order="deterministic"))


def number_of(name: str) -> str:
    """Return the number at the end of a version's name. Names in responses have the number of the project."""
    return name.rpartition("/")[2]


def _request_of(ref: RemoteRef) -> ReadRequest:
    if ref.metadata_policy is MetadataPolicy.FETCH:
        return ReadRequest(ref.key, metadata=True)
    return ReadRequest(ref.key, ref.version or LATEST)


def _late(_request: ReadRequest, error: ProviderError) -> SecretValue | ProviderError:
    return error


async def _value(result: SecretValue | ProviderError, ref: RemoteRef) -> Value | ProviderError:
    if isinstance(result, ProviderError):
        return result
    try:
        fetched = ref.metadata_policy is MetadataPolicy.FETCH
        raw = _metadata(result.value, ref) if fetched else await part_of(result.value, ref)
    except ProviderError as missing:
        return missing
    return Value(SecretBytes(raw), ValueMetadata(provider_version=result.version))


def _metadata(document: bytes, ref: RemoteRef) -> bytes:
    """Return all metadata, one map (`labels`), or one value (`labels.team`)."""
    members: dict[str, dict[str, str]] = msgspec.json.decode(document)
    if not ref.property:
        return document
    kind, dot, name = ref.property.partition(".")
    found: Any = members.get(kind)
    if found is not None and dot:
        found = found.get(name)
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found.encode() if isinstance(found, str) else msgspec.json.encode(found)


# --- Finding secrets: ListSecrets gives ids and labels, then the latest version of every match is read ---------------
#
# The service filters where it can; the comparison here decides. A regional store lists its own location. A name wins
# over tags. Keys of the result are ids.


PAGE: Final = 1000
MAX_SECRETS: Final = 20_000
READ_AT_ONCE: Final = 200

_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_LABEL: Final = re.compile(r"[\w-]+")
_NO_VALUE: Final = frozenset({ErrorReason.SECRET_NOT_FOUND, ErrorReason.VERSION_NOT_FOUND})


class Finder:
    """Finds the secrets of one session."""

    def __init__(self, api: Api, reader: Reader) -> None:
        self._api = api
        self._reader = reader

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching secrets with their values.

        Secrets without a value, or deleted since the listing, are left out. A disabled one is an error: leaving it out
        would remove its key from the target.
        """
        ids = await self.ids(query)
        for start in range(0, len(ids), READ_AT_ONCE):
            requests = [ReadRequest(each) for each in ids[start : start + READ_AT_ONCE]]
            results = await self._reader.results(requests)
            for request in requests:
                result = results[request]
                if isinstance(result, SecretValue):
                    metadata = ValueMetadata(provider_version=result.version)
                    yield Found(request.key, SecretBytes(result.value), metadata)
                elif result.reason not in _NO_VALUE:
                    raise result

    async def ids(self, query: FindQuery) -> list[str]:
        """Return the ids of all matching secrets, sorted. A find of everything is refused, as a path alone is."""
        if not query.name_regexp and not query.tags:
            raise invalid_request("find needs name.regexp or tags; to find all secrets, set name.regexp to .*")
        tags: Mapping[str, str] = {} if query.name_regexp else query.tags
        matcher = Matcher(FindQuery(path=query.path, name_regexp=query.name_regexp, tags=tags))
        request = {"parent": self._api.parent, "page_size": PAGE, "filter": _filter(query.path, tags)}
        ids: list[str] = []
        async for page in self._api.pages("ListSecrets", request, "secrets"):
            for secret in page:
                each = secret.name.rpartition("/")[2]
                if await matcher.accepts(each, dict(secret.labels)):
                    ids.append(each)
            if len(ids) > MAX_SECRETS:
                raise invalid_request(
                    f"more than {MAX_SECRETS} secrets match; narrow find.name, find.path or find.tags"
                )
        return sorted(ids)


def _filter(path: str, tags: Mapping[str, str]) -> str:
    """Return a filter that narrows the list as far as the service can. Unusual characters are compared here only."""
    parts = [f"name:{path}"] if _ID.fullmatch(path) else []
    parts += [f"labels.{k}={v}" for k, v in sorted(tags.items()) if _LABEL.fullmatch(k) and _LABEL.fullmatch(v)]
    return " ".join(parts)
