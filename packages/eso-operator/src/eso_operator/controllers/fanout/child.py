"""The desired child, and the step that makes a live child match it. Pure.

Labels, annotations and spec are replaced as a whole, each only if it differs: additions of others are removed, and
unchanged parts are not written. Owner references of others stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from eso_operator.controllers.fanout.description import Contents, FanOut
from kubebase.meta import JsonObject, Malformed, ObjectKey, ObjectMeta, OwnerReference, Resource, meta_of
from kuberun.decoding import error_text
from kuberun.ownership import controller_of, controller_reference, without_owner


@dataclass(frozen=True, slots=True)
class Create:
    document: JsonObject


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A JSON patch; the API server rejects it if the object changed since it was read."""

    operations: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """The child matches."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A foreign object has the name."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The child is being deleted, and can be created again afterwards."""


Step = Create | Rewrite | Keep | Taken | Leaving


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


def step(fan_out: FanOut, desired: Desired, key: ObjectKey, live: Any | None) -> Step:
    """Return the step for the live object, or for its absence."""
    if live is None:
        return Create(_document(desired, key))
    metadata = meta_of(live)
    if not is_child(fan_out.parent.resource, desired.owner.name, metadata):
        return Taken()
    if metadata.deletion_timestamp is not None:
        return Leaving()
    operations = _operations(fan_out, desired, live)
    return Rewrite((_unchanged(metadata), *operations)) if operations else Keep()


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
