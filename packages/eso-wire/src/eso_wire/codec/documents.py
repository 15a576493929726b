"""JSON-like documents inside messages (google.protobuf.Struct): the provider metadata of a pushed value.

Protobuf has one number type. Whole numbers are decoded to int, as the manifest had them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Struct, Value

from eso_wire import bounds
from eso_wire.codec.fields import Malformed
from eso_wire.errors import ErrorReason, ProviderError

_EXACT = 2**53


def to_struct(document: Mapping[str, Any]) -> Struct:
    return Struct(fields={str(key): _encode(value) for key, value in document.items()})


def decode_struct(message: Struct) -> dict[str, Any]:
    """Decode a document; refuse one that is deeper or larger than the limits."""
    return _Reader().members(message, 1)


def _encode(value: Any) -> Value:
    match value:
        case None:
            return Value(null_value=0)  # type: ignore[arg-type]  # the stubs want the enum's alias for 0
        case bool():
            return Value(bool_value=value)
        case int() | float():
            return Value(number_value=_exact(value))
        case str():
            return Value(string_value=value)
        case Mapping():
            return Value(struct_value=to_struct(value))
        case Sequence() if not isinstance(value, bytes | bytearray):
            return Value(list_value=ListValue(values=[_encode(entry) for entry in value]))
        case _:
            raise _refused(f"a {type(value).__name__} is no JSON value")


def _exact(number: float) -> float:
    if isinstance(number, int):
        if abs(number) > _EXACT:
            raise _refused("a whole number beyond 2^53 would lose digits; write it as text")
    elif not math.isfinite(number):
        raise _refused("a number has to be finite")
    return number


def _refused(problem: str) -> ProviderError:
    return ProviderError(ErrorReason.INVALID_REQUEST, f"the metadata of a pushed value cannot be sent: {problem}")


class _Reader:
    """Decodes one document and counts its nodes."""

    def __init__(self) -> None:
        self._nodes = 0

    def members(self, message: Struct, depth: int) -> dict[str, Any]:
        self._enter(depth)
        return {key: self._value(value, depth) for key, value in message.fields.items()}

    def _value(self, message: Value, depth: int) -> Any:
        self._nodes += 1
        match message.WhichOneof("kind"):
            case "number_value":
                return _plain(message.number_value)
            case "string_value":
                return message.string_value
            case "bool_value":
                return message.bool_value
            case "struct_value":
                return self.members(message.struct_value, depth + 1)
            case "list_value":
                self._enter(depth + 1)
                return [self._value(entry, depth + 1) for entry in message.list_value.values]
            case "null_value" | None:
                return None

    def _enter(self, depth: int) -> None:
        if depth > bounds.MAX_STRUCT_DEPTH:
            raise Malformed("provider_metadata", f"is nested deeper than {bounds.MAX_STRUCT_DEPTH} levels")
        if self._nodes > bounds.MAX_STRUCT_NODES:
            raise Malformed("provider_metadata", f"has more than {bounds.MAX_STRUCT_NODES} values")


def _plain(number: float) -> int | float:
    if not math.isfinite(number):
        raise Malformed("provider_metadata", "has a number that is not finite")
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number
