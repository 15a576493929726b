"""Values of the wrong type, with the error texts of the Go decoder that kube-apiserver uses.

Built-in kinds, and the metadata of every kind, are decoded into Go structs before anything is validated: a wrong type
is a 400 with one message, not a 422 with causes. The struct names come from the components of the OpenAPI schemas.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.schema import formats
from localkube.schema.causes import go_quote

COMPONENT: Final = "x-localkube-component"
"""Name of the OpenAPI component a schema is, such as io.k8s.api.core.v1.Secret."""
DESCRIPTION: Final = "x-localkube-description"
"""The description of a component itself; `description` is that of the field."""
ONE_OR: Final = "x-localkube-one-or"
"""A value that is one of a schema, or a list of them, or a flag instead: (`list` or `bool`, the schema)."""
GO_TYPE: Final = "x-localkube-go-type"
"""Go type of a field where it does not follow from the schema."""

_JSON_TYPE_NAMES: Final[dict[type, str]] = {str: "string", bool: "bool", list: "array", dict: "object"}
_RANGES: Final = {"int32": 2**31, "int64": 2**63}


def unreadable(resource: Resource, reason: str | None) -> str | None:
    """Build the message of a 400 about an object of the resource."""
    if reason is None:
        return None
    return f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {reason}'


def mismatch(value: Any, schema: JsonObject, path: str = "", owner: str = "") -> str | None:
    """Return the first value below this one that does not fit its type, in document order; None if all do."""
    if value is None:
        return None
    if ONE_OR in schema:
        return _one_or_mismatch(value, schema[ONE_OR], path, owner)
    where = f"Go struct field {owner}.{path}" if path else "Go value"
    if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        is_struct = GO_TYPE in schema and schema.get("type") == "object"
        return _wrong(value, where, go_type(schema)) if is_struct and not isinstance(value, dict) else None
    if schema.get("x-kubernetes-int-or-string"):
        return None if value.__class__ in (str, int) else _wrong(value, where, "int32")
    match schema.get("type"):
        case "object":
            return _object_mismatch(value, schema, path, owner, where)
        case "array":
            return _array_mismatch(value, schema, path, owner, where)
        case "string":
            return _string_mismatch(value, schema, where)
        case "integer":
            return _integer_mismatch(value, schema, where)
        case "boolean":
            return None if isinstance(value, bool) else _wrong(value, where, go_type(schema))
        case "number":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return None if is_number else _wrong(value, where, "float64")
        case _:
            return None


def replace_nulls(value: Any, schema: JsonObject) -> None:
    """Replace nulls as a Go decoder does: a field is dropped, an item or map value becomes the zero of its type."""
    if ONE_OR in schema:
        schema = schema[ONE_OR][1] if isinstance(value, dict) else {"items": schema[ONE_OR][1]}
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in list(value.items()):
            part = properties.get(name) or (extra if isinstance(extra, dict) else {})
            if not _is_nothing(item, part):
                replace_nulls(item, part)
            elif name in properties:
                del value[name]
            elif part:
                value[name] = _zero(part)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        for index, item in enumerate(value):
            if item is None:
                value[index] = _zero(items)
            else:
                replace_nulls(item, items)


def _is_nothing(value: Any, schema: JsonObject) -> bool:
    """Accept a value that is neither a schema nor a list of schemas."""
    return value is None or (schema.get(ONE_OR, ("",))[0] == "list" and not isinstance(value, dict | list))


def go_type(schema: JsonObject) -> str:
    """Return the Go type that a schema describes."""
    if GO_TYPE in schema:
        return str(schema[GO_TYPE])
    match schema.get("type"):
        case "object" if COMPONENT in schema:
            package, _, name = schema[COMPONENT].rpartition(".")
            return f"{package.rpartition('.')[2]}.{name}"
        case "object":
            extra = schema.get("additionalProperties")
            return "map[string]" + (go_type(extra) if isinstance(extra, dict) else "interface {}")
        case "array":
            return "[]" + go_type(schema.get("items") or {})
        case "integer":
            return str(schema.get("format", "int64"))
        case "boolean":
            return "bool"
        case "number":
            return "float64"
        case "string" if schema.get("format") == "byte":
            return "[]uint8"
        case _:
            return "string"


def _zero(schema: JsonObject) -> Any:
    kind = str(schema.get("type", ""))
    zeros: dict[str, Any] = {"object": {}, "array": [], "string": "", "integer": 0, "number": 0, "boolean": False}
    return zeros.get(kind)


def _one_or_mismatch(value: Any, choice: tuple[str, JsonObject], path: str, owner: str) -> str | None:
    other, schema = choice
    if isinstance(value, dict):
        return mismatch(value, schema, path, owner)
    if other == "list":
        return _array_mismatch(value, {"items": schema}, path, owner, "") if isinstance(value, list) else None
    return None if isinstance(value, bool) else "boolean or JSON schema expected"


def _object_mismatch(value: Any, schema: JsonObject, path: str, owner: str, where: str) -> str | None:
    if not isinstance(value, dict):
        return _wrong(value, where, go_type(schema))
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    struct = str(schema.get(COMPONENT, owner)).rpartition(".")[2]
    for name, item in value.items():
        if name in properties:
            found = mismatch(item, properties[name], f"{path}.{name}" if path else name, struct)
        elif isinstance(extra, dict):
            found = mismatch(item, extra, path, owner)
        else:
            continue
        if found is not None:
            return found
    return None


def _array_mismatch(value: Any, schema: JsonObject, path: str, owner: str, where: str) -> str | None:
    if not isinstance(value, list):
        return _wrong(value, where, go_type(schema))
    items = schema.get("items") or {}
    return next((found for item in value if (found := mismatch(item, items, path, owner)) is not None), None)


def _string_mismatch(value: Any, schema: JsonObject, where: str) -> str | None:
    if not isinstance(value, str):
        return _wrong(value, where, go_type(schema))
    match schema.get("format"):
        case "byte":
            return _base64_mismatch(value)
        case "date-time" if value:
            return _time_mismatch(value, str(schema.get(GO_TIME, "2006-01-02T15:04:05Z07:00")))
        case _:
            return None


GO_TIME: Final = "x-localkube-go-time"
"""Layout of a timestamp that is not in whole seconds."""
MICRO_TIME: Final = "2006-01-02T15:04:05.000000Z07:00"


def _time_mismatch(value: str, layout: str) -> str | None:
    rest, expected = value, "2006"
    if formats.is_date_time(value):
        rest, expected = value[19:], ".000000"
        if layout != MICRO_TIME or re.match(r"\.[0-9]{6}[^0-9]", rest):
            return None
    return f'parsing time {go_quote(value)} as "{layout}": cannot parse {go_quote(rest)} as "{expected}"'


def _base64_mismatch(value: str) -> str | None:
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return f"illegal base64 data at input byte {_first_illegal(value)}"
    return None


def _first_illegal(value: str) -> int:
    """Return where a decoder of quads stops: at the first bad character, or at an incomplete quad."""
    for index, rune in enumerate(value):
        if not (rune.isascii() and (rune.isalnum() or rune in "+/=\r\n")):
            return index
    return len(value) - len(value) % 4


def _integer_mismatch(value: Any, schema: JsonObject, where: str) -> str | None:
    kind = str(schema.get("format", "int64"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _wrong(value, where, kind)
    limit = _RANGES.get(kind, 2**63)
    if isinstance(value, float) or not -limit <= value < limit:
        return f"json: cannot unmarshal number {value} into {where} of type {kind}"
    return None


def _wrong(value: Any, where: str, kind: str) -> str:
    type_name = _JSON_TYPE_NAMES.get(value.__class__, "number")
    return f"json: cannot unmarshal {type_name} into {where} of type {kind}"
