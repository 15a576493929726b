"""One parent: gather, hold, spread, report. The same for every pair of `FanOut`.

Everything is decided by caches; an object that is in order costs no call at all. Children are found by their owner
reference and not by what the status remembers, so nothing is forgotten when a status write is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from eso_api.references import SelectorError
from eso_operator.fanout.child import NoSpecError, desired_of
from eso_operator.fanout.description import FanOut, Parent
from eso_operator.fanout.leftovers import Leftovers
from eso_operator.fanout.namespaces import gaps, work
from eso_operator.fanout.outcome import Failed, Reached, Spread, Unreadable, report_of
from eso_operator.fanout.parents import Parents
from eso_operator.fanout.readiness import Unready, unready
from eso_operator.fanout.triggers import PARENT_INDEX
from eso_operator.fanout.writing import ChildWriter, each
from eso_operator.telemetry.objects import ObjectSeries
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.controller import Done, Outcome, Retry
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventRecorder
from kuberun.meta import Malformed, Object, ObjectKey, ObjectMeta
from kuberun.ownership import add_finalizer, is_controlled_by, remove_finalizer
from kuberun.status import status_patch

_log = structlog.get_logger(__name__)

_ORPHAN: Final = "orphan"
"""The finalizer of a deletion that was asked to leave the children (`--cascade=orphan`). The garbage collector does it
too, but deletes a child that it has not heard of yet."""
_CHANGED: Final = "the parent changed meanwhile"


@dataclass(frozen=True, slots=True)
class Caches:
    parents: Store[Any]
    children: Store[Any]
    """With `PARENT_INDEX`."""
    namespaces: Store[Object]


@dataclass(frozen=True, slots=True)
class Outside:
    """What reconcilers of all pairs share."""

    client: Client
    clock: Clock
    series: ObjectSeries
    recorder: EventRecorder


class FanOutReconciler:
    """Keeps the children of one kind of parent."""

    def __init__(self, fan_out: FanOut, caches: Caches, outside: Outside) -> None:
        self._fan_out = fan_out
        self._caches = caches
        self._outside = outside
        self._parents = Parents(caches.parents)
        self._writer = ChildWriter(outside.client, outside.clock, fan_out)
        self._leftovers = Leftovers(outside.client, caches.namespaces, fan_out.left_on_namespaces)

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Put the parent's child into every namespace it means, and nowhere else."""
        started = self._outside.clock.monotonic()
        parent = self._parents.get(key)
        if parent is None:
            return await self._forget(key)
        if isinstance(parent, Malformed):
            return Done()  # told by `sync.misfits`
        try:
            then = await self._keep(parent)
        except NotFound:
            return Done()
        except Conflict:
            return Retry(_CHANGED)
        except ApiError as error:
            return Retry(f"the API server answered {error.reason or error.code}")
        self._outside.series.reconciled(
            self._fan_out.subsystem, parent.metadata, self._outside.clock.monotonic() - started
        )
        return then

    async def _keep(self, parent: Parent) -> Outcome:
        """What the parent's stage of life asks for."""
        if parent.metadata.deletion_timestamp is not None:
            return await self._take_down(parent)
        parent = await self._held(parent)
        then = await self._report(parent, await self._spread(parent))
        return await self._release(parent.metadata.name) or then

    async def _held(self, parent: Parent) -> Parent:
        """The parent with its finalizer on it."""
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
        """First what has to go, then what has to be there: an old child may hold what the new one needs."""
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

    async def _report(self, parent: Parent, came: Spread | Unreadable) -> Outcome:
        """Say what came of it, once."""
        report = report_of(self._fan_out, parent, came, self._outside.clock.now())
        changed = await self._written(parent, report.status)
        for news in report.news:
            self._outside.recorder.record(
                self._fan_out.parent.resource, parent.metadata, news.type, news.reason, news.message
            )
        self._outside.series.conditions(self._fan_out.subsystem, parent.metadata, report.status.conditions)
        if changed:
            _log.info(
                "fanned out",
                parent=str(parent.metadata.key),
                provisioned=len(report.status.provisioned_namespaces),
                failed=len(report.status.failed_namespaces),
            )
        return report.then

    async def _written(self, parent: Parent, status: Any) -> bool:
        """Write the status if it differs; whether it did."""
        patch = status_patch(parent.metadata, parent.status, status)
        if patch is None:
            return False
        kind = self._fan_out.parent
        self._parents.wrote(
            parent, await self._outside.client.merge_patch(kind, parent.metadata.key, patch, subresource="status")
        )
        return True

    async def _take_down(self, parent: Parent) -> Outcome:
        """The parent is being deleted: its children go first, unless they were asked to stay."""
        metadata = parent.metadata
        if self._fan_out.finalizer not in metadata.finalizers:
            return Done()
        part_with = self._writer.let_go if _ORPHAN in metadata.finalizers else self._writer.remove
        results = await each(self._children_of(metadata).values(), partial(part_with, metadata))
        if any(isinstance(result, Failed) for result in results):
            # On the object, where people look who wonder why it does not go.
            return await self._report(parent, Spread(self._fan_out.name(parent), tuple(results)))
        if (again := await self._release(metadata.name)) is not None:
            return again
        await remove_finalizer(self._outside.client, self._fan_out.parent, metadata, self._fan_out.finalizer)
        return Done()

    async def _forget(self, key: ObjectKey) -> Outcome:
        """Gone: nothing of it stays, here or on namespaces. Its children are the garbage collector's."""
        self._outside.series.forget(self._fan_out.subsystem, key)
        return await self._release(key.name) or Done()

    async def _release(self, parent: str) -> Outcome | None:
        """Take finalizers of an earlier operator off; an outcome when that has to be tried again."""
        held = await self._leftovers.release(parent)
        return Retry(f"a finalizer is still on namespace {held[0]}") if held else None

    def _unready(self, keys: Iterable[ObjectKey]) -> tuple[Unready, ...]:
        """Of these children, those that are not ready. One just made is not in the cache, and has not reported."""
        found = (unready(key.namespace, self._caches.children.get(key)) for key in keys)
        return tuple(each for each in found if each is not None)

    def _children_of(self, parent: ObjectMeta) -> dict[ObjectKey, ObjectMeta]:
        resource = self._fan_out.parent.resource
        found = self._caches.children.find(PARENT_INDEX, (resource.group, resource.kind, parent.name))
        return {child.key: child.metadata for child in found if is_controlled_by(child.metadata, parent.uid)}
