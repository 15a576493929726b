"""Lists that are sets or maps (x-kubernetes-list-type): no item, and no key, may come twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes
from localkube.schema.problems import child


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
    seen: dict[str, int] = {}
    found: list[int] = []
    for index, item in enumerate(items):
        mark = json.dumps(item, sort_keys=True)
        seen[mark] = seen.get(mark, 0) + 1
        if seen[mark] == 2:
            found.append(index)
    return found
