"""The controller of CustomResourceDefinitions: accepts names, serves kinds, and removes all objects of a deleted one.

The status is worked out in the same commit as the write that needs it, so that a definition serves its kind as soon as
its creation is acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.cluster import metadata as meta
from localkube.cluster.background import Background
from localkube.cluster.catalog import Catalog, Definition, Phase, Target
from localkube.cluster.deletion import CUSTOM_CLEANUP, Deleter
from localkube.cluster.metadata import DEFINITIONS
from localkube.cluster.watches import Watches
from localkube.cluster.writes import Writer
from localkube.model import DeleteOptions, ServedKind, User
from localkube.schema import crd
from localkube.storage import Change, Key, ObjectStorage, Record
from localkube.storage.store import Batch

USER = User("system:apiserver")
MANAGER = "kube-apiserver"
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The kinds of one spec; compiling is slow, and most writes of a definition do not touch it."""

    spec: bytes
    kinds: tuple[ServedKind, ...]
    changed_at: int


@dataclass(slots=True)
class Definitions:
    store: ObjectStorage
    catalog: Catalog
    writer: Writer
    deleter: Deleter
    watches: Watches
    background: Background
    clock: Clock
    _compiled: dict[str, _Compiled] = field(default_factory=dict)
    _accepted: dict[str, tuple[ServedKind, ...]] = field(default_factory=dict)

    def start(self) -> None:
        """Serve the stored definitions, and follow every change from here on."""
        for path, record in self.store.scan(DEFINITIONS):
            self._serve(path, record)
        self.store.listen(self._on_change)

    def after_write(self, target: Target, new: JsonObject) -> Batch | None:
        """Accept or refuse the names of a definition that was just written."""
        if meta.is_deleting(new):
            return None
        status = crd.accept(new, self._others(target.name), rfc3339(self.clock.now()))
        if _is_established({"status": status}):
            self._accepted[target.name] = tuple(crd.served_kinds({**new, "status": status}))
        if status == new.get("status"):
            return None
        status_target = Target(target.kind, "", target.name, "status")
        return self.writer.save(status_target, lambda obj: obj.update(status=status), manager=MANAGER)

    async def review(self, key: Key) -> None:
        """Check a definition's names again: names that another definition held may be free now."""
        record = self.store.latest(key)
        kind = self.catalog.stored(DEFINITIONS)
        if record is None or kind is None:
            return
        batch = self.after_write(Target(kind, "", key.name), record.decode())
        if batch is not None:
            await batch.committed()

    async def clean_up(self, key: Key) -> None:
        """Delete the objects of a definition that is being deleted, then remove its finalizer."""
        record = self.store.latest(key)
        if record is None or not _is_held(record.decode()):
            return
        kind = self.catalog.stored(key.name)
        entries = list(self.store.latest_scan(key.name)) if kind else []
        waiting = [(path, found) for path, found in entries if not meta.is_marked(found)]
        if kind is not None and waiting:
            await self._delete(kind, waiting[:_CHUNK])
            self.background.queue(self.clean_up, key)
            return
        await self._report(key, is_empty=not entries)

    async def _delete(self, kind: ServedKind, entries: list[tuple[str, Record]]) -> None:
        last: Batch | None = None
        for path, record in entries:
            namespace, _, name = path.rpartition("/")
            options = DeleteOptions(USER, uid=record.uid, propagation="Background")
            last = self.deleter.delete(Target(kind, namespace, name), options)[1] or last
        if last is not None:
            await last.committed()

    async def _report(self, key: Key, *, is_empty: bool) -> None:
        kind = self.catalog.stored(DEFINITIONS)
        if kind is None:
            return
        if not is_empty:
            now = rfc3339(self.clock.now())
            status_target = Target(kind, "", key.name, "status")
            batch = self.writer.save(status_target, lambda obj: _set_waiting(obj, now), manager=MANAGER)
        else:
            batch = self.writer.save(Target(kind, "", key.name), _release, manager=MANAGER)
        if batch is not None:
            await batch.committed()

    def _on_change(self, change: Change) -> None:
        key = change.key
        if key.resource == DEFINITIONS:
            if change.type == "DELETED":
                self._forget(key.name)
            else:
                self._serve(key.name, change.record)
        elif change.type == "DELETED":
            definition = self.catalog.definitions.get(key.resource)
            if definition is not None and definition.phase == "Terminating":
                self.background.queue(self.clean_up, Key(DEFINITIONS, "", key.resource))

    def _serve(self, name: str, record: Record) -> None:
        obj = record.decode()
        if meta.is_deleting(obj):
            self.background.queue(self.clean_up, Key(DEFINITIONS, "", name))
        if not _is_established(obj):
            return
        compiled = self._compile(name, obj, record.revision)
        self._accepted[name] = compiled.kinds
        phase: Phase = "Terminating" if meta.is_deleting(obj) else "Serving"
        definition = Definition(compiled.kinds, phase, compiled.changed_at)
        before = self.catalog.definitions.get(name)
        if before == definition:
            return
        self.catalog.define(name, definition)
        if before is not None and before.kinds is not definition.kinds:
            self.watches.end(name)

    def _compile(self, name: str, obj: JsonObject, revision: int) -> _Compiled:
        spec = msgspec.json.encode([obj["spec"], (obj.get("status") or {}).get("acceptedNames")])
        known = self._compiled.get(name)
        if known is None or known.spec != spec:
            known = self._compiled[name] = _Compiled(spec, tuple(crd.served_kinds(obj)), revision)
        return known

    def _forget(self, name: str) -> None:
        self._compiled.pop(name, None)
        self._accepted.pop(name, None)
        self.catalog.forget(name)
        self.watches.end(name)
        for path, _ in self.store.scan(DEFINITIONS):
            self.background.queue(self.review, Key(DEFINITIONS, "", path))

    def _others(self, name: str) -> list[ServedKind]:
        """Return the kinds whose names are taken.

        These are built-in kinds, and those of accepted definitions, uncommitted ones included.
        """
        accepted = [
            kinds
            for other, kinds in self._accepted.items()
            if other != name and self.store.latest(Key(DEFINITIONS, "", other)) is not None
        ]
        return [*self.catalog.builtins, *(kind for kinds in accepted for kind in kinds)]


def _is_established(obj: JsonObject) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


def _is_held(obj: JsonObject) -> bool:
    return meta.is_deleting(obj) and CUSTOM_CLEANUP in meta.finalizers_of(obj)


def _release(obj: JsonObject) -> None:
    meta.set_finalizers(obj, [name for name in meta.finalizers_of(obj) if name != CUSTOM_CLEANUP])


def _set_waiting(obj: JsonObject, now: str) -> None:
    status = obj.setdefault("status", {})
    conditions = status.get("conditions") or []
    before = next((one for one in conditions if one.get("type") == "Terminating"), None)
    waiting = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": before["lastTransitionTime"] if before else now,
        "reason": "InstanceDeletionInProgress",
        "message": "CustomResource deletion is in progress",
    }
    status["conditions"] = [*(one for one in conditions if one.get("type") != "Terminating"), waiting]
