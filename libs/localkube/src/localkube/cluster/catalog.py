"""The kinds that are served now: the built-in ones, and those of every established CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from localkube.model import ServedKind

Phase = Literal["Serving", "Terminating"]


@dataclass(frozen=True, slots=True)
class Definition:
    """The kinds that one CustomResourceDefinition adds to the catalog."""

    kinds: tuple[ServedKind, ...]
    phase: Phase
    changed_at: int
    """Objects of an older revision may not fit the schema: they are pruned and defaulted when they are read."""


class Catalog:
    def __init__(self, builtins: Iterable[ServedKind]) -> None:
        self._builtins = tuple(builtins)
        self._definitions: dict[str, Definition] = {}
        self._by_path: dict[tuple[str, str, str], ServedKind] = {}
        self._by_kind: dict[tuple[str, str], ServedKind] = {}
        self._by_storage: dict[str, list[ServedKind]] = {}
        self._counter = 0
        self._index()

    @property
    def counter(self) -> int:
        """Return a number that changes whenever the served kinds change.

        Discovery and OpenAPI documents are cached by it.
        """
        return self._counter

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, api_version: str, kind: str) -> ServedKind | None:
        """Return the kind that an owner reference or a manifest names."""
        return self._by_kind.get((api_version, kind))

    def stored(self, storage_key: str) -> ServedKind | None:
        """Return one served version of the objects under a storage key: the storage version if it is served."""
        kinds = self._by_storage.get(storage_key)
        if not kinds:
            return None
        return next((kind for kind in kinds if kind.resource.version == kind.storage_version), kinds[0])

    def versions(self, storage_key: str) -> frozenset[str]:
        """Return the apiVersions in which a stored kind is served."""
        return frozenset(kind.resource.api_version for kind in self._by_storage.get(storage_key, ()))

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(self._by_path.values())

    @property
    def builtins(self) -> tuple[ServedKind, ...]:
        return self._builtins

    @property
    def definitions(self) -> dict[str, Definition]:
        """Return the definitions by name, which is also the storage key of their objects. Read only."""
        return self._definitions

    def define(self, name: str, definition: Definition) -> None:
        self._definitions[name] = definition
        self._index()

    def forget(self, name: str) -> None:
        if self._definitions.pop(name, None) is not None:
            self._index()

    def _index(self) -> None:
        kinds = [*self._builtins, *(kind for one in self._definitions.values() for kind in one.kinds)]
        self._by_path = {(kind.resource.group, kind.resource.version, kind.resource.plural): kind for kind in kinds}
        self._by_kind = {(kind.resource.api_version, kind.resource.kind): kind for kind in kinds}
        self._by_storage = {}
        for kind in kinds:
            self._by_storage.setdefault(kind.storage_key, []).append(kind)
        self._counter += 1
