"""Finding keys: one SCAN of the folder if the server supports it, otherwise a walk through the folders.

OpenBao responds to SCAN with all keys below a folder, and with their custom metadata for `detailed-metadata`. Vault
supports only LIST, which returns one folder. Each session finds out once whether the server supports SCAN.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from eso_api.values import SecretBytes
from eso_provider_vault.api import Api
from eso_provider_vault.documents import Members, compact, members
from eso_provider_vault.errors import absent_folder
from eso_provider_vault.mounts import Mounts
from eso_provider_vault.paths import Location, folder
from eso_provider_vault.reading import Reader
from eso_provider_vault.replies import Reply
from eso_sdk.errors import invalid_request, unsupported
from eso_sdk.matching import Matcher
from eso_wire.values import FindQuery, Found, ValueMetadata

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
