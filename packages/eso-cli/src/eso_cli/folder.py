"""Manifests in files, applied to the embedded API server at the start and whenever a file changes.

What is removed from the files stays in the API: deleting is for people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kuberun.clock import Clock
from kuberun.meta import JsonObject
from localkube.cluster import Cluster
from localkube.manifests import ManifestError, install, load

_POLL_SECONDS: Final = 1.0
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
        stamp = _stamp(self._places)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            objects = load(self._places)
        except ManifestError as problem:
            self._say(str(problem))
            return
        for obj in sorted(objects, key=_rank):
            try:
                await install(self._cluster, [obj])
            except ManifestError as problem:
                self._say(str(problem))

    async def follow(self, clock: Clock) -> None:
        """Apply changes for as long as it runs."""
        while True:
            await clock.sleep(_POLL_SECONDS)
            await self.apply_changes()


def _rank(obj: JsonObject) -> int:
    kind = str(obj.get("kind"))
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _stamp(places: Sequence[Path]) -> Stamp:
    files = sorted(file for place in places for file in (place.rglob("*") if place.is_dir() else [place]))
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file in files if (stat := _stat(file)) is not None)


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat() if file.is_file() else None
    except OSError:  # it went away between the listing and the look
        return None
