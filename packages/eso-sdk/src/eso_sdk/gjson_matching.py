r"""Wildcards: `*` for any number of characters, `?` for one, `\\` before a character that means itself.

Each part between two stars is taken where it first fits, so nothing is ever tried twice.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ANY: Final = None
"""A `?` among the characters of a part."""

Part = tuple[str | None, ...]


def matches(text: bytes, pattern: bytes) -> bool:
    """Return whether the whole text matches a pattern."""
    parts = _parts(pattern)
    if parts is None:
        return False
    readable = text.decode("utf-8", "surrogateescape")
    if len(parts) == 1:
        return len(readable) == len(parts[0]) and _fits(readable, 0, parts[0])
    first, *middle, last = parts
    end = len(readable) - len(last)
    position = len(first)
    if position > end or not _fits(readable, 0, first) or not _fits(readable, end, last):
        return False
    for part in middle:
        position = _first_fit(readable, position, end, part)
        if position < 0:
            return False
    return True


def effort(text: bytes, pattern: bytes) -> int:
    """Return how many characters a match may have to examine; parts with `?` have no fast search."""
    return len(text) * (1 + len(pattern) // 16) if b"?" in pattern else len(text) + len(pattern)


def _fits(text: str, position: int, part: Part) -> bool:
    return all(wanted is _ANY or text[position + offset] == wanted for offset, wanted in enumerate(part))


def _first_fit(text: str, position: int, end: int, part: Part) -> int:
    """Return where the first match of a part ends; -1 if there is none before `end`."""
    found = _compiled(part).search(text, position, end)
    return found.end() if found else -1


@lru_cache(maxsize=128)
def _compiled(part: Part) -> re.Pattern[str]:
    return re.compile("".join("." if wanted is _ANY else re.escape(wanted) for wanted in part), re.DOTALL)


@lru_cache(maxsize=128)
def _parts(pattern: bytes) -> tuple[Part, ...] | None:
    """Split a pattern at its stars; None for a pattern that ends inside an escape, which matches nothing."""
    parts: list[Part] = []
    part: list[str | None] = []
    characters = iter(pattern.decode("utf-8", "surrogateescape"))
    for character in characters:
        if character == "*":
            parts.append(tuple(part))
            part = []
        elif character == "?":
            part.append(_ANY)
        elif character == "\\":
            literal = next(characters, None)
            if literal is None:
                return None
            part.append(literal)
        else:
            part.append(character)
    return (*parts, tuple(part))
