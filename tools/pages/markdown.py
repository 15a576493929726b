"""Markdown with escaped content, and the error that all pages share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


class DocsError(Exception):
    """The problems of a page, one per line."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are already Markdown."""
    return "".join([_line(heads), f"|{'---|' * len(heads)}\n", *map(_line, rows)])


def code(text: str) -> str:
    """Return a code span for use in a table."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}".replace("|", "\\|")


def escaped(text: str) -> str:
    """Escape plain text."""
    return re.sub(r"([|<>_*`$])", r"\\\1", text)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
