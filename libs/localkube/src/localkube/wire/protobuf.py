"""Bodies in the Kubernetes protobuf format, read into the same plain objects as JSON bodies.

Clients generated for Go write built-in kinds this way (kubectl's `create secret` and `auth can-i` among them) and do
not fall back to JSON. Only reading is needed: every such client also accepts JSON replies.

Field numbers come from protobuf_fields.txt. A field that Go holds by value is always on the wire, set or not, so its
zero value says nothing and is dropped; one that Go holds by pointer is only there if it was set, so its zero is kept.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec

from kubebase.clock import rfc3339
from kubebase.meta import JsonObject

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_MAX_DEPTH: Final = 64
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class BadProtobufError(ValueError):
    """The bytes are not a message of the declared kind. The error repeats nothing of them."""


class UnknownMessageError(BadProtobufError):
    """The kind has no protobuf form here."""


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of a message: a JSON name (empty for an inlined struct) and the encoding of the value."""

    name: str
    scalar: str
    message: str
    shape: str
    """`one`, `list` or `map`."""
    optional: bool


def decode(body: bytes) -> JsonObject:
    """Return the object in an envelope, with its kind and apiVersion."""
    if not body.startswith(_MAGIC):
        raise BadProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version, kind, raw = "", "", b""
    for number, value in _fields(body[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            named = {key: _text(item) for key, item in _fields(value)}
            api_version, kind = named.get(1, ""), named.get(2, "")
        elif number == 2 and isinstance(value, bytes):
            raw = value
    obj = _message(_message_name(api_version, kind), raw, 0)
    return {"apiVersion": api_version, "kind": kind, **obj}


@cache
def _table() -> dict[str, str]:
    text = files("localkube.wire").joinpath("protobuf_fields.txt").read_text()
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return dict(line.partition(" ")[::2] for line in lines)


@cache
def _layout(message: str) -> dict[int, Field]:
    layout: dict[int, Field] = {}
    for entry in _table()[message].split():
        number, name, written = entry.split(":")
        optional = written.startswith("*")
        written = written.removeprefix("*")
        shape = {"[]": "list", "{}": "map"}.get(written[:2], "one")
        written = written if shape == "one" else written[2:]
        scalar, _, target = written.partition("@")
        layout[int(number)] = Field(name, scalar, target, shape, optional)
    return layout


def _message_name(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    name = f"{group.partition('.')[0] or 'core'}/{version}.{kind}"
    if kind == "DeleteOptions":
        name = "meta/v1.DeleteOptions"
    if name not in _table():
        raise UnknownMessageError(f"no protobuf form of {kind or 'this kind'} is known here")
    return name


def _message(name: str, raw: bytes, depth: int) -> JsonObject:
    if depth > _MAX_DEPTH:
        raise BadProtobufError("nested too deeply")
    layout = _layout(name)
    obj: JsonObject = {}
    for number, value in _fields(raw):
        field = layout.get(number)
        if field is None:
            continue
        if field.shape == "map":
            key, item = _entry(field, value, depth)
            obj.setdefault(field.name, {})[key] = item
        elif field.shape == "list":
            for item in _unpacked(field, value):
                obj.setdefault(field.name, []).append(_value(field, item, depth))
        else:
            _put(obj, field, _value(field, value, depth))
    return obj


def _put(obj: JsonObject, field: Field, value: Any) -> None:
    if not field.name:
        obj.update(value)
    elif value is not None and (field.optional or value not in ("", 0, {})):
        obj[field.name] = value


def _entry(field: Field, value: int | bytes, depth: int) -> tuple[str, Any]:
    key, item = "", None
    for number, part in _fields(_bytes(value)):
        if number == 1:
            key = _text(part)
        elif number == 2:
            item = _value(field, part, depth)
    return key, _EMPTY.get(field.scalar, {}) if item is None else item


_EMPTY: Final[dict[str, Any]] = {"string": "", "bytes": "", "quantity": "0", "strings": []}


def _unpacked(field: Field, value: int | bytes) -> Iterator[int | bytes]:
    """Yield the items of one occurrence of a list: numbers may be packed together."""
    if field.scalar in {"int", "bool"} and isinstance(value, bytes):
        position = 0
        while position < len(value):
            number, position = _varint(value, position)
            yield number
    else:
        yield value


def _value(field: Field, value: int | bytes, depth: int) -> Any:
    if field.message:
        return _message(field.message, _bytes(value), depth + 1)
    match field.scalar:
        case "string":
            return _text(value)
        case "int":
            return _signed(value)
        case "bool":
            return bool(_signed(value))
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "double":
            return struct.unpack("<d", _bytes(value))[0]
        case "time" | "microtime":
            return _time(_bytes(value), field.scalar)
        case "json":
            return _json(_bytes(value))
        case "strings":
            return [_text(item) for number, item in _fields(_bytes(value)) if number == 1]
        case "quantity":
            return next((_text(item) for number, item in _fields(_bytes(value)) if number == 1), "0")
        case "intorstring":
            return _int_or_string(_bytes(value))
        case _:
            raise BadProtobufError(f"unknown field type {field.scalar}")


def _time(raw: bytes, precision: str) -> str | None:
    parts = {number: _signed(value) for number, value in _fields(raw)}
    if not parts:
        return None
    try:
        moment = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError as problem:
        raise BadProtobufError("a time is out of range") from problem
    return rfc3339(moment) if precision == "time" else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_fields(raw))
    return _text(parts.get(3, b"")) if parts.get(1) else _signed(parts.get(2, 0))


def _json(raw: bytes) -> Any:
    inner = next((_bytes(value) for number, value in _fields(raw) if number == 1), b"")
    try:
        return msgspec.json.decode(inner) if inner else None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise BadProtobufError("an embedded object is not JSON") from problem


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield field number and value of all fields in a message: an int for a varint, else bytes."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        match tag & 7:
            case 0:
                value, position = _varint(raw, position)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, position = _varint(raw, position)
            case 5:
                size = 4
            case _:
                raise BadProtobufError("unknown wire type")
        if position + size > len(raw):
            raise BadProtobufError("unexpected EOF")
        yield tag >> 3, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        if position >= len(raw):
            raise BadProtobufError("unexpected EOF")
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise BadProtobufError("integer overflow")


def _signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise BadProtobufError("a number is written as something else")
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BadProtobufError("a message is written as a number")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as problem:
        raise BadProtobufError("a string is not UTF-8") from problem
