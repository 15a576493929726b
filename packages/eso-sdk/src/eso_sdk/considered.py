"""Counts the keys that a search compares with its query, so that users learn "0 of 12" when nothing matches."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class Considered:
    """The count of one search."""

    keys: int = 0


CONSIDERED: Final[ContextVar[Considered | None]] = ContextVar("considered", default=None)
"""The count of the search that is under way; `Matcher.accepts` adds to it."""
