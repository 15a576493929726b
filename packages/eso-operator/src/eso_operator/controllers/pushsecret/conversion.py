"""Converts keys of a Secret to remote names: `_U1f600_` becomes the character with that code point. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from eso_operator.sources.shape import ShapeError

V = TypeVar("V")

REVERSE_UNICODE: Final = "ReverseUnicode"

_ESCAPE: Final = re.compile(r"_U([0-9a-fA-F]{4,5})_")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def read_key(key: str, strategy: str) -> str:
    """Convert one key by the strategy."""
    return _ESCAPE.sub(_character, key) if strategy == REVERSE_UNICODE else key


def read_keys(values: Mapping[str, V], strategy: str) -> dict[str, str]:
    """Map each converted key to its key in the Secret; raise if two keys convert to the same name."""
    raw_of: dict[str, str] = {}
    for raw in sorted(values):
        name = read_key(raw, strategy)
        if name in raw_of:
            raise ShapeError(
                f'keys "{raw_of[name]}" and "{raw}" both read as "{name}" under conversionStrategy {strategy}: rename'
            )
        raw_of[name] = raw
    return raw_of


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    # Half of a surrogate pair is not a character.
    return _REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)
