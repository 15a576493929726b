"""Creates, updates and deletes children. Failures are values.

The cache may be stale. Every write carries its precondition (no such object, or an object of a certain version), so the
server rejects a decision on stale facts; then the object is read and the decision is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, assert_never

import msgspec
import structlog

from eso_operator.controllers.contention import Contention
from eso_operator.controllers.fanout.kinds import Contents, FanOut
from eso_operator.controllers.fanout.status import ChildBlocked, ChildFailed, ChildGone, ChildPresent, ChildResult
from kubebase.clock import Clock
from kubebase.meta import (
    JsonObject,
    Kind,
    Malformed,
    Object,
    ObjectKey,
    ObjectMeta,
    OwnerReference,
    Resource,
    meta_of,
    metadata_of,
    raw,
)
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.ownership import controller_of, controller_reference, is_controlled_by, remove_finalizer, without_owner
from kuberun.requests import DeleteOptions, WriteOptions
from kuberun.source import error_text


@dataclass(frozen=True, slots=True)
class CreateChild:
    document: JsonObject


@dataclass(frozen=True, slots=True)
class PatchChild:
    """A JSON patch; the API server rejects it if the object changed since it was read."""

    operations: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The child matches."""


@dataclass(frozen=True, slots=True)
class NameTaken:
    """A foreign object has the name."""


@dataclass(frozen=True, slots=True)
class BeingDeleted:
    """The child is being deleted, and can be created again afterwards."""


ChildChange = CreateChild | PatchChild | UpToDate | NameTaken | BeingDeleted


@dataclass(frozen=True, slots=True)
class Desired:
    """The child of one parent, the same in every namespace. `comparable` is the spec as `FanOut.comparable` has it."""

    owner: OwnerReference
    contents: Contents
    comparable: Any


class NoSpecError(ValueError):
    """The parent contains no valid spec for its children; the message names the field and no value."""


def desired_of(fan_out: FanOut, parent: Any) -> Desired:
    """Return the child that the parent describes; raise NoSpecError if it describes none."""
    contents = fan_out.contents(parent)
    try:
        comparable = fan_out.comparable(contents.spec)
    except msgspec.ValidationError as error:
        raise NoSpecError(error_text(error)) from None
    return Desired(controller_reference(fan_out.parent.resource, parent.metadata), contents, comparable)


def step(fan_out: FanOut, desired: Desired, key: ObjectKey, live: Any | None) -> ChildChange:
    """Return the step for the live object, or for its absence."""
    if live is None:
        return CreateChild(_document(desired, key))
    metadata = meta_of(live)
    if not is_child(fan_out.parent.resource, desired.owner.name, metadata):
        return NameTaken()
    if metadata.deletion_timestamp is not None:
        return BeingDeleted()
    operations = _operations(fan_out, desired, live)
    return PatchChild((_unchanged(metadata), *operations)) if operations else UpToDate()


def is_child(resource: Resource, parent: str, metadata: ObjectMeta) -> bool:
    """Return whether the object is controlled by a parent of that kind and name, of any version and uid."""
    return parent_of(metadata) == (resource.group, resource.kind, parent)


def parent_of(metadata: ObjectMeta) -> tuple[str, str, str] | None:
    """Group, kind and name of the controlling owner."""
    owner = controller_of(metadata.owner_references)
    if owner is None:
        return None
    return owner.api_version.rpartition("/")[0], owner.kind, owner.name


def disowning(parent: ObjectMeta, child: ObjectMeta) -> tuple[JsonObject, ...]:
    """Return the JSON patch that removes the parent's owner reference from the child."""
    others = without_owner(child.owner_references, parent.uid)
    return (_unchanged(child), _replaced("/metadata/ownerReferences", msgspec.to_builtins(others)))


def _document(desired: Desired, key: ObjectKey) -> JsonObject:
    metadata: JsonObject = {
        "name": key.name,
        "namespace": key.namespace,
        "ownerReferences": [msgspec.to_builtins(desired.owner)],
    }
    if desired.contents.labels:
        metadata["labels"] = desired.contents.labels
    if desired.contents.annotations:
        metadata["annotations"] = desired.contents.annotations
    return {"metadata": metadata, "spec": desired.contents.spec}


def _operations(fan_out: FanOut, desired: Desired, live: Any) -> list[JsonObject]:
    metadata = meta_of(live)
    operations = []
    if metadata.labels != desired.contents.labels:
        operations.append(_replaced("/metadata/labels", desired.contents.labels))
    if metadata.annotations != desired.contents.annotations:
        operations.append(_replaced("/metadata/annotations", desired.contents.annotations))
    if desired.owner not in metadata.owner_references:
        others = [reference for reference in metadata.owner_references if not reference.controller]
        operations.append(_replaced("/metadata/ownerReferences", msgspec.to_builtins([*others, desired.owner])))
    if isinstance(live, Malformed) or fan_out.comparable(live.spec) != desired.comparable:
        operations.append(_replaced("/spec", desired.contents.spec))
    return operations


def _replaced(path: str, value: Any) -> JsonObject:
    return {"op": "add", "path": path, "value": value}


def _unchanged(metadata: ObjectMeta) -> JsonObject:
    """Return an operation that makes the server reject the patch if the object has another version."""
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.resource_version}


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

_KIND: Final = metadata_of(NAMESPACES)
_log = structlog.get_logger(__name__)


class Leftovers:
    """Finalizers with this prefix, followed by the name of a parent. An empty prefix means that there are none."""

    def __init__(self, client: Client, namespaces: Cache[Object], prefix: str) -> None:
        self._client = client
        self._namespaces = namespaces
        self._prefix = prefix

    async def release(self, parent: str) -> list[str]:
        """Take the parent's finalizer off every namespace; the names of those where that did not work."""
        if not self._prefix:
            return []
        finalizer = f"{self._prefix}{parent}"
        held = [namespace for namespace in self._namespaces.objects() if finalizer in namespace.metadata.finalizers]
        return [namespace.metadata.name for namespace in held if not await self._released(namespace, finalizer)]

    async def _released(self, namespace: Object, finalizer: str) -> bool:
        try:
            await remove_finalizer(self._client, _KIND, namespace.metadata, finalizer)
        except NotFound:
            return True
        except ApiError as error:
            _log.warning("finalizer not removed", namespace=namespace.metadata.name, problem=error.reason or error.code)
            return False
        _log.info("finalizer of an earlier operator removed", namespace=namespace.metadata.name, finalizer=finalizer)
        return True


T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE: Final = 8
_ATTEMPTS: Final = 3
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
            for _ in range(_ATTEMPTS):
                result = await self._attempt(desired, key, live)
                if result is not None:
                    return result
                live = await self._found(self._fan_out.child, key)
        except ApiError as error:
            return ChildGone() if _namespace_is_going(error) else ChildFailed(key.namespace, error.message)
        return ChildFailed(key.namespace, _BUSY)

    async def remove(self, parent: ObjectMeta, child: ObjectMeta) -> ChildResult:
        """Delete the child, unless another owner has taken it over."""
        return await self._part_with(parent, child, self._deleted)

    async def disown(self, parent: ObjectMeta, child: ObjectMeta) -> ChildResult:
        """Take our owner reference off the child, so that it outlives the parent."""
        return await self._part_with(parent, child, partial(self._disowned, parent))

    async def _part_with(
        self, parent: ObjectMeta, child: ObjectMeta, act: Callable[[ObjectMeta], Awaitable[None]]
    ) -> ChildResult:
        """Apply an action to the child while it is ours; retry if it changed since it was read."""
        live = child
        try:
            for _ in range(_ATTEMPTS):
                if live.deletion_timestamp is not None or not is_controlled_by(live, parent.uid):
                    return ChildGone()
                try:
                    await act(live)
                except NotFound:
                    return ChildGone()
                except Conflict:
                    found = await self._found(metadata_of(self._fan_out.child.resource), child.key)
                    if found is None:
                        return ChildGone()
                    live = found.metadata
                else:
                    return ChildGone()
        except ApiError as error:
            return ChildFailed(child.namespace, error.message)
        return ChildFailed(child.namespace, _BUSY)

    async def _attempt(self, desired: Desired, key: ObjectKey, live: Any | None) -> ChildResult | None:
        """Try once to make the object match; return None if the decision was made on stale facts."""
        planned = step(self._fan_out, desired, key, live)
        match planned:
            case UpToDate():
                return ChildPresent(key.namespace)
            case NameTaken():
                return ChildBlocked(key.namespace, self._fan_out.name_taken)
            case BeingDeleted():
                return ChildBlocked(key.namespace, _LEAVING)
            case CreateChild(document=document):
                try:
                    await self._client.create(self._kind, document, options=self._options)
                except AlreadyExists:
                    return None
            case PatchChild(operations=operations):
                if not self._contention.allows(key, desired.contents):
                    return ChildFailed(key.namespace, _CONTENDED)
                try:
                    await self._client.json_patch(self._kind, key, operations, options=self._options)
                except (Conflict, NotFound):
                    return None
            case _:
                assert_never(planned)
        return ChildPresent(key.namespace)

    async def _deleted(self, child: ObjectMeta) -> None:
        options = DeleteOptions(uid=child.uid, resource_version=child.resource_version)
        await self._client.delete(self._fan_out.child, child.key, options)

    async def _disowned(self, parent: ObjectMeta, child: ObjectMeta) -> None:
        await self._client.json_patch(self._kind, child.key, disowning(parent, child), options=self._options)

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
