"""Reading keys: one request for each key and version of a batch, however many properties are requested.

A response counts as "not found" only if the server reports that this key is absent from the engine that the store
describes. Everything else (no such mount, no such namespace, another engine version, a proxy's page, a folder) is a
different error, so that no deletion policy acts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final, TypeVar

from eso_api.values import SecretBytes
from eso_provider_vault.api import Api, Mounts
from eso_provider_vault.replies import (
    Json,
    Members,
    NotJsonError,
    Reply,
    absent,
    absent_folder,
    absent_version,
    at,
    compact,
    integer,
    members,
    not_vault,
    refusal,
    text,
    text_of,
)
from eso_provider_vault.settings import Location, folder, locate
from eso_sdk.errors import backend_error, invalid_request, property_not_found, unsupported
from eso_sdk.extract import property_names, property_of
from eso_sdk.matching import Matcher
from eso_sdk.provider import Value
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import FindQuery, Found, MetadataPolicy, RemoteRef, ValueMetadata

READ: Final = "ReadSecretData"
LIST: Final = "ListSecrets"
_ABOUT_THE_SECRET: Final = ("created_time", "current_version", "delete_version_after")


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The target of one read request. References with equal requests share the response."""

    location: Location
    version: str = ""
    metadata: bool = False


@dataclass(frozen=True)
class Secret:
    """The members of one key, or its metadata as members."""

    data: Members = field(repr=False)
    version: int | None = None
    """None if the engine has no versions."""
    updated_at: datetime | None = None

    @cached_property
    def document(self) -> bytes:
        """All members as JSON, encoded once for all properties that are read."""
        return compact(self.data)

    @property
    def provider_version(self) -> str:
        return "" if self.version is None else str(self.version)


class Reader:
    """Reads one engine."""

    def __init__(self, api: Api, mounts: Mounts) -> None:
        self._api = api
        self._mounts = mounts

    def request_for(self, ref: RemoteRef) -> ReadRequest:
        """Return the request for a reference; raise if no read can serve it."""
        settings = self._api.settings
        location = locate(ref.key, settings)
        if ref.metadata_policy is MetadataPolicy.FETCH:
            if not location.versioned:
                raise unsupported(f'"{ref.key}" has no metadata: version 1 engines have none; remove metadataPolicy')
            return ReadRequest(location, metadata=True)
        if not ref.version:
            return ReadRequest(location)
        if not location.versioned:
            if settings.versions_refused:
                raise invalid_request(f'"{ref.key}": version 1 engines have no versions; remove version')
            return ReadRequest(location)
        if not ref.version.isdecimal():
            raise ProviderError(
                ErrorReason.VERSION_NOT_FOUND,
                f'"{ref.key}" has no version "{ref.version}": versions are numbers such as "2"; none means the latest',
            )
        return ReadRequest(location, ref.version)

    async def read(self, request: ReadRequest, key: str) -> Secret:
        """Read a secret, or its metadata. `key` is what messages call it."""
        if request.metadata:
            return await self._metadata(request.location, key)
        query = {"version": request.version} if request.version else None
        path = request.location.data
        reply = await self._api.send("GET", path, call=READ, query=query)
        if reply.status == 404:
            raise await self._missing(reply, request, key)
        if not reply.ok:
            raise await self._api.refused(reply, path)
        return await self._secret(reply, request.location)

    async def lookup(self, location: Location) -> Secret | None:
        """Read the latest version for a write; None if there is none that could be read."""
        try:
            return await self.read(ReadRequest(location), location.key)
        except ProviderError as missing:
            if missing.reason is ErrorReason.SECRET_NOT_FOUND:
                return None
            raise

    async def about(self, location: Location) -> Members | None:
        """Return the metadata document of a version 2 key; None if the key does not exist."""
        reply = await self._api.send("GET", location.metadata, call=READ)
        if reply.status == 404 and reply.errors == ():
            await self._mounts.confirm(location.metadata)
            return None
        if not reply.ok:
            raise await self._api.refused(reply, location.metadata)
        return reply.data

    async def names(self, path: str) -> list[str] | None:
        """List a folder, sub-folders with a trailing slash; None if it does not exist."""
        return await self._listed(path, await self._api.send("GET", f"{path}/", call=LIST, query={"list": "true"}))

    async def _listed(self, path: str, reply: Reply) -> list[str] | None:
        if reply.status == 404 and reply.errors == ():
            return None
        if not reply.ok:
            if reply.status == 404 and reply.data == {} and not reply.errors:
                await self._mounts.confirm(path)  # distinguishes a wrong version from other causes
            raise await self._api.refused(reply, path)
        keys = reply.data.get("keys")
        return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else None

    # --- responses ----------------

    async def _secret(self, reply: Reply, location: Location) -> Secret:
        if not location.versioned:
            if not isinstance(at(reply.json, "data"), dict):
                raise not_vault(self._api.endpoint(location.data), reply.status)
            return Secret(reply.data)
        version = integer(reply.data, "metadata", "version")
        if not isinstance(reply.data.get("data"), dict) or version is None:
            # A version 1 engine responds so, if it has a key that begins with "data/".
            await self._mounts.confirm(location.data)
            raise not_vault(self._api.endpoint(location.data), reply.status)
        return Secret(members(reply.data["data"]), version, moment(text(reply.data, "metadata", "created_time")))

    async def _metadata(self, location: Location, key: str) -> Secret:
        about = await self.about(location)
        if about is None:
            raise absent(key, self._api.endpoint(location.metadata))
        facts: Members = {name: about[name] for name in _ABOUT_THE_SECRET if about.get(name) is not None}
        facts |= members(about.get("custom_metadata"))
        texts: Members = {name: text_of(value).decode() for name, value in facts.items()}
        return Secret(texts, integer(about, "current_version"))

    async def _missing(self, reply: Reply, request: ReadRequest, key: str) -> ProviderError:
        """Return the error for a 404."""
        location = request.location
        endpoint = self._api.endpoint(location.data)
        if location.versioned and is_deleted(reply):
            return absent(key, endpoint)
        if not reply.is_json or reply.mentions("namespace not found") or reply.mentions("no handler for route"):
            return refusal(reply, endpoint)
        await self._mounts.confirm(location.data)
        if reply.errors != ():
            return refusal(reply, endpoint)
        if request.version and await self._exists(location):
            return absent_version(key, request.version, endpoint)
        return await self._folder(location, key) or absent(key, endpoint)

    async def _exists(self, location: Location) -> bool:
        reply = await self._api.send("GET", location.data, call=READ)
        if reply.status not in (200, 404):
            raise await self._api.refused(reply, location.data)
        return reply.ok or is_deleted(reply)

    async def _folder(self, location: Location, key: str) -> ProviderError | None:
        """Return the error for a key that is a folder; without the right to list, this is unknown."""
        path = location.folder
        reply = await self._api.probe("GET", f"{path}/", call=LIST, query={"list": "true"})
        if reply.status == 403 or not await self._listed(path, reply):
            return None
        return ProviderError(
            ErrorReason.INVALID_REQUEST,
            f'"{key}" is a folder: {self._api.endpoint(location.data)} holds secrets but is not a secret itself; name'
            " one of them, or use dataFrom.find with path",
            retry=RetryClass.BACKOFF,
        )


def is_deleted(reply: Reply) -> bool:
    """Tell whether a 404 is about a version that was deleted or destroyed: its metadata is still there."""
    return "data" in reply.data and reply.data["data"] is None and isinstance(reply.data.get("metadata"), dict)


async def value_in(secret: Secret, ref: RemoteRef) -> Value:
    """Return the value of a reference from its secret."""
    try:
        found = SecretBytes(await _chosen(secret, ref))
    except NotJsonError as exc:
        raise backend_error(f'the value of "{ref.key}" cannot be given: {exc}') from None
    return Value(found, ValueMetadata(provider_version=secret.provider_version, updated_at=secret.updated_at))


async def _chosen(secret: Secret, ref: RemoteRef) -> bytes:
    data = secret.data
    if not ref.property:
        return secret.document if data or ref.metadata_policy is not MetadataPolicy.FETCH else b""
    if ref.property in data:
        return text_of(data[ref.property])
    found = await property_of(secret.document, ref.property, ref.key)
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(secret.document, ref.property))
    return found


def moment(written: Json) -> datetime | None:
    """Parse a time of the server, which has nanoseconds; None if there is none."""
    if not isinstance(written, str) or not written:
        return None
    whole, dot, rest = written.partition(".")
    digits = rest.rstrip("Z")
    try:
        return datetime.fromisoformat(f"{whole}.{digits[:6].ljust(6, '0')}+00:00" if dot else written)
    except ValueError:
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Finding keys: one SCAN of the folder if the server supports it, otherwise a walk through the folders.
#
# OpenBao responds to SCAN with all keys below a folder, and with their custom metadata for `detailed-metadata`. Vault
# supports only LIST, which returns one folder. Each session finds out once whether the server supports SCAN.


SCAN: Final = "ScanSecrets"
MAX_KEYS: Final = 20_000
MAX_FOLDERS: Final = 5_000
READ_AT_ONCE: Final = 64

_DETAILED: Final = "detailed-metadata"
_NO_SCAN: Final = frozenset({400, 403, 404, 405, 501})


@dataclass(frozen=True, slots=True)
class Tree:
    """All keys below a folder, relative to it, with their metadata if it was requested."""

    keys: tuple[str, ...]
    about: Mapping[str, Members] | None = None


class Finder:
    """Finds keys of one engine."""

    def __init__(self, api: Api, mounts: Mounts, reader: Reader) -> None:
        self._api = api
        self._mounts = mounts
        self._reader = reader
        self._scans: bool | None = None

    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        """Yield all matching keys with their values. A name wins over tags."""
        by_tags = bool(query.tags) and not query.name_regexp
        if by_tags and self._api.settings.version == "v1":
            raise unsupported("version 1 engines keep no custom metadata to find keys by; use find.name")
        matcher = Matcher(FindQuery(name_regexp=query.name_regexp))
        root = folder(query.path, self._api.settings)
        tree = await self.tree(root, detailed=by_tags)
        if not tree.keys:  # Vault has no empty folders: a folder without keys does not exist
            await self._mounts.confirm(root.folder)
            raise absent_folder(query.path, self._api.endpoint(root.folder))
        locations = [Location(root.mount, _below(root.key, key), root.versioned) for key in sorted(tree.keys)]
        matching = [location for location in locations if await matcher.accepts(self.name(location))]
        if by_tags:
            matching = await self._tagged(matching, query.tags, root, tree)
        for start in range(0, len(matching), READ_AT_ONCE):
            for found in await each(matching[start : start + READ_AT_ONCE], self._found):
                if found is not None:
                    yield found

    async def tree(self, root: Location, *, detailed: bool) -> Tree:
        """Return all keys below a folder, by SCAN or by a walk."""
        if self._scans is not False:
            scanned = await self.scan(root, detailed=detailed)
            if scanned is not None:
                return scanned
        return Tree(tuple(await self._walk(root)))

    async def scan(self, root: Location, *, detailed: bool) -> Tree | None:
        """Return all keys below a folder in one call; None if the server or the token does not support it."""
        path = root.folder
        if detailed and root.versioned:
            path = "/".join(part for part in (root.mount, _DETAILED, root.key) if part)
        send = self._api.send if self._scans else self._api.probe
        reply = await send("SCAN", f"{path}/", call=SCAN)
        if reply.status in _NO_SCAN and not _misplaced(reply):
            self._scans = self._scans or False
            return None
        if not reply.ok:
            raise await self._api.refused(reply, path)
        self._scans = True
        keys = reply.data.get("keys")
        names = tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else ()
        self._bound(len(names), root)
        infos = {name: members(info) for name, info in members(reply.data.get("key_info")).items()}
        return Tree(names, infos if detailed else None)

    def name(self, location: Location) -> str:
        """Return the key by which a store reads this location."""
        return location.key if self._api.settings.mount else f"{location.mount}/{location.key}".lstrip("/")

    async def _walk(self, root: Location) -> list[str]:
        """List folder after folder, level by level."""
        keys: list[str] = []
        level = [""]
        visited = 0

        async def listing(below: str) -> list[str]:
            names = await self._reader.names(f"{root.folder}/{below}".rstrip("/"))
            return [f"{below}{name}" for name in names or ()]

        while level:
            visited += len(level)
            if visited > MAX_FOLDERS:
                raise invalid_request(
                    f"there are more than {MAX_FOLDERS} folders below {root.folder}; narrow find.path"
                )
            entries = [entry for names in await each(level, listing) for entry in names]
            keys += [entry for entry in entries if not entry.endswith("/")]
            self._bound(len(keys), root)
            level = [entry for entry in entries if entry.endswith("/")]
        return keys

    async def _tagged(
        self, locations: Sequence[Location], tags: Mapping[str, str], root: Location, tree: Tree
    ) -> list[Location]:
        async def carries(location: Location) -> bool:
            if tree.about is not None:
                known = tree.about.get(location.key.removeprefix(f"{root.key}/") if root.key else location.key, {})
            else:
                known = await self._reader.about(location) or {}
            custom = members(known.get("custom_metadata"))
            return all(custom.get(name) == value for name, value in tags.items())

        verdicts = await each(locations, carries)
        return [location for location, good in zip(locations, verdicts, strict=True) if good]

    async def _found(self, location: Location) -> Found | None:
        """Return the value of one key; None if its latest version is deleted."""
        secret = await self._reader.lookup(location)
        if secret is None:
            return None
        metadata = ValueMetadata(provider_version=secret.provider_version, updated_at=secret.updated_at)
        return Found(self.name(location), SecretBytes(compact(secret.data)), metadata)

    def _bound(self, count: int, root: Location) -> None:
        if count > MAX_KEYS:
            raise invalid_request(f"there are more than {MAX_KEYS} keys below {root.folder}; narrow find.path")


def _below(parent: str, key: str) -> str:
    return f"{parent}/{key}" if parent else key


def _misplaced(reply: Reply) -> bool:
    """Return whether a refusal is about the path, so that a walk would fail alike."""
    return reply.mentions("namespace not found") or reply.mentions("no handler for route")


T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 16


async def each(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return the results in the order of the items. The first failure cancels the rest and is raised."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def gated(item: T) -> R:
        async with gate:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gated(item)) for item in items]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
