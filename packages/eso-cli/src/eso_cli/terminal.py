"""Text for a terminal: signs that its encoding can show, and no control characters.

`echo` prints everything that the command prints. Names, keys and messages come from a cluster and from files: their
writers must not move the cursor, rename the window or reverse the text of a reader.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Final

import typer

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]*m)")
_PLAIN: Final = {"✓": "+", "✗": "!", "…": "..."}


class Output(StrEnum):
    """Values of `--output`."""

    TEXT = "text"
    JSON = "json"


def echo(text: object, *, err: bool = False, nl: bool = True, coloured: bool = False) -> None:
    """Print a text with its control characters escaped; of a `coloured` one, colours stay if a terminal shows them."""
    parts = _COLOUR.split(str(text)) if coloured else [str(text)]
    parts[::2] = [escaped(part) for part in parts[::2]]
    typer.echo("".join(parts), err=err, nl=nl)  # noqa: TID251 - the one place


def printable(text: str) -> str:
    """Return one line with control characters escaped: users and providers wrote parts of it."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """Return the text with control characters, except ends of lines and tabs, as their numbers."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def sign(wanted: str, plain: str = "") -> str:
    """Return the sign, or its plain form if standard output cannot encode it."""
    try:
        wanted.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain or _PLAIN.get(wanted, "?")
    return wanted
