"""Parents as they are known, with our own writes counted before the watch has told of them.

Without this, the change of a child that follows a write at once would be met with a parent from before the write, and
every fan-out would end in a conflict with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eso_operator.fanout.description import Parent
from kuberun.cache import Store
from kuberun.meta import ObjectKey, version_of


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was written last, and the versions it came after."""

    latest: Parent
    passed: frozenset[str]


class Parents:
    """A view of the cache. It remembers one object for each parent, until the cache has it."""

    def __init__(self, store: Store[Any]) -> None:
        self._store = store
        self._ahead: dict[ObjectKey, _Ahead] = {}

    def get(self, key: ObjectKey) -> Any | None:
        """The newest form there is; `Malformed` and None as the cache has them."""
        cached = self._store.get(key)
        ahead = self._ahead.get(key)
        if ahead is None:
            return cached
        if cached is not None and version_of(cached) in ahead.passed:
            return ahead.latest
        del self._ahead[key]
        return cached

    def wrote(self, before: Parent, after: Parent) -> None:
        """The object we knew as `before` is `after` now."""
        known = self._ahead.get(before.metadata.key)
        passed = frozenset() if known is None else known.passed
        self._ahead[before.metadata.key] = _Ahead(after, passed | {before.metadata.resource_version})
