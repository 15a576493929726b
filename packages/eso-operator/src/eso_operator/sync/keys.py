"""Names of keys: what a Secret can hold, and how other names are made to fit.

Pure. The rules are those of the existing operator, which counts letters and numbers of every script as good; the API
server has the last word on those.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final, TypeVar

from eso_operator.sync.errors import ShapeError

V = TypeVar("V")

MAX_KEY_BYTES: Final = 253
_PUNCTUATION: Final = frozenset("-._")


def converted(values: Mapping[str, V], strategy: str) -> dict[str, V]:
    """The map with every key made to fit; two keys that become one are an error."""
    result: dict[str, V] = {}
    origins: dict[str, str] = {}
    for key, value in values.items():
        name = convert(key, strategy)
        if name in result:
            raise ShapeError(
                f'keys "{origins[name]}" and "{key}" both become "{name}": use conversionStrategy Unicode, or rewrite'
            )
        result[name] = value
        origins[name] = key
    return result


def convert(key: str, strategy: str) -> str:
    """One key made to fit: other characters become `_`, or `_U1f600_` under strategy Unicode."""
    match strategy:
        case "" | "Default":
            return "".join(one if _fits(one) else "_" for one in key)
        case "Unicode":
            return "".join(one if _fits(one) else f"_U{ord(one):04x}_" for one in key)
        case _:
            return key


def checked(values: Mapping[str, V]) -> dict[str, V]:
    """The map without empty keys; a key that cannot stand in a Secret is an error."""
    for key in values:
        if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
            raise ShapeError(f'key "{key[:40]}…" is longer than {MAX_KEY_BYTES} bytes: shorten it with rewrite')
        if not all(map(_fits, key)):
            raise ShapeError(
                f'key "{key}" has characters other than letters, digits, "-", "." and "_":'
                " use rewrite, or conversionStrategy without rewrite"
            )
    return {key: value for key, value in values.items() if key}


def _fits(character: str) -> bool:
    return character in _PUNCTUATION or unicodedata.category(character)[0] in "LN"
