"""Key names: which ones a Secret accepts, and how other names are converted. Pure.

The rules are those of the existing operator: letters and numbers of every script are valid. The API server may still
reject such a key.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final, TypeVar

from eso_operator.sources.errors import ShapeError

V = TypeVar("V")

MAX_KEY_BYTES: Final = 253
_PUNCTUATION: Final = frozenset("-._")


def converted(values: Mapping[str, V], strategy: str) -> dict[str, V]:
    """Return the map with every key converted. Raises ShapeError if two keys become one."""
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
    """Convert one key: invalid characters become `_`, or `_U1f600_` under strategy Unicode."""
    match strategy:
        case "" | "Default":
            return "".join(one if _fits(one) else "_" for one in key)
        case "Unicode":
            return "".join(one if _fits(one) else f"_U{ord(one):04x}_" for one in key)
        case _:
            return key


def checked(values: Mapping[str, V]) -> dict[str, V]:
    """Return the map without empty keys. Raises ShapeError for a key that a Secret cannot hold."""
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
