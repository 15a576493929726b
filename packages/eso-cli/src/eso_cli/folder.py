"""Manifests in files, applied to the embedded API server at the start and whenever a file changes.

A file or an object that cannot be used is told of, with its line, and stops no other. An object that the API refuses is
tried again by itself: what it needs (a namespace, a kind, a webhook) may come from elsewhere. What is removed from the
files stays in the API: deleting is for people.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eso_cli.documents import Document, InputError, read_manifests
from kuberun.clock import Clock
from kuberun.meta import JsonObject
from localkube.cluster import Cluster
from localkube.manifests import ManifestError, install

_POLL_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FIRST: Final = ("Namespace", "CustomResourceDefinition")
"""Kinds that others cannot exist without."""

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Voice:
    """How a person hears of problems, and of their end."""

    warn: Callable[[str], None]
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """An object that the API did not take, and what was said about it."""

    document: Document
    why: str


class Folder:
    """Files and directories of manifests, and what was last seen of them."""

    def __init__(self, places: Sequence[Path], cluster: Cluster, voice: Voice) -> None:
        self._places = places
        self._cluster = cluster
        self._voice = voice
        self._seen: Stamp = ()
        self._unseen: set[str] = set()
        """What is said of the places that cannot be looked at."""
        self._refused: list[Refused] = []

    async def follow(self, clock: Clock) -> None:
        """Apply changes for as long as it runs, and meanwhile what was refused, less and less often."""
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
        """Apply everything if any file is not what it was; whether that was so.

        Each object goes by itself, so that a bad one stops no other, and those that others need go first.
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
        self._refused = await self._apply(Refused(document, "") for document in sorted(documents, key=_rank))
        return True

    async def retry_refused(self) -> None:
        """Try again what was refused; only what is news is said."""
        self._refused = await self._apply(self._refused)

    async def _apply(self, tried: Iterable[Refused]) -> list[Refused]:
        """What is refused (still); `why` is what was said about it before."""
        refused: list[Refused] = []
        for one in tried:
            try:
                await install(self._cluster, [_object(one.document)])
            except InputError as problem:
                self._unusable(problem)
            except ManifestError as problem:
                why = f"{one.document.at(())}: {problem}"
                if why != one.why:
                    self._voice.warn(f"{why}; it is tried again until it works or a file changes")
                refused.append(Refused(one.document, why))
            else:
                if one.why:
                    self._voice.tell(f"{one.document.at(())}: {_named(one.document)} is applied now")
        return refused

    def _files(self) -> list[Path]:
        """The named files, and the YAML and JSON files in the named folders."""
        files: list[Path] = []
        unseen: set[str] = set()
        for place in self._places:
            try:
                files += _listed(place) if place.is_dir() else [place]
            except OSError as problem:  # taken away, or forbidden, for now
                unseen.add(f"{place}: {problem.strerror}; it is looked at again until that works")
        for news in sorted(unseen - self._unseen):
            self._voice.warn(news)
        self._unseen = unseen
        return files

    def _unusable(self, problem: InputError) -> None:
        self._voice.warn(f"{problem}; it is tried again when a file changes")


def missing(places: Sequence[Path]) -> Path | None:
    """The first place that does not exist."""
    return next((place for place in places if not place.exists()), None)


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


def _rank(document: Document) -> int:
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _listed(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and _is_file(file))


def _is_file(file: Path) -> bool:
    status = _stat(file)
    return status is not None and stat.S_ISREG(status.st_mode)


def _stamp(files: Sequence[Path]) -> Stamp:
    return tuple((str(file), seen.st_mtime_ns, seen.st_size) for file in files if (seen := _stat(file)) is not None)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # it went away between the listing and the look, or leads nowhere
        return None
