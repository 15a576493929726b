"""JSON pointers with `*` for every member or entry: where in a configuration the references to credentials are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def expand(document: Any, pattern: str) -> Iterator[tuple[str, Any]]:
    """Every place the pattern means and what is there, in the document's order. What is absent or null is left out."""
    yield from _below(document, [_unescaped(part) for part in pattern.split("/")[1:]], "")


def at(document: Any, pointer: str) -> Any:
    """What is at a pointer without `*`; None when nothing is."""
    return next(
        (found for _, found in _below(document, [_unescaped(part) for part in pointer.split("/")[1:]], "")), None
    )


def parent(pointer: str) -> str:
    return pointer.rpartition("/")[0]


def _below(document: Any, parts: list[str], walked: str) -> Iterator[tuple[str, Any]]:
    if not parts:
        if document is not None:
            yield walked, document
        return
    for name, member in _members(document, parts[0]):
        yield from _below(member, parts[1:], f"{walked}/{_escaped(name)}")


def _members(document: Any, part: str) -> Iterator[tuple[str, Any]]:
    match document:
        case dict() if part == "*":
            yield from document.items()
        case dict() if part in document:
            yield part, document[part]
        case list() if part == "*":
            yield from ((str(index), entry) for index, entry in enumerate(document))
        case list() if part.isdecimal() and int(part) < len(document):
            yield part, document[int(part)]
        case _:
            return


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
