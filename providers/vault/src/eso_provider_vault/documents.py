"""JSON as Vault writes it: numbers keep the digits they were written with.

    parse(b'{"n": 12345678901234567890}') -> {"n": Number("12345678901234567890")}
    compact(...)                          -> the same text; keys sorted, `<`, `>` and `&` escaped as Go's encoder does

`float` would round what has more than 53 bits, so no number of a response ever becomes one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn, TypeAlias

from eso_sdk.gjson_values import quoted

MAX_DEPTH: Final = 256


class NotJsonError(ValueError):
    """The text is not JSON, or is nested too deeply. The message never quotes the text."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number, as written."""

    text: str

    def exact(self) -> Decimal:
        """Return the value of the number, with all its digits."""
        return Decimal(self.text)

    @property
    def fits_a_float(self) -> bool:
        """Tell whether a server that stores 64-bit floats gives the same number back."""
        return Decimal(repr(float(self.text))) == self.exact()


Json: TypeAlias = "bool | str | Number | list[Json] | dict[str, Json] | None"
Members: TypeAlias = "dict[str, Json]"


def parse(raw: bytes) -> Json:
    """Decode a JSON text; raise `NotJsonError` if it is not JSON."""
    try:
        parsed: Json = json.loads(raw, parse_int=Number, parse_float=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        # The decoder's own message quotes the text.
        raise NotJsonError("the text is not JSON") from None
    return parsed


def compact(document: Json) -> bytes:
    """Encode as Go's encoder does: no blanks, keys sorted, safe inside HTML, numbers as written."""
    return b"".join(_pieces(document, 0))


def text_of(value: Json) -> bytes:
    """Return one member as a secret value: strings unquoted, null empty, everything else as JSON."""
    match value:
        case None:
            return b""
        case str():
            return _utf8(value)
        case _:
            return compact(value)


def members(document: Json) -> Members:
    """Return the members of an object; none if it is not an object."""
    return document if isinstance(document, dict) else {}


def text(document: Json, *path: str) -> str:
    """Return the string at a path of members; empty if there is none."""
    found = at(document, *path)
    return found if isinstance(found, str) else ""


def integer(document: Json, *path: str) -> int | None:
    """Return the whole number at a path of members; None if there is none."""
    found = at(document, *path)
    if isinstance(found, Number) and len(found.text) <= 19:
        try:
            return int(found.text)
        except ValueError:
            return None
    return None


def at(document: Json, *path: str) -> Json:
    """Return the value at a path of members; None if a member is missing."""
    for name in path:
        document = members(document).get(name)
    return document


def same(one: Json, other: Json) -> bool:
    """Compare by meaning: the order of members and the spelling of a number do not matter."""
    match one, other:
        case Number(), Number():
            return one.text == other.text or one.exact() == other.exact()
        case dict(), dict():
            return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
        case list(), list():
            return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
        case _:
            return type(one) is type(other) and one == other


def _pieces(value: Json, depth: int) -> list[bytes]:
    if depth > MAX_DEPTH:
        raise NotJsonError(f"the document is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None:
            return [b"null"]
        case bool():
            return [b"true" if value else b"false"]
        case str():
            return [quoted(_utf8(value))]
        case Number(text=digits):
            return [digits.encode()]
        case list():
            return _joined(b"[", [_pieces(entry, depth + 1) for entry in value], b"]")
        case dict():
            encoded = ((_utf8(name), entry) for name, entry in value.items())
            entries = [[quoted(name), b":", *_pieces(entry, depth + 1)] for name, entry in sorted(encoded, key=_name)]
            return _joined(b"{", entries, b"}")


def _name(member: tuple[bytes, Json]) -> bytes:
    return member[0]


def _joined(opening: bytes, entries: list[list[bytes]], closing: bytes) -> list[bytes]:
    pieces = [opening]
    for position, entry in enumerate(entries):
        if position:
            pieces.append(b",")
        pieces += entry
    return [*pieces, closing]


def _utf8(value: str) -> bytes:
    """Encode as UTF-8; half a surrogate pair, which JSON permits, becomes U+FFFD as in Go."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _refuse(_constant: str) -> NoReturn:
    raise ValueError
