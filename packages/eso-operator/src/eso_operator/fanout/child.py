"""What a child should be, and what has to be done so that a live one is that. Pure.

Labels, annotations and spec are replaced as a whole, each only if it differs: what others added goes, and what did not
change is not written. Owner references of others stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from eso_operator.fanout.description import Contents, FanOut
from kuberun.decoding import error_text
from kuberun.meta import JsonObject, Malformed, ObjectKey, ObjectMeta, OwnerReference, Resource, meta_of
from kuberun.ownership import controller_of, controller_reference, without_owner


@dataclass(frozen=True, slots=True)
class Create:
    document: JsonObject


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A JSON patch; it is refused if the object changed since it was looked at."""

    operations: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """It is as it should be."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody else's object has the name."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """It is being deleted, and can be made again when it is gone."""


Step = Create | Rewrite | Keep | Taken | Leaving


@dataclass(frozen=True, slots=True)
class Desired:
    """The child of one parent, the same in every namespace. `comparable` is the spec as `FanOut.comparable` has it."""

    owner: OwnerReference
    contents: Contents
    comparable: Any


class NoSpecError(ValueError):
    """What a parent holds as its children's spec is none; the message names the field and no value."""


def desired_of(fan_out: FanOut, parent: Any) -> Desired:
    """What the parent asks for; raises NoSpecError when that is no child."""
    contents = fan_out.contents(parent)
    try:
        comparable = fan_out.comparable(contents.spec)
    except msgspec.ValidationError as error:
        raise NoSpecError(error_text(error)) from None
    return Desired(controller_reference(fan_out.parent.resource, parent.metadata), contents, comparable)


def step(fan_out: FanOut, desired: Desired, key: ObjectKey, live: Any | None) -> Step:
    """What the live object, or its absence, asks for."""
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
    """Whether the object is controlled by the parent of that kind and name, of whatever version and life."""
    return parent_of(metadata) == (resource.group, resource.kind, parent)


def parent_of(metadata: ObjectMeta) -> tuple[str, str, str] | None:
    """Group, kind and name of the controlling owner."""
    owner = controller_of(metadata.owner_references)
    if owner is None:
        return None
    return owner.api_version.rpartition("/")[0], owner.kind, owner.name


def disowning(parent: ObjectMeta, child: ObjectMeta) -> tuple[JsonObject, ...]:
    """The JSON patch that takes the parent's owner reference off the child."""
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
    """Writing the version that is there already makes the server refuse when it is not there any more."""
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.resource_version}
