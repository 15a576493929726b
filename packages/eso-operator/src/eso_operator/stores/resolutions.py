"""A cache of resolutions, so that a thousand objects of one store are resolved once.

`resolving.resolve` is pure: equal inputs give equal results. Each result is cached with its inputs (the revisions of
the kinds and the handshakes that were read), and it is valid while they are unchanged. Callers of one namespace share
results. Errors are not cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.need import Need
from eso_operator.stores.resolved import ResolvedStore
from eso_operator.stores.view import ClusterView, Objects, Scope
from eso_wire.kinds import Handshake, KindId, ObjectRef
from kubebase.bounded import BoundedDict
from kubebase.meta import ObjectKey

MAX_KEPT: Final = 4096

Handshakes = Mapping[str, Handshake | str]
_Question = tuple[StoreRef | GeneratorRef, str, Need]


class RevisedObjects(Objects, Protocol):
    def revision(self, kind: KindId) -> int:
        """Return a number that changes with every change of an object of the kind; -1 if it is not watched."""
        ...


class Resolutions:
    """The cache; bounded, the least recently used result is evicted. The process has one."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._handshakes = handshakes
        self._kept: BoundedDict[_Question, _Kept] = BoundedDict(MAX_KEPT)

    def find(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore | None:
        question = (ref, caller.namespace, need)
        kept = self._kept.use(question)
        if kept is None:
            return None
        if not kept.notes.hold(self._objects, self._handshakes):
            del self._kept[question]
            return None
        return replace(kept.resolved, caller=caller)

    def noting(self) -> Notes:
        """Return a view that records every read through it. Pass it to `keep` with the result."""
        return Notes(self._objects, self._handshakes)

    def keep(self, ref: StoreRef | GeneratorRef, need: Need, resolved: ResolvedStore, notes: Notes) -> None:
        self._kept[ref, resolved.caller.namespace, need] = _Kept(resolved, notes)


class Notes:
    """A recording view. Implements `Objects`. Revisions are recorded before objects are read."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._kinds: dict[KindId, int] = {}
        self._answers = _NotedHandshakes(handshakes)

    @property
    def snapshot(self) -> ClusterView:
        return ClusterView(self, self._answers)

    def hold(self, objects: RevisedObjects, handshakes: Handshakes) -> bool:
        """Return whether everything that was read is unchanged."""
        return all(objects.revision(kind) == known for kind, known in self._kinds.items()) and all(
            handshakes.get(key) is known for key, known in self._answers.noted.items()
        )

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        self._note(kind)
        return self._objects.get(kind, key)

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        self._note(kind)
        return self._objects.list(kind, namespace)

    def scope(self, kind: KindId) -> Scope | None:
        self._note(kind)
        return self._objects.scope(kind)

    def _note(self, kind: KindId) -> None:
        if kind not in self._kinds:
            self._kinds[kind] = self._objects.revision(kind)


class _NotedHandshakes(Mapping[str, Handshake | str]):
    """Recorded handshakes. Iteration is not supported: the result would depend on all of them."""

    def __init__(self, live: Handshakes) -> None:
        self._live = live
        self.noted: dict[str, Handshake | str | None] = {}

    def __getitem__(self, key: str) -> Handshake | str:
        found = self.noted[key] = self._live.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Kept:
    resolved: ResolvedStore
    notes: Notes
