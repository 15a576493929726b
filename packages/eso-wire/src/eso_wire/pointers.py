"""JSON pointers into a configuration, with `*` for every member or entry, and relative pointers.

The operator uses them to resolve references, a provider to recognise the configuration it received.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from eso_wire.kinds import CallerDependence, SpecCondition

MAX_STEPS: Final = 20_000
"""Maximum number of visited members and entries."""

Match = tuple[str, Any]
"""A pointer and the value there."""


class TooLargeError(ValueError):
    """A document has more places to visit than the limit."""


def expand(document: Any, patterns: Sequence[str]) -> list[list[Match]]:
    """Find every value that each pattern matches, in document order. Absent and null values are omitted.

    All patterns share one walk, which visits only matching places; TooLargeError after MAX_STEPS.
    """
    walk = _Walk([[] for _ in patterns])
    walk.below(document, [_trie(tuple(patterns))], "")
    return walk.found


def at(document: Any, pointer: str) -> Any:
    """Return the value at a pointer without `*`; None if there is none."""
    for part in map(_unescaped, pointer.split("/")[1:]):
        document = _member(document, part)
    return document


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
    """Return whether one of these texts is at a pointer; an empty text also matches an absent or null value."""
    found = at(document, pointer)
    return ("" if found is None else found) in texts if found is None or isinstance(found, str) else False


def depends_on_caller(dependences: Iterable[CallerDependence], document: Any) -> bool:
    """Return whether the results of a configuration depend on the caller's namespace."""
    return any(not each.pointer or not has_text(document, each.pointer, each.unless) for each in dependences)


def stands_for(condition: SpecCondition | None, document: Any) -> bool:
    """Return whether a kind serves this v1 block."""
    return condition is None or has_text(document, condition.pointer, condition.values)


class _Node:
    """A node of the pattern trie: the next steps, and the patterns that end here."""

    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.ends: list[int] = []


@lru_cache(maxsize=256)
def _trie(patterns: tuple[str, ...]) -> _Node:
    """Return the trie of the patterns. Cached: each read of a store walks its configuration with the same patterns."""
    root = _Node()
    for index, pattern in enumerate(patterns):
        node = root
        for part in map(_unescaped, pattern.split("/")[1:]):
            node = node.next.setdefault(part, _Node())
        node.ends.append(index)
    return root


class _Walk:
    """One walk through a document, along several patterns at once."""

    def __init__(self, found: list[list[Match]]) -> None:
        self.found = found
        self._left = MAX_STEPS

    def below(self, value: Any, nodes: list[_Node], walked: str) -> None:
        """Record the patterns that end here, and follow the others."""
        if value is None:
            return
        for node in nodes:
            for index in node.ends:
                self.found[index].append((walked, value))
        for name, member in self._members(value, nodes):
            on = [node.next[part] for node in nodes for part in {name, "*"} if part in node.next]
            self._left -= len(nodes)
            if self._left < 0:
                raise TooLargeError(f"more than {MAX_STEPS} places would have to be looked at")
            if on:
                self.below(member, on, f"{walked}/{_escaped(name)}")

    def _members(self, value: Any, nodes: list[_Node]) -> Iterator[Match]:
        """Yield the members that a pattern may match; all of them only if one has a `*` here."""
        if not any("*" in node.next for node in nodes):
            names = dict.fromkeys(part for node in nodes for part in node.next)
            yield from ((name, member) for name in names if (member := _member(value, name)) is not None)
        elif isinstance(value, dict):
            yield from value.items()
        elif isinstance(value, list):
            yield from ((str(index), entry) for index, entry in enumerate(value))


def _member(document: Any, part: str) -> Any:
    match document:
        case dict():
            return document.get(part)
        case list() if part.isdecimal() and len(part) < 10 and int(part) < len(document):
            return document[int(part)]
        case _:
            return None


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
