"""Values as the API server, a Go program, prints them in its messages."""

from __future__ import annotations

from typing import Any


def quoted(value: Any) -> str:
    """Print a scalar; strings in quotes."""
    match value:
        case str():
            return f'"{value}"'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return str(value)


def plain_pointer(value: Any) -> str:
    """Print a value as a Go pointer, without quotes."""
    return "&{" + plain(value) + "}"


def plain(value: Any) -> str:
    """Print a value without quotes."""
    match value:
        case dict():
            return "map[" + " ".join(f"{name}:{plain(value[name])}" for name in sorted(value)) + "]"
        case list():
            return "[" + " ".join(plain(item) for item in value) + "]"
        case bool():
            return "true" if value else "false"
        case None:
            return "<nil>"
        case _:
            return str(value)


def literal(value: Any) -> str:
    """Print a value in Go syntax."""
    match value:
        case dict():
            parts = ", ".join(f"{quoted(name)}:{literal(value[name])}" for name in sorted(value))
            return "map[string]interface {}{" + parts + "}"
        case list():
            return "[]interface {}{" + ", ".join(literal(item) for item in value) + "}"
        case None:
            return "interface {}(nil)"
        case _:
            return quoted(value)


def type_name(value: Any) -> str:
    match value:
        case dict():
            return "map[string]interface {}"
        case list():
            return "[]interface {}"
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case _:
            return "string"


def not_decodable(value: Any, into: str) -> str:
    """Return the error text of Go's JSON decoder for a value of the wrong type."""
    return f"json: cannot unmarshal {_json_kind(value)} into Go {into}"


def _json_kind(value: Any) -> str:
    match value:
        case dict():
            return "object"
        case list():
            return "array"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case _:
            return "string"
