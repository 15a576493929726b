"""Creates, updates and deletes children. Failures are values.

The cache may be stale. Every write carries its precondition (no such object, or an object of a certain version), so the
server rejects a decision on stale facts; then the object is read and the decision is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, assert_never

from eso_operator.controllers.contention import Contention
from eso_operator.controllers.fanout.child import Create, Desired, Keep, Leaving, Rewrite, Taken, disowning, step
from eso_operator.controllers.fanout.description import FanOut
from eso_operator.controllers.fanout.outcome import ChildResult, Failed, Left, Reached, Refused
from kubebase.clock import Clock
from kubebase.meta import JsonObject, Kind, ObjectKey, ObjectMeta, metadata_of, raw
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.ownership import is_controlled_by
from kuberun.requests import DeleteOptions, WriteOptions

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE: Final = 8
_LOOKS: Final = 3
_BUSY: Final = "the object changes all the time; it will be tried again"
_CONTENDED: Final = "another writer changes the object back each time; its metadata.managedFields name it"
_LEAVING: Final = "the object of that name is being deleted; it is made again when it is gone"
_TERMINATING: Final = "NamespaceTerminating"


class ChildWriter:
    """Writes for one pair of parent and child."""

    def __init__(self, client: Client, clock: Clock, fan_out: FanOut) -> None:
        self._client = client
        self._contention = Contention(clock)
        self._fan_out = fan_out
        self._kind: Kind[JsonObject] = raw(fan_out.child.resource)
        self._options = WriteOptions(field_manager=fan_out.field_manager)

    async def settle(self, desired: Desired, key: ObjectKey, live: Any | None) -> ChildResult:
        """Make the object of this key match the desired one; `live` is the cached object."""
        try:
            for _ in range(_LOOKS):
                result = await self._attempt(desired, key, live)
                if result is not None:
                    return result
                live = await self._found(self._fan_out.child, key)
        except ApiError as error:
            return Left() if _namespace_is_going(error) else Failed(key.namespace, error.message)
        return Failed(key.namespace, _BUSY)

    async def remove(self, parent: ObjectMeta, child: ObjectMeta) -> ChildResult:
        """Delete the child, unless another owner has taken it over."""
        return await self._part_with(parent, child, self._deleted)

    async def let_go(self, parent: ObjectMeta, child: ObjectMeta) -> ChildResult:
        """Take our owner reference off the child, so that it outlives the parent."""
        return await self._part_with(parent, child, partial(self._disowned, parent))

    async def _part_with(
        self, parent: ObjectMeta, child: ObjectMeta, act: Callable[[ObjectMeta], Awaitable[None]]
    ) -> ChildResult:
        """Apply an action to the child while it is ours; retry if it changed since it was read."""
        seen = child
        try:
            for _ in range(_LOOKS):
                if seen.deletion_timestamp is not None or not is_controlled_by(seen, parent.uid):
                    return Left()
                try:
                    await act(seen)
                except NotFound:
                    return Left()
                except Conflict:
                    found = await self._found(metadata_of(self._fan_out.child.resource), child.key)
                    if found is None:
                        return Left()
                    seen = found.metadata
                else:
                    return Left()
        except ApiError as error:
            return Failed(child.namespace, error.message)
        return Failed(child.namespace, _BUSY)

    async def _attempt(self, desired: Desired, key: ObjectKey, live: Any | None) -> ChildResult | None:
        """Try once to make the object match; return None if the decision was made on stale facts."""
        planned = step(self._fan_out, desired, key, live)
        match planned:
            case Keep():
                return Reached(key.namespace)
            case Taken():
                return Refused(key.namespace, self._fan_out.texts.taken)
            case Leaving():
                return Refused(key.namespace, _LEAVING)
            case Create(document=document):
                try:
                    await self._client.create(self._kind, document, options=self._options)
                except AlreadyExists:
                    return None
            case Rewrite(operations=operations):
                if not self._contention.allows(key, desired.contents):
                    return Failed(key.namespace, _CONTENDED)
                try:
                    await self._client.json_patch(self._kind, key, operations, options=self._options)
                except (Conflict, NotFound):
                    return None
            case _:
                assert_never(planned)
        return Reached(key.namespace)

    async def _deleted(self, seen: ObjectMeta) -> None:
        options = DeleteOptions(uid=seen.uid, resource_version=seen.resource_version)
        await self._client.delete(self._fan_out.child, seen.key, options)

    async def _disowned(self, parent: ObjectMeta, seen: ObjectMeta) -> None:
        await self._client.json_patch(self._kind, seen.key, disowning(parent, seen), options=self._options)

    async def _found(self, kind: Kind[T], key: ObjectKey) -> T | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None


async def each(items: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return all results, in order; a few run at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> R:
        async with slots:
            return await act(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


def _namespace_is_going(error: ApiError) -> bool:
    """Return whether a child was rejected because its namespace is being deleted or no longer exists."""
    if isinstance(error, NotFound):
        return error.details.kind == "namespaces"
    return any(cause.reason == _TERMINATING for cause in error.causes)
