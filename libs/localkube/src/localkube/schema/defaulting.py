"""Schema defaults.

Only the parts of a schema that contain a default are compiled, so that a schema without defaults costs nothing. A null
of a field that may not be null counts as missing.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from kubebase.meta import JsonObject


@dataclass(slots=True)
class DefaultNode:
    """Defaults at and below one schema node."""

    values: dict[str, Any] = field(default_factory=dict)
    """Default of each property that has one."""
    replaces_null: set[str] = field(default_factory=set)
    """Those of them that are not nullable."""
    properties: dict[str, DefaultNode] = field(default_factory=dict)
    additional: DefaultNode | None = None
    additional_default: Any = None
    items: DefaultNode | None = None
    item_default: Any = None


def compile_defaults(schema: JsonObject) -> DefaultNode | None:
    """Return the defaults in a schema, or None if it has none."""
    node = DefaultNode()
    for name, part in (schema.get("properties") or {}).items():
        if part.get("default") is not None:
            node.values[name] = part["default"]
            if not part.get("nullable"):
                node.replaces_null.add(name)
        if (inner := compile_defaults(part)) is not None:
            node.properties[name] = inner
    extra, items = schema.get("additionalProperties"), schema.get("items")
    if isinstance(extra, dict):
        node.additional = compile_defaults(extra)
        node.additional_default = None if extra.get("nullable") else extra.get("default")
    if isinstance(items, dict):
        node.items = compile_defaults(items)
        node.item_default = None if items.get("nullable") else items.get("default")
    empty = node == DefaultNode()
    return None if empty else node


def fill(value: Any, node: DefaultNode) -> None:
    """Fill defaults below a value in place."""
    if isinstance(value, dict):
        _fill_object(value, node)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item is None and node.item_default is not None:
                value[index] = copy.deepcopy(node.item_default)
            if node.items is not None:
                fill(value[index], node.items)


def _fill_object(value: JsonObject, node: DefaultNode) -> None:
    for name, default in node.values.items():
        if name not in value or (value[name] is None and name in node.replaces_null):
            value[name] = copy.deepcopy(default)
    for name, inner in node.properties.items():
        if name in value:
            fill(value[name], inner)
    if node.additional is None and node.additional_default is None:
        return
    for name, item in value.items():
        if name in node.properties or name in node.values:
            continue
        if item is None and node.additional_default is not None:
            value[name] = copy.deepcopy(node.additional_default)
        if node.additional is not None:
            fill(value[name], node.additional)
