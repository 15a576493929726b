"""Keys of a Secret as remote names: `_U1f600_` becomes the character it stands for. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeVar

from eso_operator.sync.errors import ShapeError

V = TypeVar("V")

REVERSE_UNICODE: Final = "ReverseUnicode"

_ESCAPE: Final = re.compile(r"_U([0-9a-fA-F]{4,5})_")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def read_key(key: str, strategy: str) -> str:
    """One key as the strategy reads it."""
    return _ESCAPE.sub(_character, key) if strategy == REVERSE_UNICODE else key


def read_keys(values: Mapping[str, V], strategy: str) -> dict[str, str]:
    """Every key as the strategy reads it, with the key it stands for; two that become one are an error."""
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
    # Half of a surrogate pair is no character.
    return _REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)
