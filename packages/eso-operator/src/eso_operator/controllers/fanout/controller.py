"""Reconciles one parent: gather, hold, spread, report. The same for every pair of `FanOut`.

All decisions use the caches; an unchanged object costs no request. Children are found by their owner reference and not
by the status, so a lost status write loses no child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from eso_api.references import SelectorError
from eso_operator.controllers.base import Reconciler, Reporter
from eso_operator.controllers.fanout.kinds import FanOut, Parent
from eso_operator.controllers.fanout.snapshot import gaps, work
from eso_operator.controllers.fanout.status import (
    ChildFailed,
    ChildPresent,
    Spread,
    Unreadable,
    Unready,
    report_of,
    unready,
    verdict,
)
from eso_operator.controllers.fanout.sync import ChildWriter, Leftovers, NoSpecError, desired_of, each, parent_of
from eso_operator.memory import Memory, Record
from kubebase.clock import Clock
from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta, meta_of, version_of
from kuberun import triggers
from kuberun.cache import Cache, Change, IndexFunction
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Result
from kuberun.ownership import add_finalizer, is_controlled_by, remove_finalizer
from kuberun.triggers import EventHandler
from kuberun.workqueue import ReconcileRequest


@dataclass(frozen=True, slots=True)
class Ahead:
    """Our last write, and the versions that it replaced."""

    latest: Parent
    passed: frozenset[str]


@dataclass(slots=True, eq=False)
class ParentRecord(Record):
    """The record of one parent (`eso_operator.memory`)."""

    ahead: Ahead | None = None
    """Our last write, until the cache has it. If lost, a write on the cached object ends in a conflict and a retry."""


class Parents:
    """A view of the cache, with our own last write of each parent until the cache has it."""

    def __init__(self, store: Cache[Any], memory: Memory[ParentRecord]) -> None:
        self._store = store
        self._memory = memory

    def get(self, key: ObjectKey) -> Any | None:
        """Return the newest known state; `Malformed` and None as in the cache."""
        cached = self._store.get(key)
        record = self._memory.find(key)
        if record is None or record.ahead is None:
            return cached
        if cached is not None and version_of(cached) in record.ahead.passed:
            return record.ahead.latest
        record.ahead = None
        return cached

    def wrote(self, before: Parent, after: Parent) -> None:
        """Record that our write replaced the object `before` with `after`."""
        record = self._memory.at(before.metadata.key)
        passed = frozenset() if record.ahead is None else record.ahead.passed
        record.ahead = Ahead(after, passed | {before.metadata.resource_version})


_ORPHAN: Final = "orphan"
"""The finalizer of a deletion with `--cascade=orphan`.

The garbage collector removes owner references too, but deletes a child that it has not seen yet.
"""


@dataclass(frozen=True, slots=True)
class Caches:
    parents: Cache[Any]
    children: Cache[Any]
    """Must have the index `PARENT_INDEX`."""
    namespaces: Cache[Object]


@dataclass(frozen=True, slots=True)
class FanOutDeps:
    """The dependencies of the reconciler."""

    client: Client
    clock: Clock
    reporter: Reporter[Parent]
    memory: Memory[ParentRecord]


class FanOutReconciler(Reconciler[Any]):
    """Keeps the children of one kind of parent."""

    def __init__(self, fan_out: FanOut, caches: Caches, deps: FanOutDeps) -> None:
        super().__init__(caches.parents, deps.memory, timed=deps.reporter.timed)
        self._fan_out = fan_out
        self._caches = caches
        self._deps = deps
        self._parents = Parents(caches.parents, deps.memory)
        self._writer = ChildWriter(deps.client, deps.clock, fan_out)
        self._leftovers = Leftovers(deps.client, caches.namespaces, fan_out.left_on_namespaces)

    def find(self, key: ObjectKey) -> Any | None:
        """Return the parent with our last write."""
        found = self._parents.get(key)
        return None if isinstance(found, Malformed) else found

    async def gone(self, key: ObjectKey) -> Result:
        """Forget a deleted parent and release its namespaces. The garbage collector deletes its children."""
        if key in self._caches.parents:
            return Done()  # it cannot be decoded: its children stay as they are
        self._deps.memory.forget(key)
        return await self._release(key.name) or Done()

    async def reconcile(self, obj: Any, ctx: ReconcileContext) -> Result:
        """Create the parent's child in every selected namespace, and delete all others."""
        del ctx
        parent = await self._with_finalizer(obj)
        result = await self._report(parent, await self._spread(parent))
        return await self._release(parent.metadata.name) or result

    async def finalize(self, obj: Any, ctx: ReconcileContext) -> Result:
        """Delete the children of a parent that is being deleted."""
        del ctx
        with self._timed(obj.metadata):
            return await self._take_down(obj)

    async def _with_finalizer(self, parent: Parent) -> Parent:
        """Return the parent after adding its finalizer."""
        if not self._fan_out.finalizer:
            return parent
        held: Parent | None = await add_finalizer(
            self._deps.client, self._fan_out.parent, parent.metadata, self._fan_out.finalizer
        )
        if held is None:
            return parent
        self._parents.wrote(parent, held)
        return held

    async def _spread(self, parent: Parent) -> Spread | Unreadable:
        """Delete stale children, then write the wanted ones.

        An old child may hold a resource that the new one needs.
        """
        name = self._fan_out.name(parent)
        children = self._children_of(parent.metadata)
        choice = self._fan_out.choice(parent)
        namespaces = [namespace.metadata for namespace in self._caches.namespaces.objects()]
        try:
            desired = desired_of(self._fan_out, parent)
            todo = work(choice, name, namespaces=namespaces, children=children)
        except (SelectorError, NoSpecError) as error:
            return Unreadable(str(error))
        removed = await each((children[key] for key in todo.stale), partial(self._writer.remove, parent.metadata))
        settled = await each(todo.wanted, lambda key: self._writer.settle(desired, key, self._caches.children.get(key)))
        reached = [ObjectKey(result.namespace, name) for result in settled if isinstance(result, ChildPresent)]
        return Spread(name, (*removed, *settled), self._unready(reached), gaps(choice, namespaces))

    async def _report(self, parent: Parent, result: Spread | Unreadable) -> Result:
        """Report the outcome once."""
        now = self._deps.clock.now()
        published = await self._deps.reporter.publish(
            parent, lambda parent: report_of(self._fan_out, parent, result, now)
        )
        if published.obj is not parent:
            self._parents.wrote(parent, published.obj)
        return published.result

    async def _take_down(self, parent: Parent) -> Result:
        """Delete the children of a parent that is being deleted, unless they must be orphaned."""
        metadata = parent.metadata
        if self._fan_out.finalizer not in metadata.finalizers:
            return Done()
        part_with = self._writer.disown if _ORPHAN in metadata.finalizers else self._writer.remove
        results = await each(self._children_of(metadata).values(), partial(part_with, metadata))
        if any(isinstance(result, ChildFailed) for result in results):
            # Reported on the object, where users look for the cause of a blocked deletion.
            return await self._report(parent, Spread(self._fan_out.name(parent), tuple(results)))
        if (again := await self._release(metadata.name)) is not None:
            return again
        await remove_finalizer(self._deps.client, self._fan_out.parent, metadata, self._fan_out.finalizer)
        return Done()

    async def _release(self, parent: str) -> Result | None:
        """Remove finalizers of an earlier operator; return an outcome if that must be retried."""
        held = await self._leftovers.release(parent)
        return Backoff(f"a finalizer is still on namespace {held[0]}") if held else None

    def _unready(self, keys: Iterable[ObjectKey]) -> tuple[Unready, ...]:
        """Return the children that are not ready. A new child is not in the cache yet, and has not reported."""
        found = (unready(key.namespace, self._caches.children.get(key)) for key in keys)
        return tuple(each for each in found if each is not None)

    def _children_of(self, parent: ObjectMeta) -> dict[ObjectKey, ObjectMeta]:
        resource = self._fan_out.parent.resource
        found = self._caches.children.find(PARENT_INDEX, (resource.group, resource.kind, parent.name))
        return {child.key: child.metadata for child in found if is_controlled_by(child.metadata, parent.uid)}


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
