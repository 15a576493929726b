"""The type and format keywords of a schema node, read the way kube-apiserver reads them."""

from __future__ import annotations

from typing import Any, Final

from kuberun.meta import JsonObject
from localkube.schema import formats

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_EXACT_FLOAT: Final = 2**53

TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


def types_of(schema: JsonObject) -> tuple[str, ...]:
    """The JSON types a schema allows; none means any."""
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def effective_format(schema: JsonObject) -> str:
    """The schema's format if it is one that is enforced, else the empty text."""
    name = str(schema.get("format", ""))
    if not name:
        return ""
    types = types_of(schema)
    return name if formats.is_known(types[0] if len(types) == 1 else "", name) else ""


def has_type(value: Any, types: tuple[str, ...]) -> bool:
    """Whether a value is of one of the types; a whole number is also a `number`, and 1.0 an `integer`."""
    name = TYPE_NAMES[value.__class__]
    match name:
        case "integer":
            return ("integer" in types and INT64_MIN <= value <= INT64_MAX) or "number" in types
        case "number":
            return "number" in types or ("integer" in types and is_json_integer(value))
        case _:
            return name in types


def is_json_integer(value: float) -> bool:
    return value.is_integer() and abs(value) <= _EXACT_FLOAT
