"""From changes to requests: predicates decide whether a change matters, mappings decide which keys to reconcile.

    controller.watch(secrets, when(any_of(deleted, labels_changed), owner("ExternalSecret")))

Everything here is a plain function of one `Change`. A change may stand for several events of the same object: compare
`old` with `new`, and do not count changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kubebase.meta import ObjectKey, ObjectMeta, meta_of
from kuberun.cache import Change, Origin
from kuberun.workqueue import Lane, ReconcileRequest

T = TypeVar("T")

Predicate = Callable[[Change[T]], bool]
EventHandler = Callable[[Change[T]], Iterable[ReconcileRequest]]

# --- predicates ------------------------------------------------------------------------------------------------------


def created(change: Change[Any]) -> bool:
    """Return whether the object is new, or a new object under the same name."""
    return change.created


def deleted(change: Change[Any]) -> bool:
    """Return whether the object is deleted."""
    return change.deleted


def resynced(change: Change[Any]) -> bool:
    """Return whether the object was only delivered again, without a change."""
    return change.origin is Origin.RESYNCED


def generation_changed(change: Change[Any]) -> bool:
    """Return whether the generation changed: the spec, or anything except metadata and status."""
    return _differs(change, lambda meta: meta.generation)


def labels_changed(change: Change[Any]) -> bool:
    return _differs(change, lambda meta: meta.labels)


def annotations_changed(change: Change[Any]) -> bool:
    return _differs(change, lambda meta: meta.annotations)


def deletion_started(change: Change[Any]) -> bool:
    """Return whether deletion was requested while finalizers still hold the object."""
    if change.new is None or meta_of(change.new).deletion_timestamp is None:
        return False
    return change.old is None or meta_of(change.old).deletion_timestamp is None


def any_of(*predicates: Predicate[T]) -> Predicate[T]:
    return lambda change: any(predicate(change) for predicate in predicates)


def all_of(*predicates: Predicate[T]) -> Predicate[T]:
    return lambda change: all(predicate(change) for predicate in predicates)


def _differs(change: Change[Any], part: Callable[[ObjectMeta], object]) -> bool:
    """Return whether that part of the metadata changed; always true for an object that was created or deleted."""
    if change.old is None or change.new is None:
        return True
    return part(meta_of(change.old)) != part(meta_of(change.new))


# --- mappings --------------------------------------------------------------------------------------------------------


def lane_of(change: Change[Any]) -> Lane:
    """Return the lane for a change of the reconciled object itself.

    Objects of the first list existed before this process. Most are in order, so new objects go first.
    """
    if change.origin is not Origin.WATCHED:
        return Lane.REFRESH
    if created(change):
        return Lane.FIRST_SYNC
    if generation_changed(change) or deletion_started(change):
        return Lane.SPEC_CHANGE
    return Lane.EVENT


def itself(lane: Callable[[Change[Any]], Lane] = lane_of) -> EventHandler[Any]:
    """Request the object that changed."""
    return lambda change: (ReconcileRequest(change.key, _what_happened(change), lane(change)),)


def owner(kind: str, *, group: str | None = None) -> EventHandler[Any]:
    """Request the controlling owner of that kind, of the old state too, so that a former owner is notified.

    `group` restricts it to one API group, for kinds whose name is used in several.
    """

    def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
        owners = {
            ObjectKey(meta.namespace, reference.name)
            for meta in _states(change)
            for reference in meta.owner_references
            if reference.controller and reference.kind == kind and group in (None, _group(reference.api_version))
        }
        return [ReconcileRequest(key, f"owned {change.key} {_what_happened(change)}") for key in sorted(owners)]

    return requests


def when(predicate: Predicate[T], handler: EventHandler[T]) -> EventHandler[T]:
    """Apply the mapping only to changes for which the predicate holds."""
    return lambda change: handler(change) if predicate(change) else ()


def _states(change: Change[Any]) -> list[ObjectMeta]:
    return [meta_of(state) for state in (change.old, change.new) if state is not None]


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


def _what_happened(change: Change[Any]) -> str:
    if change.deleted:
        return "deleted"
    if change.origin is not Origin.WATCHED:
        return str(change.origin.value)
    return "created" if change.created else "changed"
