"""Lists that are sets or maps: no item, and no key, may come twice. Also resources embedded in an object.

Both are rules a schema node states through x-kubernetes-* extensions, checked after the types are known to be right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from kuberun.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, names, objectmeta
from localkube.schema.problems import child


def with_list_types(schema: JsonObject) -> JsonObject | None:
    """The part of a schema that leads to sets and map lists; None if there are none."""
    return _only(schema, lambda part: part.get("x-kubernetes-list-type") in {"set", "map"})


def with_embedded(schema: JsonObject) -> JsonObject | None:
    """The part of a schema that leads to embedded resources; None if there are none."""
    return _only(schema, lambda part: bool(part.get("x-kubernetes-embedded-resource")))


def duplicate_causes(value: Any, schema: JsonObject, path: str = "") -> Iterator[Cause]:
    """Duplicates in the set and map lists below a value."""
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


def embedded_causes(obj: JsonObject, schema: JsonObject) -> Iterator[Cause]:
    """What is wrong with apiVersion, kind and metadata of embedded resources below a value."""
    for resource, path in embedded_resources(obj, schema):
        yield from _embedded(resource, path)


def embedded_resources(value: Any, schema: JsonObject, path: str = "") -> Iterator[tuple[JsonObject, str]]:
    """The embedded resources below a value, with their paths."""
    if isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            yield value, path
        for item, part, where in _children(value, schema, path):
            yield from embedded_resources(item, part, where)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from embedded_resources(item, items, f"{path}[{index}]")


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
    """Index of the second occurrence of everything that comes more than once."""
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


def _embedded(value: JsonObject, path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield causes.required(child(path, name))
    for name in ("apiVersion", "kind"):
        if name in value:
            yield from _embedded_type(value[name], child(path, name))
    meta = value.get("metadata")
    if isinstance(meta, dict):
        filled = {**meta, "name": meta.get("name") or "fakename"}
        yield from objectmeta.validate_new(
            filled,
            namespaced=bool(meta.get("namespace")),
            name_rule=names.path_segment,
            path=child(path, "metadata"),
        )


def _embedded_type(text: Any, path: str) -> Iterator[Cause]:
    if not isinstance(text, str):
        yield causes.invalid(path, text, "must be a string")
    elif not text:
        yield causes.invalid(path, text, "must not be empty")
    elif path.endswith("apiVersion"):
        if text.count("/") > 1:
            yield causes.invalid(path, text, f"unexpected GroupVersion string: {text}")
    elif wrong := names.dns1035_label(text.lower()):
        yield causes.invalid(path, text, "may have mixed case, but should otherwise match: " + ",".join(wrong))


def _only(schema: JsonObject, wanted: Callable[[JsonObject], bool]) -> JsonObject | None:
    found: JsonObject = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    properties = {name: _only(part, wanted) for name, part in (schema.get("properties") or {}).items()}
    found["properties"] = {name: part for name, part in properties.items() if part is not None}
    for keyword in ("items", "additionalProperties"):
        part = _only(schema[keyword], wanted) if isinstance(schema.get(keyword), dict) else None
        if part is not None:
            found[keyword] = part
    leads = bool(found["properties"]) or "items" in found or "additionalProperties" in found
    return found if leads or wanted(schema) else None
