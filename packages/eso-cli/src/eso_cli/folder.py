"""Applies manifests from files to the embedded API server at the start and whenever a file changes.

An invalid file or object is reported with its line and does not affect the others. An object that the API rejects is
retried, because the namespace, kind or webhook that it needs may be created later. Objects that are removed from the
files stay in the API: only users delete them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eso_tools.manifests import (
    Document,
    InputError,
    field_problems,
    listed,
    path_of,
    rank,
    read_manifests,
    read_places,
    without_manifests,
)
from kubebase.clock import Clock
from kubebase.meta import JsonObject
from localkube.cluster import Cluster
from localkube.manifests import ManifestError, install

_POLL_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0

Stamp = tuple[tuple[str, int, int], ...]

Before = Callable[[Sequence[JsonObject]], Awaitable[None]]
"""Called with the objects that are about to be applied."""


async def _nothing(_: Sequence[JsonObject]) -> None:
    return


@dataclass(frozen=True, slots=True)
class FolderLog:
    """Reports problems and their resolution to the user."""

    warn: Callable[[str], None]
    info: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """An object that the API rejected, and the reported reason."""

    document: Document
    why: str


class Folder:
    """The files and directories of manifests, and their last seen state."""

    def __init__(self, places: Sequence[Path], cluster: Cluster, log: FolderLog, before: Before = _nothing) -> None:
        self._places = places
        self._cluster = cluster
        self._log = log
        self._before = before
        self._seen: Stamp = ()
        self._unreadable: set[str] = set()
        """The reported messages about places that cannot be read."""
        self._refused: list[Refused] = []

    async def follow(self, clock: Clock) -> None:
        """Apply changes until cancelled, and retry rejected objects with back-off."""
        pause = _POLL_SECONDS
        due = clock.monotonic() + pause
        while True:
            await clock.sleep(_POLL_SECONDS)
            if await self.apply_changes():
                pause = _POLL_SECONDS
            elif self._refused and clock.monotonic() >= due:
                before = len(self._refused)
                await self.retry_refused()
                pause = _POLL_SECONDS if len(self._refused) < before else min(2 * pause, _LONGEST_PAUSE)
            else:
                continue
            due = clock.monotonic() + pause

    async def apply_changes(self) -> bool:
        """Apply everything if any file changed; return whether one did.

        Objects are applied one by one, so that an invalid one does not affect the others. Kinds that others need come
        first.
        """
        files = self._files()
        stamp = _stamp(files)
        if stamp == self._seen:
            return False
        self._seen = stamp
        documents: list[Document] = []
        for file in files:
            try:
                documents += read_manifests(str(file))
            except InputError as problem:
                self._unusable(problem)
        await self._before([document.content for document in documents if isinstance(document.content, dict)])
        self._refused = await self._apply(Refused(document, "") for document in sorted(documents, key=rank))
        return True

    async def retry_refused(self) -> None:
        """Retry the rejected objects; report only changes."""
        self._refused = await self._apply(self._refused)

    async def _apply(self, tried: Iterable[Refused]) -> list[Refused]:
        """Apply the objects; return those that are rejected, each with its reported reason."""
        refused: list[Refused] = []
        for one in tried:
            try:
                obj = _object(one.document)
                self._check_fields(one.document)
                await install(self._cluster, [obj])
            except InputError as problem:
                self._unusable(problem)
            except ManifestError as problem:
                why = f"{one.document.at(path_of(problem.field))}: {problem}"
                if why != one.why:
                    self._log.warn(f"{why}; it is tried again until it works or a file changes")
                refused.append(Refused(one.document, why))
            else:
                if one.why:
                    self._log.info(f"{one.document.at(())}: {_named(one.document)} is applied now")
        return refused

    def _files(self) -> list[Path]:
        """Return the named files, and the YAML and JSON files in and below the named folders."""
        files: list[Path] = []
        unreadable: set[str] = set()
        for place in self._places:
            try:
                files += listed(place)
            except OSError as problem:  # removed or unreadable, perhaps for a moment
                unreadable.add(f"{place}: {problem.strerror}; it is looked at again until that works")
        for reason in sorted(unreadable - self._unreadable):
            self._log.warn(reason)
        self._unreadable = unreadable
        return files

    def _check_fields(self, document: Document) -> None:
        """Refuse fields that the kind does not have, as `kubectl apply` does."""
        kind = self._cluster.catalog.find_kind(document.content["apiVersion"], document.content["kind"])
        if kind is not None and (wrong := field_problems(document, kind.schema.openapi)):
            raise InputError("\n".join(wrong))

    def _unusable(self, problem: InputError) -> None:
        for line in str(problem).splitlines():
            self._log.warn(f"{line}; it is tried again when a file changes")


def empty(places: Sequence[Path]) -> Path | None:
    """Return the first place without any manifest; None if each has one, or a file that cannot be read."""
    return next((place for place in places if read_places([place]) == ([], [without_manifests(place)])), None)


def _object(document: Document) -> JsonObject:
    match document.content:
        case {"metadata": {"namespace": namespace}} if not isinstance(namespace, str):
            raise document.problem(("metadata", "namespace"), "metadata.namespace must be text")
        case {"apiVersion": str(), "kind": str(), "metadata": {"name": str()}}:
            content: JsonObject = document.content
            return content
        case _:
            raise document.problem((), "an object needs apiVersion, kind and metadata.name")


def _named(document: Document) -> str:
    return f"{document.content['kind']} {document.content['metadata']['name']}"


def _stamp(files: Sequence[Path]) -> Stamp:
    return tuple((str(file), seen.st_mtime_ns, seen.st_size) for file in files if (seen := _stat(file)) is not None)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # deleted since the listing, or a dangling link
        return None
