"""The changes that trigger a reconcile of a parent.

the parent itself    spec, annotations (force-sync), labels, deletion, a removed finalizer; not its status
a child              edited, deleted, disowned; its `Ready` changes; nothing else of its status
a child's name       an object with a name that the parent needs: when it is deleted, the name is free
a namespace          created, deleted, relabelled: parents that select it or selected it before
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from eso_api.references import SelectorError
from eso_operator.controllers.fanout.child import parent_of
from eso_operator.controllers.fanout.description import FanOut
from eso_operator.controllers.fanout.readiness import verdict
from kubebase.meta import Object, ObjectKey, ObjectMeta, meta_of
from kuberun import triggers
from kuberun.cache import Cache, Change, IndexFunction
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest

PARENT_INDEX: Final = "parent"
"""Index of children by group, kind and name of their controlling owner."""
CHILD_NAME_INDEX: Final = "child name"
"""Index of parents by the name of their children."""

_WRITTEN: Final = triggers.any_of(
    triggers.generation_changed,
    triggers.labels_changed,
    triggers.annotations_changed,
    triggers.deletion_started,
    triggers.resynced,
)


def by_parent(child: Any) -> Iterable[tuple[str, str, str]]:
    """Index function of the children's informer."""
    found = parent_of(meta_of(child))
    return () if found is None else (found,)


def by_child_name(fan_out: FanOut) -> IndexFunction[Any]:
    """Index function of the parents' informer."""
    return lambda parent: (fan_out.name(parent),)


def own_changes(fan_out: FanOut) -> EventHandler[Any]:
    """Return requests for changes of the parent. Our finalizer counts when it was removed, not when we added it."""

    def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
        if _WRITTEN(change) or _lost_finalizer(fan_out, change):
            return triggers.itself()(change)
        return ()

    return requests


def child_changes(fan_out: FanOut, parents: Cache[Any]) -> EventHandler[Any]:
    """Return requests for changes of a child: for its present and former owner, and for parents that want its name."""
    resource = fan_out.parent.resource

    def requests(change: Change[Any]) -> Iterable[ReconcileRequest]:
        written = _WRITTEN(change) or _differ(change, lambda metadata: metadata.owner_references)
        # Messages do not count: some differ at every attempt, and each reconcile of a parent visits all of its
        # children.
        if not written and verdict(change.old) == verdict(change.new):
            return []
        owners = {parent_of(metadata) for metadata in _states(change)}
        keys = {ObjectKey("", owner[2]) for owner in owners if owner and owner[:2] == (resource.group, resource.kind)}
        if written:
            keys |= {*parents.find_keys(CHILD_NAME_INDEX, change.key.name)}
        return [ReconcileRequest(key, f"{fan_out.child.resource.kind} {change.key} changed") for key in sorted(keys)]

    return requests


def namespace_changes(fan_out: FanOut, parents: Cache[Any]) -> EventHandler[Object]:
    """Return requests for changes of a namespace.

    They are for parents that select or selected it, and for those with a leftover finalizer on it.
    """

    def requests(change: Change[Object]) -> Iterable[ReconcileRequest]:
        keys = set(_left_by(fan_out, change))
        if triggers.labels_changed(change) or triggers.deletion_started(change):
            keys |= {parent.metadata.key for parent in parents.objects() if _concerns(fan_out, parent, change)}
        return [ReconcileRequest(key, f"namespace {change.key} changed") for key in sorted(keys)]

    return requests


def _concerns(fan_out: FanOut, parent: Any, change: Change[Object]) -> bool:
    choice = fan_out.choice(parent)
    try:
        return any(choice.matches(state) for state in _states(change))
    except SelectorError:
        return False  # the parent's own condition reports it, and only a change of the parent can fix it


def _left_by(fan_out: FanOut, change: Change[Object]) -> Iterator[ObjectKey]:
    prefix = fan_out.left_on_namespaces
    if prefix and change.new is not None:
        for finalizer in meta_of(change.new).finalizers:
            if finalizer.startswith(prefix):
                yield ObjectKey("", finalizer.removeprefix(prefix))


def _lost_finalizer(fan_out: FanOut, change: Change[Any]) -> bool:
    """Return whether an existing parent lacks its finalizer."""
    if not fan_out.finalizer or change.new is None:
        return False
    metadata = meta_of(change.new)
    return metadata.deletion_timestamp is None and fan_out.finalizer not in metadata.finalizers


def _states(change: Change[Any]) -> list[ObjectMeta]:
    return [meta_of(state) for state in (change.old, change.new) if state is not None]


def _differ(change: Change[Any], part: Callable[[ObjectMeta], object]) -> bool:
    if change.old is None or change.new is None:
        return True
    return part(meta_of(change.old)) != part(meta_of(change.new))
