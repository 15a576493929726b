"""Markdown that survives what it is filled with, and the error that all pages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


class DocsError(Exception):
    """What is wrong with the words of a page, a problem in a line."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    return "".join([_line(heads), f"|{'---|' * len(heads)}\n", *map(_line, rows)])


def code(text: str) -> str:
    """A code span that survives in a table."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


def escaped(text: str) -> str:
    """Plain words: nothing in them is markup."""
    return re.sub(r"([|<>_*`$])", r"\\\1", text)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
