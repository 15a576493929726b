"""JSON functions. As in Go's Sprig, the plain ones ignore errors; the `must` ones report them."""

from __future__ import annotations

from collections.abc import Callable

from gotmpl.errors import FuncError
from gotmpl.functions import ANY, STRING, Functions
from gotmpl.jsontext import JsonError, decode, encode, encode_indented
from gotmpl.values import Value

FUNCTIONS = Functions()


@FUNCTIONS.add("fromJson", params=(STRING,))
def from_json(text: str) -> Value:
    try:
        return decode(text)
    except JsonError as exc:
        return exc.value


@FUNCTIONS.add("mustFromJson", params=(STRING,))
def must_from_json(text: str) -> Value:
    try:
        return decode(text)
    except JsonError as exc:
        raise FuncError(*exc.parts) from None


def _raw(value: Value) -> str:
    return encode(value, escape_html=False)


def _register(name: str, write: Callable[[Value], str]) -> None:
    def must(value: Value) -> str:
        try:
            return write(value)
        except JsonError as exc:
            raise FuncError(*exc.parts) from None

    def lenient(value: Value) -> str:
        try:
            return write(value)
        except JsonError:
            return ""

    FUNCTIONS.add(f"must{name[0].upper()}{name[1:]}", params=(ANY,))(must)
    FUNCTIONS.add(name, params=(ANY,))(must if name == "toRawJson" else lenient)


_register("toJson", encode)
_register("toPrettyJson", encode_indented)
_register("toRawJson", _raw)
