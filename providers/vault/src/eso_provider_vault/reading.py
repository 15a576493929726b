"""Reading keys: one request for each key and version of a batch, however many properties are requested.

A response counts as "not found" only if the server reports that this key is absent from the engine that the store
describes. Everything else (no such mount, no such namespace, another engine version, a proxy's page, a folder) is a
different error, so that no deletion policy acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from eso_api.values import SecretBytes
from eso_provider_vault.api import Api
from eso_provider_vault.documents import Json, Members, NotJsonError, at, compact, integer, members, text, text_of
from eso_provider_vault.errors import absent, absent_version, not_vault, refusal
from eso_provider_vault.mounts import Mounts
from eso_provider_vault.paths import Location, locate
from eso_provider_vault.replies import Reply
from eso_sdk.errors import backend_error, invalid_request, property_not_found, unsupported
from eso_sdk.extract import property_names, property_of
from eso_sdk.provider import Value
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import MetadataPolicy, RemoteRef, ValueMetadata

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
