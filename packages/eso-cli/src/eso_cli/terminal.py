"""Text for a terminal: signs that its encoding can show, and no control characters."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Final

_PLAIN: Final = {"✓": "+", "✗": "!", "…": "..."}


class Output(StrEnum):
    """Values of `--output`."""

    TEXT = "text"
    JSON = "json"


def printable(text: str) -> str:
    """Return one line without control characters: users and providers wrote parts of it."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def sign(wanted: str, plain: str = "") -> str:
    """Return the sign, or its plain form if standard output cannot encode it."""
    try:
        wanted.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain or _PLAIN.get(wanted, "?")
    return wanted
