"""Which stores to look at again when something else changes: a Secret, a configuration, a class, a provider.

After every validation a store names what it went by. A store that did not get as far as a provider waits for any
provider to appear.
"""

from __future__ import annotations

from typing import NamedTuple

from eso_wire.values import ObjectRef
from kuberun.meta import ObjectKey


class Object(NamedTuple):
    """An object of the cluster, by group and kind: versions are spellings of the same object."""

    group: str
    kind: str
    namespace: str
    name: str


class Endpoint(NamedTuple):
    """A provider process, by the key of its connection."""

    key: str


class AnyProvider(NamedTuple):
    """Some provider, wherever it appears."""


Dependency = Object | Endpoint | AnyProvider
ANY_PROVIDER = AnyProvider()


def on_object(ref: ObjectRef) -> Object:
    return Object(ref.api_version.rpartition("/")[0], ref.kind, ref.namespace, ref.name)


class Dependencies:
    """Both directions; bounded by the stores there are."""

    def __init__(self) -> None:
        self._of: dict[ObjectKey, frozenset[Dependency]] = {}
        self._dependants: dict[Dependency, set[ObjectKey]] = {}

    def record(self, store: ObjectKey, on: frozenset[Dependency]) -> None:
        """What the store depends on now, instead of what it did before."""
        before = self._of.get(store, frozenset())
        for gone in before - on:
            self._drop(gone, store)
        for new in on - before:
            self._dependants.setdefault(new, set()).add(store)
        if on:
            self._of[store] = on
        else:
            self._of.pop(store, None)

    def forget(self, store: ObjectKey) -> None:
        self.record(store, frozenset())

    def dependants(self, dependency: Dependency) -> list[ObjectKey]:
        return sorted(self._dependants.get(dependency, ()))

    def _drop(self, dependency: Dependency, store: ObjectKey) -> None:
        stores = self._dependants[dependency]
        stores.discard(store)
        if not stores:
            del self._dependants[dependency]
