"""Removes fields that a structural schema does not declare, and nulls that it does not allow.

apiVersion, kind and metadata of an object are always known. Nulls of fields that are not nullable and have no default
are removed too, as decoding into a Go struct would do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.schema.causes import Step, render

_META_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(slots=True)
class PruneNode:
    """The parts of one schema node that pruning needs."""

    properties: dict[str, PruneNode] = field(default_factory=dict)
    additional: PruneNode | None = None
    items: PruneNode | None = None
    allows_unknown: bool = False
    is_resource: bool = False
    allows_null: bool = False
    """Null is either allowed or will be replaced by a default."""
    is_map: bool = False


def compile_pruning(schema: JsonObject, *, root: bool = True) -> PruneNode:
    return _compile(schema, {}, root=root)


def _compile(schema: JsonObject, known: dict[int, PruneNode], *, root: bool = False) -> PruneNode:
    """Compile a schema. `known` holds the nodes created so far, by schema: a schema may contain itself."""
    if id(schema) in known:
        return known[id(schema)]
    extra, items = schema.get("additionalProperties"), schema.get("items")
    node = known[id(schema)] = PruneNode(
        allows_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        is_resource=root,
        allows_null=bool(schema.get("nullable")) or schema.get("default") is not None,
        is_map=bool(extra),
    )
    node.properties = {name: _compile(item, known) for name, item in (schema.get("properties") or {}).items()}
    node.additional = _compile(extra, known) if isinstance(extra, dict) else None
    node.items = _compile(items, known) if isinstance(items, dict) else None
    return node


def prune(value: Any, node: PruneNode) -> list[str]:
    """Drop unknown fields below a value in place; return their paths, sorted."""
    dropped: list[str] = []
    _prune(value, node, [], dropped)
    return sorted(dropped)


def drop_nulls(value: Any, node: PruneNode | None) -> None:
    """Drop nulls of fields that may not be null and have no default."""
    if value.__class__ is dict:
        unwanted = []
        for name, item in value.items():
            part = None if node is None else node.properties.get(name, node.additional)
            if item is None:
                if part is not None and not part.allows_null:
                    unwanted.append(name)
            elif item.__class__ is dict or item.__class__ is list:
                drop_nulls(item, part)
        for name in unwanted:
            del value[name]
    else:
        part = None if node is None else node.items
        for item in value:
            if item.__class__ is dict or item.__class__ is list:
                drop_nulls(item, part)


def _prune(value: Any, node: PruneNode | None, steps: list[Step], dropped: list[str]) -> None:
    if value.__class__ is dict:
        _prune_object(value, node, steps, dropped)
    elif value.__class__ is list:
        items = None if node is None else node.items
        if items is None and node is not None and node.allows_unknown:
            return
        for index, item in enumerate(value):
            if item.__class__ is dict or item.__class__ is list:
                steps.append(index)
                _prune(item, items, steps, dropped)
                steps.pop()


def _prune_object(value: JsonObject, node: PruneNode | None, steps: list[Step], dropped: list[str]) -> None:
    unknown: list[str] = []
    for name, item in value.items():
        if node is not None:
            if node.is_resource and name in _META_FIELDS:
                continue
            part = node.properties.get(name, node.additional)
            if part is not None:
                if item.__class__ is dict or item.__class__ is list:
                    steps.append(name)
                    _prune(item, part, steps, dropped)
                    steps.pop()
                continue
            if node.is_map:  # additionalProperties: true does not describe the content of the values
                _prune(item, None, [*steps, name], dropped)
                continue
            if node.allows_unknown:
                continue
        unknown.append(name)
    for name in unknown:
        del value[name]
        dropped.append(render([*steps, name]))
