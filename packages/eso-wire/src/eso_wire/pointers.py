"""JSON pointers into a configuration: with `*` for every member or entry, and relative to another place.

Both ends use them: the operator to follow references, a provider to know which configuration it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from eso_wire.values import CallerDependence, SpecCondition


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


def relative(start: str, path: str) -> str | None:
    """Resolve a relative JSON pointer ("1/audiences": up one level, then down); None if it leaves the document."""
    levels, separator, rest = path.partition("/")
    if not levels.isdecimal() or len(levels) > 2 or int(levels) > start.count("/"):
        return None
    for _ in range(int(levels)):
        start = parent(start)
    return start + separator + rest


def has_text(document: Any, pointer: str, texts: Collection[str]) -> bool:
    """Whether one of these texts is at a pointer; an empty text stands for nothing, null or an empty text there."""
    found = at(document, pointer)
    return ("" if found is None else found) in texts if found is None or isinstance(found, str) else False


def depends_on_caller(dependences: Iterable[CallerDependence], document: Any) -> bool:
    """Whether what a configuration gives depends on the namespace of the caller."""
    return any(not each.pointer or not has_text(document, each.pointer, each.unless) for each in dependences)


def stands_for(condition: SpecCondition | None, document: Any) -> bool:
    """Whether a v1 block is one that a kind serves."""
    return condition is None or has_text(document, condition.pointer, condition.values)


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
