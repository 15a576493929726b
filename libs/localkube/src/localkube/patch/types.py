"""The parts of a schema that server-side apply needs (which maps and lists merge, and by which keys), and type checks.

An OpenAPI schema is compiled once into a tree of `Type`; the walks in `values` and the checks read only that. A value
may have several shapes (a field that preserves unknown fields is a scalar, a list or a map): a Type has up to three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kubebase.meta import JsonObject
from localkube.patch.gotext import literal, plain_pointer, quoted, type_name

Scalar = Literal["string", "numeric", "boolean", "untyped"]
Shape = Literal["map", "scalar", "list"]


@dataclass(slots=True, eq=False)
class MapType:
    fields: dict[str, SchemaType] = field(default_factory=dict)
    element: SchemaType | None = None
    """Type of keys that are not declared; None if there may be none."""
    atomic: bool = False
    deduced: bool = False
    """No declared fields and any content: its sets are never rewritten when a schema changes."""
    flat: bool = False
    """A plain map of scalars that merges: nothing below it can be atomic."""


@dataclass(slots=True, eq=False)
class ListType:
    element: SchemaType
    atomic: bool = True
    keys: tuple[str, ...] = ()
    """Fields that identify an item of a list of maps; empty for a set of scalars."""
    defaults: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SchemaType:
    scalar: Scalar | None = None
    map: MapType | None = None
    list: ListType | None = None

    def shape_of(self, value: Any) -> Shape:
        """Return the shape under which a value is walked.

        Null, and a value of a wrong kind, get the first allowed shape.
        """
        match value:
            case dict() if self.map is not None:
                return "map"
            case list() if self.list is not None:
                return "list"
            case str() | bool() | int() | float() if self.scalar is not None:
                return "scalar"
        if self.map is not None:
            return "map"
        return "scalar" if self.scalar is not None else "list"


def compiled(schema: JsonObject) -> SchemaType:
    """Return the Type of whole objects with this schema.

    It is cached: schemas are few, long-lived, and never edited.
    """
    known = _cache.get(id(schema))
    if known is not None:
        return known[1]
    if len(_cache) >= _CACHE_SIZE:
        _cache.clear()
    result = _root(schema)
    _cache[id(schema)] = (schema, result)
    return result


_CACHE_SIZE: Final = 512
_cache: dict[int, tuple[JsonObject, SchemaType]] = {}
"""Keyed by identity, because hashing a schema costs more than an apply; the schema is held so that its id stays its."""


def _untyped() -> SchemaType:
    """Return the type of any value that is replaced as a whole."""
    result = SchemaType(scalar="untyped")
    result.list = ListType(result)
    result.map = MapType(element=result, atomic=True)
    return result


def _deduced() -> SchemaType:
    """Return the type of any value whose maps merge key by key and whose lists are replaced as a whole."""
    result = SchemaType(scalar="untyped", list=ListType(UNTYPED))
    result.map = MapType(element=result, deduced=True)
    return result


UNTYPED: Final = _untyped()
DEDUCED: Final = _deduced()
_STRING: Final = SchemaType(scalar="string")
_NUMBER: Final = SchemaType(scalar="numeric")
_BOOLEAN: Final = SchemaType(scalar="boolean")
_ANY_SCALAR: Final = SchemaType(scalar="untyped")


def _map_of(**fields: SchemaType) -> SchemaType:
    return SchemaType(map=MapType(fields=fields))


_SCALARS: Final = (_STRING, _NUMBER, _BOOLEAN, _ANY_SCALAR)
_STRINGS: Final = SchemaType(map=MapType(element=_STRING, flat=True))
_OWNER: Final = SchemaType(
    map=MapType(
        fields={
            **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
            **dict.fromkeys(("blockOwnerDeletion", "controller"), _BOOLEAN),
        },
        atomic=True,
    )
)
_MANAGED_FIELDS: Final = _map_of(
    **dict.fromkeys(("apiVersion", "fieldsType", "manager", "operation", "subresource"), _STRING),
    time=_ANY_SCALAR,
    fieldsV1=SchemaType(map=MapType(element=DEDUCED, deduced=True)),
)
OBJECT_META: Final = _map_of(
    **dict.fromkeys(("generateName", "name", "namespace", "resourceVersion", "selfLink", "uid"), _STRING),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _ANY_SCALAR),
    **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), _NUMBER),
    **dict.fromkeys(("annotations", "labels"), _STRINGS),
    finalizers=SchemaType(list=ListType(_STRING, atomic=False)),
    managedFields=SchemaType(list=ListType(_MANAGED_FIELDS)),
    ownerReferences=SchemaType(list=ListType(_OWNER, atomic=False, keys=("uid",))),
)
_ENVELOPE: Final = {"apiVersion": _STRING, "kind": _STRING, "metadata": OBJECT_META}


def _root(schema: JsonObject) -> SchemaType:
    """Compile the type of whole objects; metadata is the same for every kind."""
    result = _compile(schema, keep_unknown=False)
    if result.map is not None:
        result.map.fields |= _ENVELOPE
    return result


def _compile(schema: JsonObject, *, keep_unknown: bool) -> SchemaType:
    """Compile a schema.

    `keep_unknown` is inherited: below x-kubernetes-preserve-unknown-fields, undeclared fields are allowed.
    """
    keep_unknown = keep_unknown or schema.get("x-kubernetes-preserve-unknown-fields") is True
    match schema.get("type", ""):
        case "object":
            return SchemaType(map=_map(schema, keep_unknown=keep_unknown))
        case "array":
            return SchemaType(list=_list(schema, keep_unknown=keep_unknown))
        case "integer" | "number":
            return _NUMBER
        case "boolean":
            return _BOOLEAN
        case "string":
            return _STRING if schema.get("format", "") in ("", "byte") else _ANY_SCALAR
        case _:
            return SchemaType(
                "untyped", _map(schema, keep_unknown=keep_unknown), _list(schema, keep_unknown=keep_unknown)
            )


def _map(schema: JsonObject, *, keep_unknown: bool) -> MapType:
    properties: JsonObject = schema.get("properties", {})
    result = MapType(
        fields={name: _compile(part, keep_unknown=keep_unknown) for name, part in properties.items()},
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
    )
    match schema.get("additionalProperties"):
        case dict() as more:
            result.element = _compile(more, keep_unknown=keep_unknown)
        case True:
            result.element = DEDUCED
        case None if keep_unknown or not properties:
            result.element = DEDUCED
    result.deduced = result.element is DEDUCED and not result.fields
    result.flat = not (result.fields or result.atomic) and result.element in _SCALARS
    return result


def _list(schema: JsonObject, *, keep_unknown: bool) -> ListType:
    items: JsonObject | None = schema.get("items")
    if items is None:
        return ListType(UNTYPED)
    result = ListType(_compile(items, keep_unknown=keep_unknown))
    match schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-patch-strategy", ""):
        case "map", _:
            result.atomic, result.keys = False, tuple(schema["x-kubernetes-list-map-keys"])
        case "set", _:
            result.atomic = False
        case None, str() as strategy if strategy.startswith("merge"):
            key = schema.get("x-kubernetes-patch-merge-key")
            result.atomic, result.keys = False, (key,) if key else ()
    parts: JsonObject = items.get("properties", {})
    result.defaults = {key: parts[key]["default"] for key in result.keys if "default" in parts.get(key, {})}
    return result


# --- Type checks: whether a value fits its Type, and if not, where and why, with the texts of the API server ----------
# `fits` is the fast check; `problems` runs only after it failed.


class MismatchError(Exception):
    """A value that does not fit its type; `problems` says where and why."""


def fits(value: Any, kind: SchemaType) -> bool:
    """Return whether a value fits; duplicate items of an atomic list are allowed."""
    if value is None or kind is UNTYPED or kind is DEDUCED:
        return True
    if type(value) is str:
        return kind.scalar in TEXTUAL
    if type(value) is dict:
        return kind.map is not None and _map_fits(value, kind.map)
    if type(value) is list:
        if kind.list is None or (not kind.list.atomic and _item_problems(value, kind.list)):
            return False
        element = kind.list.element
        return all(fits(item, element) for item in value)
    return kind.scalar is not None and not _scalar_problem(value, kind.scalar)


TEXTUAL: Final = ("string", "untyped")


def _map_fits(value: dict[str, Any], kind: MapType) -> bool:
    fields, element = kind.fields, kind.element
    for name, item in value.items():
        inner = fields.get(name, element)
        if inner is None or not fits(item, inner):
            return False
    return True


def item_keys(item: Any, kind: ListType) -> dict[str, Any]:
    """Return the fields, with their defaults, that identify an item of a list of maps."""
    if not isinstance(item, dict):
        raise MismatchError
    result = {}
    for name in kind.keys:
        if name in item:
            result[name] = item[name]
        elif name in kind.defaults:
            result[name] = kind.defaults[name]
    if not result:
        raise MismatchError
    return result


def report(value: Any, kind: SchemaType) -> str:
    """Return all problems as one text: a single one inline, several as a list."""
    found = problems(value, kind, "")
    if len(found) == 1:
        return found[0]
    return "\n".join(["errors:", *("  " + problem for problem in found)])


def problems(value: Any, kind: SchemaType, path: str) -> list[str]:
    """Return every problem as `path: text`."""
    match kind.shape_of(value):
        case "map" if kind.map is not None:
            return _map_problems(value, kind.map, path)
        case "list" if kind.list is not None:
            return _list_problems(value, kind.list, path)
        case _:
            text = _scalar_problem(value, kind.scalar or "untyped") if value is not None else ""
            return [_at(path, text)] if text else []


def _map_problems(value: Any, kind: MapType, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [_at(path, f"expected map, got {plain_pointer(value)}")]
    result: list[str] = []
    for name in sorted(value):
        inner = kind.fields.get(name, kind.element)
        if inner is None:
            result.append(_at(f"{path}.{name}", "field not declared in schema"))
            break
        result += problems(value[name], inner, f"{path}.{name}")
    return result


def _list_problems(value: Any, kind: ListType, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        return [_at(path, f"expected list, got {plain_pointer(value)}")]
    if kind.atomic:
        steps = [f"[{index}]" for index in range(len(value))]
    else:
        found = _item_problems(value, kind)
        if found:
            return [_at(path, text) for text in found]
        steps = [_item_text(item, kind) for item in value]
    return [
        problem
        for step, item in zip(steps, value, strict=True)
        for problem in problems(item, kind.element, path + step)
    ]


def _item_problems(value: list[Any], kind: ListType) -> list[str]:
    """Return items without identity, and items with the same one."""
    steps: set[str] = set()
    result: list[str] = []
    for index, item in enumerate(value):
        text = _identity_problem(item, kind)
        if text:
            return [*result, f"element {index}: {text}"]
        step = _item_text(item, kind)
        if step in steps:
            result.append(f"duplicate entries for key {step}")
        steps.add(step)
    return result


def _identity_problem(item: Any, kind: ListType) -> str:
    match item:
        case None if kind.keys:
            return "associative list with keys may not have a null element"
        case None:
            return "associative list without keys has an element that's an explicit null"
        case list() if not kind.keys:
            return "not supported: associative list with lists as elements"
        case dict():
            return _key_problem(item, kind) if kind.keys else _MAP_IN_SET
        case _:
            return "associative list with keys may not have non-map elements" if kind.keys else ""


_MAP_IN_SET: Final = "associative list without keys has an element that's a map type"


def _key_problem(item: dict[str, Any], kind: ListType) -> str:
    if any(name in item or name in kind.defaults for name in kind.keys):
        return ""
    names = " ".join(f'"{name}"' for name in kind.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{names}] "
        "(and doesn't have default values for any key fields)"
    )


def _item_text(item: Any, kind: ListType) -> str:
    if not kind.keys:
        return f"[={quoted(item)}]"
    keys = item_keys(item, kind)
    return "[" + ",".join(f"{name}={quoted(keys[name])}" for name in sorted(keys)) + "]"


def _scalar_problem(value: Any, scalar: Scalar) -> str:
    match scalar:
        case "numeric" if isinstance(value, bool) or not isinstance(value, int | float):
            return f"expected numeric (int or float), got {type_name(value)}"
        case "string" if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{literal(value)}}}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got {plain_pointer(value)}"
        case "untyped" if not isinstance(value, str | bool | int | float):
            return f"expected any scalar, got {plain_pointer(value)}"
    return ""


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text
