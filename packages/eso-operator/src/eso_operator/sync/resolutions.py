"""Resolutions that still hold: a thousand objects of one store are resolved once.

`stores.resolve` is pure: equal snapshots give equal answers. What it looked at is noted with the answer (the kinds of
objects with their revisions, the handshakes themselves), and the answer is given again for as long as all of that is
the same. Only the namespace of a caller matters to it; errors are never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.need import Need
from eso_operator.stores.snapshot import Objects, Scope, Snapshot
from eso_operator.stores.target import ResolvedTarget
from eso_wire.values import Handshake, KindId, ObjectRef
from kuberun.meta import ObjectKey

MAX_KEPT: Final = 4096

Handshakes = Mapping[str, Handshake | str]
_Question = tuple[StoreRef | GeneratorRef, str, Need]


class RevisedObjects(Objects, Protocol):
    def revision(self, kind: KindId) -> int:
        """Another number after every change of an object of that kind; -1 while the kind is not watched."""
        ...


class Resolutions:
    """Bounded, the longest unused out. One for the process."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._handshakes = handshakes
        self._kept: OrderedDict[_Question, _Kept] = OrderedDict()

    def find(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedTarget | None:
        question = (ref, caller.namespace, need)
        kept = self._kept.get(question)
        if kept is None:
            return None
        if not kept.notes.hold(self._objects, self._handshakes):
            del self._kept[question]
            return None
        self._kept.move_to_end(question)
        return replace(kept.target, caller=caller)

    def noting(self) -> Notes:
        """To be gone by instead of the live view, and handed back with the answer."""
        return Notes(self._objects, self._handshakes)

    def keep(self, ref: StoreRef | GeneratorRef, need: Need, target: ResolvedTarget, notes: Notes) -> None:
        self._kept[ref, target.caller.namespace, need] = _Kept(target, notes)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


class Notes:
    """What one resolution looked at. Implements `Objects`; the notes are taken before the look."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._kinds: dict[KindId, int] = {}
        self._answers = _NotedHandshakes(handshakes)

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self, self._answers)

    def hold(self, objects: RevisedObjects, handshakes: Handshakes) -> bool:
        """Whether all of it is as it was."""
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
    """Asked for one by one; to go through all of them would depend on all of them."""

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
    target: ResolvedTarget
    notes: Notes
