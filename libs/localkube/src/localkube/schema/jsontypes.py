"""The type and format keywords of a schema node, read the way kube-apiserver reads them."""

from __future__ import annotations

from typing import Final

from kubebase.meta import JsonObject
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
    """Return the JSON types that a schema allows; none means any."""
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def effective_format(schema: JsonObject) -> str:
    """Return the schema's format if it is enforced, else the empty text."""
    name = str(schema.get("format", ""))
    if not name:
        return ""
    types = types_of(schema)
    return name if formats.is_known(types[0] if len(types) == 1 else "", name) else ""


def is_json_integer(value: float) -> bool:
    return value.is_integer() and abs(value) <= _EXACT_FLOAT
