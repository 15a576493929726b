"""Reconciles one parent: gather, hold, spread, report. The same for every pair of `FanOut`.

All decisions use the caches; an unchanged object costs no request. Children are found by their owner reference and not
by the status, so a lost status write loses no child.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from eso_api.references import SelectorError
from eso_operator.controllers.fanout.child import NoSpecError, desired_of
from eso_operator.controllers.fanout.description import FanOut, Parent
from eso_operator.controllers.fanout.leftovers import Leftovers
from eso_operator.controllers.fanout.namespaces import gaps, work
from eso_operator.controllers.fanout.outcome import Failed, Reached, Spread, Unreadable, report_of
from eso_operator.controllers.fanout.parents import ParentRecord, Parents
from eso_operator.controllers.fanout.readiness import Unready, unready
from eso_operator.controllers.fanout.triggers import PARENT_INDEX
from eso_operator.controllers.fanout.writing import ChildWriter, each
from eso_operator.memory import Memory
from eso_operator.report.reporter import Reporter
from kubebase.clock import Clock
from kubebase.meta import Malformed, Object, ObjectKey, ObjectMeta
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, Result
from kuberun.errors import ApiError
from kuberun.ownership import add_finalizer, is_controlled_by, remove_finalizer

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
class Outside:
    """The dependencies of the reconciler."""

    client: Client
    clock: Clock
    reporter: Reporter[Parent]
    memory: Memory[ParentRecord]


class FanOutReconciler:
    """Keeps the children of one kind of parent."""

    def __init__(self, fan_out: FanOut, caches: Caches, outside: Outside) -> None:
        self._fan_out = fan_out
        self._caches = caches
        self._outside = outside
        self._parents = Parents(caches.parents, outside.memory)
        self._writer = ChildWriter(outside.client, outside.clock, fan_out)
        self._leftovers = Leftovers(outside.client, caches.namespaces, fan_out.left_on_namespaces)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Create the parent's child in every selected namespace, and delete all others."""
        parent = self._parents.get(key)
        if parent is None:
            return await self._forget(key)
        if isinstance(parent, Malformed):
            return Done()  # `controllers.malformed` reports it
        self._outside.memory.of(key, parent.metadata.uid)
        try:
            with self._outside.reporter.timed(parent.metadata):
                return await self._keep(parent)
        except ApiError as problem:
            return self._outside.reporter.ended_by(problem)

    async def _keep(self, parent: Parent) -> Result:
        """Reconcile the parent: delete its children if it is being deleted, otherwise hold and spread."""
        if parent.metadata.deletion_timestamp is not None:
            return await self._take_down(parent)
        parent = await self._held(parent)
        then = await self._report(parent, await self._spread(parent))
        return await self._release(parent.metadata.name) or then

    async def _held(self, parent: Parent) -> Parent:
        """Return the parent after adding its finalizer."""
        if not self._fan_out.finalizer:
            return parent
        held: Parent | None = await add_finalizer(
            self._outside.client, self._fan_out.parent, parent.metadata, self._fan_out.finalizer
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
        reached = [ObjectKey(result.namespace, name) for result in settled if isinstance(result, Reached)]
        return Spread(name, (*removed, *settled), self._unready(reached), gaps(choice, namespaces))

    async def _report(self, parent: Parent, came: Spread | Unreadable) -> Result:
        """Report the outcome once."""
        now = self._outside.clock.now()
        told = await self._outside.reporter.publish(parent, lambda parent: report_of(self._fan_out, parent, came, now))
        if told.obj is not parent:
            self._parents.wrote(parent, told.obj)
        return told.then

    async def _take_down(self, parent: Parent) -> Result:
        """Delete the children of a parent that is being deleted, unless they must be orphaned."""
        metadata = parent.metadata
        if self._fan_out.finalizer not in metadata.finalizers:
            return Done()
        part_with = self._writer.let_go if _ORPHAN in metadata.finalizers else self._writer.remove
        results = await each(self._children_of(metadata).values(), partial(part_with, metadata))
        if any(isinstance(result, Failed) for result in results):
            # Reported on the object, where users look for the cause of a blocked deletion.
            return await self._report(parent, Spread(self._fan_out.name(parent), tuple(results)))
        if (again := await self._release(metadata.name)) is not None:
            return again
        await remove_finalizer(self._outside.client, self._fan_out.parent, metadata, self._fan_out.finalizer)
        return Done()

    async def _forget(self, key: ObjectKey) -> Result:
        """Forget a deleted parent and release its namespaces. The garbage collector deletes its children."""
        self._outside.memory.forget(key)
        return await self._release(key.name) or Done()

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
