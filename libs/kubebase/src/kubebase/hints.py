"""The names that the author of a wrong name may have meant: "did you mean vault?".

Equal inputs give equal hints in any order, so that a condition that contains one does not change between reconciles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

LONGEST_NAME: Final = 63
"""Longer names are not suggested: they would fill a message."""
_COMPARED: Final = 200
"""Comparing names takes time for each of them. Those of similar length come first."""
_SIMILARITY: Final = 0.65


def similar(name: str, known: Iterable[str], *, count: int = 1) -> list[str]:
    """Return the known names that are most similar, best first. Upper and lower case do not matter."""
    from difflib import get_close_matches  # here, because most names are right

    lowered = name.lower()
    candidates = sorted(
        {each for each in known if each != name and len(each) <= LONGEST_NAME},
        key=lambda each: (abs(len(each) - len(name)), each),
    )[:_COMPARED]
    # Of names that differ in case only, the first one in the order above stays.
    by_lower = {each.lower(): each for each in reversed(candidates)}
    return [by_lower[each] for each in get_close_matches(lowered, sorted(by_lower), n=count, cutoff=_SIMILARITY)]


def did_you_mean(names: Iterable[str]) -> str:
    """Return the question, or an empty string without names."""
    listed = " or ".join(names)
    return f"did you mean {listed}?" if listed else ""


def hint(name: str, known: Iterable[str], *, count: int = 1) -> str:
    """Return a question about similar names; empty if none is similar."""
    return did_you_mean(similar(name, known, count=count))


def with_hint(message: str, name: str, known: Iterable[str]) -> str:
    """Return the message about a wrong name, followed by a question about a similar one."""
    meant = hint(name, known)
    return f"{message}; {meant}" if meant else message
