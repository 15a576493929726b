"""Converts a JSON response to values: an optional JSONPath, then one value or the members of an object.

Pure, and without the HTTP client: every worker process that computes for users loads this module with its imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from eso_provider_webhook.jsonpath import MissingError, Path, PathError, parsed
from eso_render.errors import RenderError
from eso_render.jobs import TextRenderer
from eso_render.metering import TooSlowError, allow
from eso_sdk.errors import backend_error, invalid_config
from gotmpl.errors import FuncError
from gotmpl.floats import plain, shortest_digits
from gotmpl.jsontext import JsonError, encode

# --- Converts a JSON response to values: an optional JSONPath, then one value or the members of an object ------------
#
# Pure. Errors name the path and never quote the response.

PATH_FIELD: Final = "/result/jsonPath"
_NO_JSON: Final = "the answer of the endpoint is not JSON"


def path_of(text: str) -> Path:
    """Read a JSONPath of the configuration."""
    try:
        return parsed(text)
    except PathError as exc:
        raise invalid_config(PATH_FIELD, str(exc)) from None


def single_at(response: bytes, path: Path) -> bytes:
    """Return the value at a path: the first entry of a list, an object as JSON, a number without decimal places.

    This is the behaviour of the Go operator, except that whole numbers keep all their digits.
    """
    found = _at(_decoded(response, f"{_NO_JSON}, and result.jsonPath needs JSON"), path)
    while isinstance(found, list):
        if not found:
            raise backend_error("result.jsonPath finds an empty list in the answer of the endpoint; it needs one entry")
        found = found[0]
    if isinstance(found, float):
        return f"{found:.0f}".encode()
    return _value("at result.jsonPath", found)


def members_at(response: bytes, path: Path) -> dict[str, bytes]:
    """Return every member of the object at the path, as bytes. If the path leads to a string, it is parsed as JSON."""
    found = _at(_decoded(response, _NO_JSON), path)
    if isinstance(found, str):
        found = _decoded(found.encode(), f"{_place(path)} is a string that is not JSON")
    if not isinstance(found, dict):
        raise backend_error(f"{_place(path)} is {_kind(found)}, not an object; set result.jsonPath to an object")
    return {name: _value(f'member "{name}"', member) for name, member in found.items()}


def _decoded(text: bytes, complaint: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise backend_error(complaint) from None  # the decoder's message quotes the input


def _at(document: Any, path: Path) -> Any:
    try:
        return path.select(document)
    except MissingError as missing:
        raise backend_error(f"the answer of the endpoint has nothing at {missing}; check result.jsonPath") from None
    except PathError as exc:
        raise invalid_config(PATH_FIELD, str(exc)) from None


def _place(path: Path) -> str:
    return f"what the answer has at {path.spelled}" if path.steps else "the answer of the endpoint"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "something else"


def _value(place: str, member: Any) -> bytes:
    """Convert JSON to bytes as the Go operator does, except that whole numbers keep all their digits."""
    match member:
        case str():
            return member.encode()
        case None:
            return b""
        case bool():
            return b"true" if member else b"false"
        case int():
            return str(member).encode()
        case float():
            sign, digits, exponent = shortest_digits(member)
            return (sign + plain(digits, exponent)).encode()
        case _:
            return _nested(place, member)


def _nested(place: str, member: Mapping[str, Any] | list[Any]) -> bytes:
    try:
        return encode(member).encode()
    except (JsonError, FuncError):
        raise backend_error(f"the answer of the endpoint is nested too deeply: {place}") from None


# ---------------------------------------------------------------------------------------------------------------------
# The computations that users define: their templates and their paths into responses. Pure; `endpoint.py` runs them.
#
# This module does not import the HTTP client, because every worker process loads it with its imports.


Secrets = Mapping[str, Mapping[str, bytes]]
"""The keys of Secrets, by the name that the configuration gives each Secret."""

_JSON_NANOS: Final = 1_000
_FOREVER: Final = 10**12


@dataclass(frozen=True, slots=True)
class Piece:
    """One template with its values."""

    template: str
    groups: Secrets = field(repr=False)


def fill(pieces: Mapping[str, Piece], *, render: TextRenderer) -> dict[str, bytes]:
    """Fill in templates, by their fields in the configuration.

    The first error is raised, with the name of its field.
    """
    filled: dict[str, bytes] = {}
    for path, piece in pieces.items():
        try:
            filled[path] = render.groups(piece.template, piece.groups, name=path.removeprefix("/"))
        except TooSlowError:
            raise
        except RenderError as exc:
            raise invalid_config(path, str(exc)) from None
    return filled


def single(response: bytes, path: str, *, render: TextRenderer) -> bytes:
    """Call `single_at` with the path as text."""
    allow(render, _nanos(response, path))
    return single_at(response, path_of(path))


def members(response: bytes, path: str, *, render: TextRenderer) -> dict[str, bytes]:
    """Call `members_at` with the path as text."""
    allow(render, _nanos(response, path))
    return members_at(response, path_of(path))


def _nanos(response: bytes, path: str) -> int:
    """Return the time limit in nanoseconds. A path that descends to any depth may visit one place many times."""
    return _FOREVER if ".." in path else _JSON_NANOS * (len(response) + len(path))
