"""Who an object belongs to: owner references, finalizers, field managers.

The first part is pure: metadata in, metadata or a patch out. The two functions that write are at the end of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kuberun.client import Client
from kuberun.meta import JsonObject, Kind, ObjectMeta, OwnerReference, Resource
from kuberun.requests import PLAIN, WriteOptions

T = TypeVar("T")

MAX_FIELD_MANAGER_BYTES = 128
"""The API's own bound."""


@dataclass(frozen=True, slots=True)
class OwnedByAnother:
    """The object already has a controller, and an object can have only one."""

    controller: OwnerReference


def owner_reference(resource: Resource, owner: ObjectMeta) -> OwnerReference:
    """A reference that lets the garbage collector delete the dependant after its owner."""
    return OwnerReference(api_version=resource.api_version, kind=resource.kind, name=owner.name, uid=owner.uid)


def controller_reference(resource: Resource, owner: ObjectMeta) -> OwnerReference:
    """The reference of the one owner that manages the object; its deletion waits for the dependant's."""
    return OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )


def with_owner(references: Sequence[OwnerReference], new: OwnerReference) -> list[OwnerReference] | OwnedByAnother:
    """The references with `new` among them once; unchanged and equal if it was there already."""
    current = controller_of(references)
    if new.controller and current is not None and current.uid != new.uid:
        return OwnedByAnother(current)
    if any(reference.uid == new.uid for reference in references):
        return [new if reference.uid == new.uid else reference for reference in references]
    return [*references, new]


def without_owner(references: Sequence[OwnerReference], uid: str) -> list[OwnerReference]:
    return [reference for reference in references if reference.uid != uid]


def controller_of(references: Sequence[OwnerReference]) -> OwnerReference | None:
    return next((reference for reference in references if reference.controller), None)


def is_owned_by(metadata: ObjectMeta, owner_uid: str) -> bool:
    return any(reference.uid == owner_uid for reference in metadata.owner_references)


def is_controlled_by(metadata: ObjectMeta, owner_uid: str) -> bool:
    controller = controller_of(metadata.owner_references)
    return controller is not None and controller.uid == owner_uid


def finalizer_added(metadata: ObjectMeta, name: str) -> JsonObject | None:
    """The merge patch that adds a finalizer; None when it is there, or too late because deletion has begun."""
    if name in metadata.finalizers or metadata.deletion_timestamp is not None:
        return None
    return _finalizers(metadata, [*metadata.finalizers, name])


def finalizer_removed(metadata: ObjectMeta, name: str) -> JsonObject | None:
    """The merge patch that removes a finalizer; None when it is not there."""
    if name not in metadata.finalizers:
        return None
    return _finalizers(metadata, [finalizer for finalizer in metadata.finalizers if finalizer != name])


def field_manager(text: str) -> str:
    """The name as a field manager, or a `ValueError` that says why it cannot be one."""
    if not text or len(text.encode()) > MAX_FIELD_MANAGER_BYTES or not text.isprintable():
        raise ValueError(f"a field manager has 1 to {MAX_FIELD_MANAGER_BYTES} printable bytes, not {text!r}")
    return text


async def add_finalizer(
    client: Client, kind: Kind[T], metadata: ObjectMeta, name: str, *, options: WriteOptions = PLAIN
) -> T | None:
    """The object with the finalizer, or None when nothing was to do. `Conflict` if somebody wrote in between."""
    patch = finalizer_added(metadata, name)
    if patch is None:
        return None
    return await client.merge_patch(kind, metadata.key, patch, options=options)


async def remove_finalizer(
    client: Client, kind: Kind[T], metadata: ObjectMeta, name: str, *, options: WriteOptions = PLAIN
) -> T | None:
    """The object without the finalizer, or None when nothing was to do. `Conflict` if somebody wrote in between."""
    patch = finalizer_removed(metadata, name)
    if patch is None:
        return None
    return await client.merge_patch(kind, metadata.key, patch, options=options)


def _finalizers(metadata: ObjectMeta, finalizers: list[str]) -> JsonObject:
    """A list is replaced as a whole, so the patch must not hit a newer object: it names the version it was made for."""
    fields: dict[str, Any] = {"finalizers": finalizers or None, "resourceVersion": metadata.resource_version}
    return {"metadata": {**fields, "uid": metadata.uid} if metadata.uid else fields}
