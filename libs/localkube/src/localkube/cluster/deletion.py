"""Deleting objects: preconditions, finalizers, and the special cases of single kinds."""

from __future__ import annotations

from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject
from localkube.cluster import metadata as meta
from localkube.cluster.conversions import Conversions
from localkube.cluster.rules import DEFINITIONS, IMMORTAL_NAMESPACES, NAMESPACES, RETURNED_WHEN_DELETED
from localkube.cluster.target import Target
from localkube.errors import conflict, forbidden, not_found
from localkube.model import DeleteOptions
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
