"""The parts of a schema that server-side apply needs: which maps and lists merge, and by which keys.

An OpenAPI schema is compiled once into a tree of `Type`; the walks in `values` and `typecheck` read only that. A value
may have several shapes (a field that preserves unknown fields is a scalar, a list or a map): a Type has up to three.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kubebase.meta import JsonObject

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
