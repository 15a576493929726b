"""Manifests in files, applied to the embedded API server at the start and whenever a file changes.

A file or an object that cannot be used is told of, with its line, and stops no other. What is removed from the files
stays in the API: deleting is for people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eso_cli.documents import Document, InputError, read_manifests
from kuberun.clock import Clock
from kuberun.meta import JsonObject
from localkube.cluster import Cluster
from localkube.manifests import ManifestError, install

_POLL_SECONDS: Final = 1.0
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_FIRST: Final = ("Namespace", "CustomResourceDefinition")
"""Kinds that others cannot exist without."""

Stamp = tuple[tuple[str, int, int], ...]


class Folder:
    """Files and directories of manifests, and what was last seen of them."""

    def __init__(self, places: Sequence[Path], cluster: Cluster, say: Callable[[str], None]) -> None:
        self._places = places
        self._cluster = cluster
        self._say = say
        self._seen: Stamp = ()

    async def apply_changes(self) -> None:
        """Apply everything if any file is not what it was; each object by itself, so that a bad one stops no other."""
        files = _files(self._places)
        stamp = _stamp(files)
        if stamp == self._seen:
            return
        self._seen = stamp
        documents: list[Document] = []
        for file in files:
            try:
                documents += read_manifests(str(file))
            except InputError as problem:
                self._complain(str(problem))
        for document in sorted(documents, key=_rank):
            await self._apply(document)

    async def follow(self, clock: Clock) -> None:
        """Apply changes for as long as it runs."""
        while True:
            await clock.sleep(_POLL_SECONDS)
            await self.apply_changes()

    async def _apply(self, document: Document) -> None:
        try:
            await install(self._cluster, [_object(document)])
        except InputError as problem:
            self._complain(str(problem))
        except ManifestError as problem:
            self._complain(f"{document.at(())}: {problem}")

    def _complain(self, problem: str) -> None:
        self._say(f"{problem}; it is tried again when a file changes")


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


def _rank(document: Document) -> int:
    kind = document.content.get("kind") if isinstance(document.content, dict) else None
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _files(places: Sequence[Path]) -> list[Path]:
    """The named files, and the YAML and JSON files in the named folders."""
    return [file for place in places for file in (_listed(place) if place.is_dir() else [place])]


def _listed(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and file.is_file())


def _stamp(files: Sequence[Path]) -> Stamp:
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file in files if (stat := _stat(file)) is not None)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # it went away between the listing and the look
        return None
