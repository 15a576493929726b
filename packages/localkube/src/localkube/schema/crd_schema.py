"""Rules of an openAPIV3Schema: what may stand where, and what the x-kubernetes-* extensions ask for.

structural_causes   types are given, value validation only restricts (a structural schema)
keyword_causes      keywords that are not supported, list and map types, CEL rules
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from kuberun.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, regex
from localkube.schema.crd_rules import rule_causes

_Level = Literal["root", "item", "field"]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_NEEDS_TYPE: Final[dict[_Level, str]] = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_NESTED_EMPTY: Final = ("type", "title", "description", "x-kubernetes-list-map-keys", "x-kubernetes-validations")
_NESTED_UNDEFINED: Final = ("additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type")
_NESTED_FALSE: Final = (
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
_META_FIELDS: Final = frozenset({"metadata", "kind", "apiVersion"})
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def structural_causes(schema: JsonObject, path: str) -> list[Cause]:
    """Why a schema is not structural."""
    return sorted(_structural(schema, "root", path), key=lambda cause: (cause.field, cause.message))


def keyword_causes(schema: JsonObject, path: str) -> list[Cause]:
    """Keywords that are not supported or do not fit each other; CEL rules only if everything else is right."""
    found = list(_keywords(schema, path, _Place(root=True)))
    return found or list(rule_causes(schema, path))


@dataclass(frozen=True, slots=True)
class _Place:
    root: bool = False
    inside_meta: bool = False
    no_defaults: str = ""


def _structural(schema: JsonObject, level: _Level, path: str) -> Iterator[Cause]:
    properties, items = schema.get("properties") or {}, schema.get("items")
    extra = schema.get("additionalProperties")
    if schema.get("type") == "array" and items is None:
        yield causes.required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _structural(items, "item", f"{path}.items")
    for name, part in properties.items():
        yield from _structural(part, "field", f"{path}.properties[{name}]")
    if extra is not None and level == "root":
        yield causes.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, dict):
        yield from _structural(extra, "field", f"{path}.additionalProperties")
    yield from _value_validation(schema, path)
    yield from _type_causes(schema, level, path)
    yield from _resource_causes(schema, level, path)


def _type_causes(schema: JsonObject, level: _Level, path: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    is_int_or_string, preserves = schema.get("x-kubernetes-int-or-string"), schema.get(_PRESERVE)
    if is_int_or_string:
        for keyword in (_PRESERVE, _EMBEDDED):
            if schema.get(keyword):
                yield causes.invalid(
                    f"{path}.{keyword}", value=True, detail="must be false if x-kubernetes-int-or-string is true"
                )
    if schema.get(_EMBEDDED) and kind != "object":
        detail = f"must be object if {_EMBEDDED} is true"
        where = f"{path}.type"
        yield causes.invalid(where, kind, detail) if kind else causes.required(where, detail)
    elif not kind and not is_int_or_string and not preserves:
        yield causes.required(f"{path}.type", _NEEDS_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield causes.invalid(f"{path}.type", kind, "must be object at the root")


def _resource_causes(schema: JsonObject, level: _Level, path: str) -> Iterator[Cause]:
    """apiVersion, kind and metadata of the object, or of an embedded resource."""
    properties, embedded = schema.get("properties") or {}, schema.get(_EMBEDDED)
    if embedded and schema.get("additionalProperties") is not None:
        yield causes.forbidden(f"{path}.additionalProperties", f"must not be used if {_EMBEDDED} is set")
    if embedded and not schema.get(_PRESERVE) and not properties:
        detail = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
        yield causes.required(f"{path}.properties", detail)
    if level != "root" and not embedded:
        return
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and properties[name].get("type") != wanted:
            where = f"{path}.properties[{name}].type"
            yield causes.invalid(where, properties[name].get("type") or "", f"must be {wanted}")
    if level == "root" and "metadata" in properties and not _says_only_names(properties["metadata"]):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield causes.forbidden(f"{path}.properties[metadata]", detail)


def _says_only_names(metadata: JsonObject) -> bool:
    allowed = {"type", "properties", "default", "description"}
    return set(metadata.get("properties") or {}) <= {"name", "generateName"} and set(metadata) <= allowed


def _value_validation(schema: JsonObject, path: str) -> Iterator[Cause]:
    for keyword in ("anyOf", "allOf", "oneOf"):
        branches = schema.get(keyword) or []
        if keyword == "anyOf" and branches == _INT_OR_STRING:
            continue
        for index, branch in enumerate(branches):
            only_types = keyword == "allOf" and index == 0 and branch.get("anyOf") == _INT_OR_STRING
            inner = {name: value for name, value in branch.items() if name != "anyOf"} if only_types else branch
            yield from _nested(inner, f"{path}.{keyword}[{index}]")
    if schema.get("not") is not None:
        yield from _nested(schema["not"], f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            regex.compiled(pattern)
        except regex.PatternError as failure:
            detail = f"must be a valid regular expression, but isn't: {failure}"
            yield causes.invalid(f"{path}.pattern", pattern, detail)


def _nested(schema: JsonObject, path: str) -> Iterator[Cause]:
    """Inside anyOf, oneOf, allOf and not, a schema may only restrict values."""
    yield from _value_validation(schema, path)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from _nested(part, f"{path}.properties[{name}]")
    for keywords, state in ((_NESTED_EMPTY, "empty"), (_NESTED_UNDEFINED, "undefined"), (_NESTED_FALSE, "false")):
        for keyword in keywords:
            if schema.get(keyword) or (state == "undefined" and schema.get(keyword) is not None):
                yield causes.forbidden(f"{path}.{keyword}", f"must be {state} to be structural")
    if "metadata" in (schema.get("properties") or {}):
        yield causes.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _keywords(schema: JsonObject, path: str, place: _Place) -> Iterator[Cause]:
    yield from _keyword(schema, path, place)
    yield from _list_and_map_types(schema, path)
    inner = replace(place, root=False)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        reason = "inside additionalProperties applying to object metadata" if place.inside_meta else place.no_defaults
        yield from _keywords(extra, f"{path}.additionalProperties", replace(inner, no_defaults=reason))
    for name, part in (schema.get("properties") or {}).items():
        below = inner
        if (place.root or schema.get(_EMBEDDED)) and name in _META_FIELDS:
            reason = f"in top-level {name}" if place.root else inner.no_defaults
            below = replace(inner, inside_meta=True, no_defaults=reason)
        yield from _keywords(part, f"{path}.properties[{name}]", below)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, branch in enumerate(schema.get(keyword) or ()):
            yield from _keywords(branch, f"{path}.{keyword}[{index}]", inner)
    for keyword in ("not", "items"):
        if isinstance(schema.get(keyword), dict):
            yield from _keywords(schema[keyword], f"{path}.{keyword}", inner)


def _keyword(schema: JsonObject, path: str, place: _Place) -> Iterator[Cause]:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield causes.not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.no_defaults:
        yield causes.forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for keyword in _UNSUPPORTED:
        if schema.get(keyword):
            yield causes.forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if isinstance(schema.get("items"), list):
        yield causes.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.inside_meta and schema.get(_EMBEDDED):
        yield causes.forbidden(f"{path}.{_EMBEDDED}", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield causes.forbidden(f"{path}.uniqueItems", detail)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        detail = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", detail)
    if schema.get(_PRESERVE) is False:
        yield causes.invalid(f"{path}.{_PRESERVE}", value=False, detail="must be true or undefined")


def _list_and_map_types(schema: JsonObject, path: str) -> Iterator[Cause]:
    kind = schema.get("type") or ""
    for keyword, wanted, allowed in (
        ("x-kubernetes-map-type", "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
    ):
        value = schema.get(keyword)
        if value is None:
            continue
        if kind != wanted:
            detail = f"must be {wanted} if {keyword} is specified"
            where = f"{path}.type"
            yield causes.invalid(where, kind, detail) if kind else causes.required(where, detail)
        if value not in allowed:
            yield causes.not_supported(f"{path}.{keyword}", value, allowed)
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if keys and list_type != "map":
        where, detail = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        yield causes.required(where, detail) if list_type is None else causes.invalid(where, list_type, detail)
    if list_type == "map":
        yield from _map_list(schema, keys, path)
    if list_type == "set" and kind == "array":
        yield from _set_list(schema.get("items"), path)
    if list_type in {"set", "map"}:
        yield from _item_nullability(schema, keys, path)


def _map_list(schema: JsonObject, keys: list[str], path: str) -> Iterator[Cause]:
    where, items = f"{path}.x-kubernetes-list-map-keys", schema.get("items")
    if not keys:
        yield causes.required(where, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield causes.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    if not isinstance(items, dict):
        return
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", items.get("type") or "", detail)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            yield causes.invalid(where, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in {"array", "object"}:
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{path}.items.properties[{key}].type", "object", detail)
        if key in keys[:index]:
            yield causes.invalid(where, keys, "must not contain duplicate entries")


def _set_list(items: Any, path: str) -> Iterator[Cause]:
    if not isinstance(items, dict):
        return
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield causes.invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield causes.invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)


def _item_nullability(schema: JsonObject, keys: list[str], path: str) -> Iterator[Cause]:
    items, list_type = schema.get("items"), schema["x-kubernetes-list-type"]
    if not isinstance(items, dict):
        return
    if items.get("nullable"):
        yield causes.forbidden(
            f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        )
    for key in keys:
        part = (items.get("properties") or {}).get(key)
        if part is None or list_type != "map":
            continue
        where = f"{path}.items.properties[{key}]"
        because = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or ()) and part.get("default") is None:
            yield causes.required(f"{where}.default", f"{because} must have a default or be a required property")
        if part.get("nullable"):
            yield causes.forbidden(f"{where}.nullable", f"{because} cannot be nullable")
