"""The report of a benchmark: rows of a table, each a ratio or a size with its target."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    value: str
    target: str = ""
    met: bool | None = None
    """None for a row without a target."""


def ratio(name: str, value: float, *, at_least: float | None = None, at_most: float | None = None) -> Row:
    if at_least is not None:
        return Row(name, f"{value:.2f}x", f">= {at_least:g}x", value >= at_least)
    if at_most is not None:
        return Row(name, f"{value:.2f}x", f"<= {at_most:g}x", value <= at_most)
    return Row(name, f"{value:.2f}x")


def shown(name: str, value: str) -> Row:
    return Row(name, value)


def print_rows(rows: list[Row]) -> None:
    width = max(len(row.name) for row in rows)
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(f"  {row.name:<{width}}  {row.value:>12}  {row.target:>10}  {verdict}")
    sys.stdout.flush()
