"""The schema of a custom resource version: prune, default, validate.

Each part is compiled on first use and kept; a schema that is never written to costs nothing but its JSON.

    decode_error -> prune -> default -> validate (metadata, values, lists as sets and maps, CEL rules)
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.schema import causes, decoding, metadata, pruning, rules, values
from localkube.schema.causes import Problem, child
from localkube.schema.rules import Correlation

# --- Schema defaults --------------------------------------------------------------------------------------------------
# Only the parts of a schema that contain a default are compiled, so that a schema without defaults costs nothing. A
# null of a field that may not be null counts as missing.


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


# --- Lists that are sets or maps (x-kubernetes-list-type): no item, and no key, may come twice ------------------------


def with_list_types(schema: JsonObject) -> JsonObject | None:
    """Cut a schema down to the parts that lead to sets and map lists; None if there are none."""
    found: JsonObject = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    properties = {name: with_list_types(part) for name, part in (schema.get("properties") or {}).items()}
    found["properties"] = {name: part for name, part in properties.items() if part is not None}
    for keyword in ("items", "additionalProperties"):
        part = with_list_types(schema[keyword]) if isinstance(schema.get(keyword), dict) else None
        if part is not None:
            found[keyword] = part
    leads = bool(found["properties"]) or "items" in found or "additionalProperties" in found
    return found if leads or schema.get("x-kubernetes-list-type") in {"set", "map"} else None


def duplicate_causes(value: Any, schema: JsonObject, path: str = "") -> Iterator[Cause]:
    """Report the duplicates in the set and map lists below a value."""
    if isinstance(value, dict):
        for item, part, where in _children(value, schema, path):
            yield from duplicate_causes(item, part, where)
    elif isinstance(value, list):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                for index in _repeated(value):
                    yield causes.duplicate(f"{path}[{index}]", value[index])
            case "map":
                yield from _duplicate_keys(value, schema.get("x-kubernetes-list-map-keys") or [], path)
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                yield from duplicate_causes(item, items, f"{path}[{index}]")


def _children(value: JsonObject, schema: JsonObject, path: str) -> Iterator[tuple[Any, JsonObject, str]]:
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, part in properties.items():
        item = value.get(name)
        if isinstance(item, dict | list):
            yield item, part, child(path, name)
    if isinstance(extra, dict):
        for name, item in value.items():
            if name not in properties and isinstance(item, dict | list):
                yield item, extra, f"{path}[{name}]"


def _duplicate_keys(value: list[Any], fields: list[str], path: str) -> Iterator[Cause]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield causes.invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            return
    keys = [{name: item[name] for name in fields if name in item} if item else {} for item in value]
    for index in _repeated(keys):
        yield causes.duplicate(f"{path}[{index}]", keys[index])


def _repeated(items: list[Any]) -> list[int]:
    """Find the index of the second occurrence of each item that comes more than once."""
    if len(items) < 2:
        return []
    counts: dict[str, int] = {}
    found: list[int] = []
    for index, item in enumerate(items):
        mark = json.dumps(item, sort_keys=True)
        counts[mark] = counts.get(mark, 0) + 1
        if counts[mark] == 2:
            found.append(index)
    return found


class StructuralSchema:
    """Implements `localkube.model.Schema` for one served version of a custom resource."""

    def __init__(self, openapi: JsonObject, resource: Resource) -> None:
        self._openapi = openapi
        self._resource = resource

    @property
    def openapi(self) -> JsonObject:
        return self._openapi

    def decode_error(self, obj: JsonObject) -> str | None:
        """Return the message of a 400 if the object cannot be decoded (metadata of wrong types), else None."""
        return decoding.unreadable(self._resource, metadata.decode_error(obj))

    def prune(self, obj: JsonObject) -> list[str]:
        dropped = metadata.prune_metadata(obj)
        dropped += pruning.prune(obj, self._pruning)
        pruning.drop_nulls(obj, self._pruning)
        return sorted(dropped)

    def default(self, obj: JsonObject) -> None:
        if self._defaults is not None:
            fill(obj, self._defaults)

    def validate(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        found = self._metadata_causes(obj, old)
        found += self._value_causes(obj, old)
        if self._listing and not self._had_duplicates(old):
            found += duplicate_causes(obj, self._listing)
        if self._rules is not None:
            found += rules.rule_causes(self._rules, obj, old, found)
        return found

    @cached_property
    def _pruning(self) -> pruning.PruneNode:
        return pruning.compile_pruning(self._openapi)

    @cached_property
    def _defaults(self) -> DefaultNode | None:
        return compile_defaults(self._openapi)

    @cached_property
    def _values(self) -> values.Node:
        return values.compile_node(self._openapi)

    @cached_property
    def _rules(self) -> rules.RuleNode | None:
        return rules.compile_rules(self._openapi)

    @cached_property
    def _listing(self) -> JsonObject:
        """Return the part of the schema that leads to sets and map lists; empty if there are none."""
        return with_list_types(self._openapi) or {}

    def _metadata_causes(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        meta = obj.get("metadata") or {}
        if old is None:
            return metadata.validate_new(meta, namespaced=self._resource.namespaced, name_rule=metadata.dns_subdomain)
        return metadata.validate_update(meta, old.get("metadata") or {})

    def _value_causes(self, obj: JsonObject, old: JsonObject | None) -> list[Cause]:
        problems = values.run(self._values, obj)
        if problems and old is not None:
            whole = Correlation.of(obj, old, self._openapi)
            problems = [problem for problem in problems if not _forgiven(problem, whole)]
        # The same violation may come from several branches of a combinator.
        return list(dict.fromkeys(problem.cause() for problem in problems))

    def _had_duplicates(self, old: JsonObject | None) -> bool:
        return old is not None and next(duplicate_causes(old, self._listing), None) is not None


def _forgiven(problem: Problem, whole: Correlation) -> bool:
    """Return whether ratcheting forgives a violation: the value was invalid before and did not change."""
    steps = problem.steps[::-1]
    if steps and steps[0] in {"apiVersion", "kind"}:
        return False
    return whole.follow(steps).unchanged()
