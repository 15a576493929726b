"""Owner references, finalizers and field managers.

All functions are pure (metadata in, metadata or a patch out), except `add_finalizer` and `remove_finalizer`, which
write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from kubebase.meta import JsonObject, Kind, ObjectMeta, OwnerReference, Resource
from kuberun.client import Client
from kuberun.requests import PLAIN, WriteOptions

T = TypeVar("T")

MAX_FIELD_MANAGER_BYTES = 128
"""The API's own limit."""


def owner_reference(resource: Resource, owner: ObjectMeta) -> OwnerReference:
    """Return a reference that lets the garbage collector delete the dependant after its owner."""
    return OwnerReference(api_version=resource.api_version, kind=resource.kind, name=owner.name, uid=owner.uid)


def controller_reference(resource: Resource, owner: ObjectMeta) -> OwnerReference:
    """Return the reference of the owner that manages the object and whose deletion waits for the object."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def without_owner(references: Sequence[OwnerReference], uid: str) -> list[OwnerReference]:
    return [reference for reference in references if reference.uid != uid]


def controller_of(references: Sequence[OwnerReference]) -> OwnerReference | None:
    return next((reference for reference in references if reference.controller), None)


def is_controlled_by(metadata: ObjectMeta, owner_uid: str) -> bool:
    controller = controller_of(metadata.owner_references)
    return controller is not None and controller.uid == owner_uid


def finalizer_added(metadata: ObjectMeta, name: str) -> JsonObject | None:
    """Return the merge patch that adds a finalizer; None if it is present, or if deletion has already begun."""
    if name in metadata.finalizers or metadata.deletion_timestamp is not None:
        return None
    return _finalizers(metadata, [*metadata.finalizers, name])


def finalizer_removed(metadata: ObjectMeta, name: str) -> JsonObject | None:
    """Return the merge patch that removes a finalizer; None if it is absent."""
    if name not in metadata.finalizers:
        return None
    return _finalizers(metadata, [finalizer for finalizer in metadata.finalizers if finalizer != name])


def field_manager(text: str) -> str:
    """Return the name if it is a valid field manager, else raise a `ValueError` that says why."""
    if not text or len(text.encode()) > MAX_FIELD_MANAGER_BYTES or not text.isprintable():
        raise ValueError(f"a field manager has 1 to {MAX_FIELD_MANAGER_BYTES} printable bytes, not {text!r}")
    return text


async def add_finalizer(
    client: Client, kind: Kind[T], metadata: ObjectMeta, name: str, *, options: WriteOptions = PLAIN
) -> T | None:
    """Add the finalizer and return the object; None if nothing had to change. `Conflict` if the object changed."""
    patch = finalizer_added(metadata, name)
    if patch is None:
        return None
    return await client.merge_patch(kind, metadata.key, patch, options=options)


async def remove_finalizer(
    client: Client, kind: Kind[T], metadata: ObjectMeta, name: str, *, options: WriteOptions = PLAIN
) -> T | None:
    """Remove the finalizer and return the object; None if nothing had to change. `Conflict` if the object changed."""
    patch = finalizer_removed(metadata, name)
    if patch is None:
        return None
    return await client.merge_patch(kind, metadata.key, patch, options=options)


def _finalizers(metadata: ObjectMeta, finalizers: list[str]) -> JsonObject:
    """Build the patch. It names the version it was made for, because a merge patch replaces the whole list."""
    fields: dict[str, Any] = {"finalizers": finalizers or None, "resourceVersion": metadata.resource_version}
    return {"metadata": {**fields, "uid": metadata.uid} if metadata.uid else fields}
