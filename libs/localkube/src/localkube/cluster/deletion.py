"""Deleting objects: preconditions, finalizers, the special cases of single kinds, and garbage collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.cluster import metadata as meta
from localkube.cluster.background import Background
from localkube.cluster.catalog import Catalog, Conversions, Target
from localkube.cluster.metadata import DEFINITIONS, IMMORTAL_NAMESPACES, NAMESPACES, RETURNED_WHEN_DELETED
from localkube.cluster.writes import Writer
from localkube.errors import conflict, forbidden, not_found
from localkube.model import DeleteOptions, User
from localkube.storage import Change, Key, Record
from localkube.storage.store import Batch, ObjectStorage

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
CUSTOM_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Deleter:
    def __init__(self, store: ObjectStorage, conversions: Conversions, clock: Clock) -> None:
        self._store = store
        self._conversions = conversions
        self._clock = clock

    def delete(self, target: Target, options: DeleteOptions) -> tuple[JsonObject, Batch | None]:
        """Delete an object; return the response to the client, and the batch to wait for before sending it."""
        record = self._store.latest(target.key)
        if record is None:
            raise not_found(target.resource.plural, target.name, group=target.resource.group)
        if target.kind.storage_key == NAMESPACES and target.name in IMMORTAL_NAMESPACES:
            raise forbidden(NAMESPACES, target.name, "this namespace may not be deleted")
        obj = self._conversions.read(target.kind, record)
        _check_preconditions(target, options, obj)
        before = meta.finalizers_of(obj)
        finalizers = _finalizers_after(before, options)
        if target.kind.storage_key == DEFINITIONS and not meta.is_deleting(obj):
            finalizers = [*finalizers, *([] if CUSTOM_CLEANUP in finalizers else [CUSTOM_CLEANUP])]
        if not finalizers and not _is_held_by_spec(target, obj):
            batch = None if options.dry_run else self._store.remove(target.key)
            return _deletion_response(target, obj), batch
        if meta.is_deleting(obj) and finalizers == before:
            return obj, None
        meta.set_finalizers(obj, finalizers)
        self._mark(target, obj)
        stored = self._conversions.stored(target.kind, obj)
        batch = None if options.dry_run else self._store.put(target.key, stored)
        return self._conversions.shown(target.kind, stored), batch

    def _mark(self, target: Target, obj: JsonObject) -> None:
        """Begin the deletion of an object that has finalizers."""
        if meta.is_deleting(obj):
            return
        metadata = obj["metadata"]
        now = rfc3339(self._clock.now())
        metadata["deletionTimestamp"] = now
        match target.kind.storage_key:
            case "namespaces":
                obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
            case "customresourcedefinitions.apiextensions.k8s.io":
                _add_terminating_condition(obj, now)
            case _:
                metadata["deletionGracePeriodSeconds"] = 0
                if metadata.get("generation"):
                    metadata["generation"] += 1


def _check_preconditions(target: Target, options: DeleteOptions, obj: JsonObject) -> None:
    resource, metadata = target.resource, obj["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource.kind, target.name, why, group=resource.group)
    version = options.resource_version
    if version and version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource.kind, target.name, why, group=resource.group)


def _finalizers_after(finalizers: list[str], options: DeleteOptions) -> list[str]:
    """Turn the propagation policy into a finalizer for the garbage collector."""
    match options.propagation:
        case "Orphan":
            return [*_others(finalizers), ORPHAN]
        case "Foreground":
            return [*_others(finalizers), FOREGROUND]
        case "Background":
            return _others(finalizers)
        case _:
            return finalizers


def _others(finalizers: list[str]) -> list[str]:
    return [name for name in finalizers if name not in {ORPHAN, FOREGROUND}]


def _is_held_by_spec(target: Target, obj: JsonObject) -> bool:
    return target.kind.storage_key == NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))


def _add_terminating_condition(obj: JsonObject, now: str) -> None:
    status = obj.setdefault("status", {})
    conditions = [one for one in status.get("conditions") or [] if one.get("type") != "Terminating"]
    conditions.append(
        {
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }
    )
    status["conditions"] = conditions


def _deletion_response(target: Target, obj: JsonObject) -> JsonObject:
    resource = target.resource
    if target.kind.storage_key in RETURNED_WHEN_DELETED:
        return obj
    details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": obj["metadata"]["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }


# --- Garbage collection by owner references ---------------------------------------------------------------------------
#     owner deleted (or another object has its name) -> its dependents are deleted, unless another owner still exists
#     owner deleted with policy Foreground           -> dependents first, then the owner (finalizer foregroundDeletion)
#     owner deleted with policy Orphan               -> dependents lose the reference (finalizer orphan)
#
# An owner is looked up in the dependent's namespace, or cluster-wide if its kind is cluster-scoped. An owner that
# cannot be looked up (an unknown kind, a namespaced owner of a cluster-scoped object) counts as existing, so that
# nothing is deleted by mistake.


USER = User("system:serviceaccount:kube-system:generic-garbage-collector")
MANAGER = "kube-controller-manager"
_CHUNK = 200
"""Dependents orphaned in one turn, so that a large owner does not delay other requests."""
_RELEVANT = (b'"ownerReferences":', b'"deletionTimestamp":')

OwnerState = Literal["solid", "dangling", "waiting"]


@dataclass(slots=True)
class OwnerIndex:
    """The dependents of each owner, by the owner's uid."""

    _dependents: dict[str, dict[Key, None]] = field(default_factory=dict)
    _owners: dict[Key, frozenset[str]] = field(default_factory=dict)

    def dependents(self, uid: str) -> list[Key]:
        return list(self._dependents.get(uid, ()))

    def knows(self, key: Key) -> bool:
        return key in self._owners

    def set(self, key: Key, uids: frozenset[str]) -> None:
        for uid in self._owners.pop(key, frozenset()) - uids:
            keys = self._dependents.get(uid)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._dependents[uid]
        for uid in uids:
            self._dependents.setdefault(uid, {})[key] = None
        if uids:
            self._owners[key] = uids


class GarbageCollector:
    def __init__(
        self, store: ObjectStorage, catalog: Catalog, writer: Writer, deleter: Deleter, background: Background
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._writer = writer
        self._deleter = deleter
        self._background = background
        self._index = OwnerIndex()

    def start(self) -> None:
        """Read all owner references, and follow every change from here on."""
        for resource in self._store.resources():
            for path, record in self._store.scan(resource):
                namespace, _, name = path.rpartition("/")
                if _is_relevant(record):
                    self._note(Key(resource, namespace, name), record.decode())
        self._store.listen(self._on_change)

    async def process(self, key: Key) -> None:
        """Process one object: delete it, orphan it or release it, as its owners and its own deletion require."""
        record = self._store.latest(key)
        kind = self._catalog.stored(key.resource)
        if record is None or kind is None:
            return
        target = Target(kind, key.namespace, key.name)
        obj = record.decode()
        if not meta.is_deleting(obj):
            await _done(self._collect(target, obj, record))
        elif FOREGROUND in meta.finalizers_of(obj):
            await _done(self._foreground(target, record.uid))
        elif ORPHAN in meta.finalizers_of(obj):
            await _done(self._orphan(target, record.uid))

    # --- what changes ask for ----------------------------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        key, is_gone = change.key, change.type == "DELETED"
        if is_gone:
            for dependent in self._index.dependents(change.record.uid):
                self._background.queue(self.process, dependent)
        if not (_is_relevant(change.record) or self._index.knows(key)):
            return
        previous = change.previous_object
        if previous is not None and _owners_of(previous):
            self._queue_owners(key, previous)
        if is_gone:
            self._index.set(key, frozenset())
        else:
            self._note(key, change.object)

    def _note(self, key: Key, obj: JsonObject) -> None:
        owners = _owners_of(obj)
        self._index.set(key, frozenset(owner.get("uid", "") for owner in owners))
        if owners or meta.is_deleting(obj):
            self._background.queue(self.process, key)

    def _queue_owners(self, key: Key, obj: JsonObject) -> None:
        """Queue the owners that may have waited for this dependent."""
        for owner in _owners_of(obj):
            owner_key = self._owner_key(key, owner)
            record = self._store.get(owner_key) if owner_key else None
            if owner_key and record and _RELEVANT[1] in record.body:
                self._background.queue(self.process, owner_key)

    # --- actions -----------------------------------------------------------------------------------------------------

    def _collect(self, target: Target, obj: JsonObject, record: Record) -> Batch | None:
        """Delete a dependent whose owners were all deleted; if one still exists, drop the references to the others."""
        owners = _owners_of(obj)
        states = [self._state_of(target.key, owner) for owner in owners]
        if not owners or all(state == "solid" for state in states):
            return None
        if "solid" in states:
            lost = {owner["uid"] for owner, state in zip(owners, states, strict=True) if state != "solid"}
            return self._writer.save(target, lambda new: _drop_owners(new, lost), manager=MANAGER)
        has_dependents = "waiting" in states and bool(self._index.dependents(record.uid))
        options = DeleteOptions(USER, uid=record.uid, propagation="Foreground" if has_dependents else "")
        return self._deleter.delete(target, options)[1]

    def _foreground(self, target: Target, uid: str) -> Batch | None:
        blocking = [key for key in self._index.dependents(uid) if self._blocks(key, uid)]
        for key in blocking:
            self._background.queue(self.process, key)
        if blocking:
            return None
        return self._writer.save(target, lambda new: _drop_finalizer(new, FOREGROUND), manager=MANAGER)

    def _orphan(self, target: Target, uid: str) -> Batch | None:
        last: Batch | None = None
        for key in self._index.dependents(uid):
            kind = self._catalog.stored(key.resource)
            if kind is not None:
                dependent = Target(kind, key.namespace, key.name)
                last = self._writer.save(dependent, lambda new: _drop_owners(new, {uid}), manager=MANAGER) or last
            if last is not None and len(last.changes) >= _CHUNK:
                self._background.queue(self.process, target.key)  # the rest in the next turn
                return last
        return self._writer.save(target, lambda new: _drop_finalizer(new, ORPHAN), manager=MANAGER)

    def _blocks(self, key: Key, uid: str) -> bool:
        record = self._store.latest(key)
        if record is None or self._catalog.stored(key.resource) is None:
            return False
        return any(one.get("uid") == uid and one.get("blockOwnerDeletion") for one in _owners_of(record.decode()))

    def _state_of(self, key: Key, owner: JsonObject) -> OwnerState:
        owner_key = self._owner_key(key, owner)
        if owner_key is None:
            return "solid"
        record = self._store.latest(owner_key)
        if record is None or record.uid != owner.get("uid"):
            return "dangling"
        if owner.get("blockOwnerDeletion") and _RELEVANT[1] in record.body:
            obj = record.decode()
            if meta.is_deleting(obj) and FOREGROUND in meta.finalizers_of(obj):
                return "waiting"
        return "solid"

    def _owner_key(self, key: Key, owner: JsonObject) -> Key | None:
        """Return the key under which the owner must be stored; None if it cannot be determined."""
        kind = self._catalog.find_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        if kind is None or (kind.resource.namespaced and not key.namespace):
            return None
        return Key(kind.storage_key, key.namespace if kind.resource.namespaced else "", owner.get("name", ""))


async def _done(batch: Batch | None) -> None:
    if batch is not None:
        await batch.committed()


def _is_relevant(record: Record) -> bool:
    return any(mark in record.body for mark in _RELEVANT)


def _owners_of(obj: JsonObject) -> list[JsonObject]:
    return obj["metadata"].get("ownerReferences") or []


def _drop_owners(obj: JsonObject, uids: set[str]) -> None:
    left = [owner for owner in _owners_of(obj) if owner.get("uid") not in uids]
    if left:
        obj["metadata"]["ownerReferences"] = left
    else:
        obj["metadata"].pop("ownerReferences", None)


def _drop_finalizer(obj: JsonObject, name: str) -> None:
    meta.set_finalizers(obj, [one for one in meta.finalizers_of(obj) if one != name])
