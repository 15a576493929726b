"""JSON pointers into a configuration: with `*` for every member or entry, and relative to another place.

Both ends use them: the operator to follow references, a provider to know which configuration it was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from eso_wire.values import CallerDependence, SpecCondition

MAX_STEPS: Final = 20_000
"""How many members and entries are looked at, at most."""

Place = tuple[str, Any]
"""A pointer, and what is there."""


class TooLargeError(ValueError):
    """There is more to look at in a document than anybody should have to wait for."""


def expand(document: Any, patterns: Sequence[str]) -> list[list[Place]]:
    """Every place that each pattern means, in the document's order. What is absent or null is left out.

    One walk for all of them, which goes only where a pattern leads; TooLargeError after MAX_STEPS.
    """
    walk = _Walk([[] for _ in patterns])
    walk.below(document, [_trie(patterns)], "")
    return walk.found


def at(document: Any, pointer: str) -> Any:
    """What is at a pointer without `*`; None when nothing is."""
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
    """Whether one of these texts is at a pointer; an empty text stands for nothing, null or an empty text there."""
    found = at(document, pointer)
    return ("" if found is None else found) in texts if found is None or isinstance(found, str) else False


def depends_on_caller(dependences: Iterable[CallerDependence], document: Any) -> bool:
    """Whether what a configuration gives depends on the namespace of the caller."""
    return any(not each.pointer or not has_text(document, each.pointer, each.unless) for each in dependences)


def stands_for(condition: SpecCondition | None, document: Any) -> bool:
    """Whether a v1 block is one that a kind serves."""
    return condition is None or has_text(document, condition.pointer, condition.values)


class _Node:
    """A place in the patterns: where they lead from here, and which of them end here."""

    __slots__ = ("ends", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Node] = {}
        self.ends: list[int] = []


def _trie(patterns: Sequence[str]) -> _Node:
    root = _Node()
    for index, pattern in enumerate(patterns):
        node = root
        for part in map(_unescaped, pattern.split("/")[1:]):
            node = node.next.setdefault(part, _Node())
        node.ends.append(index)
    return root


class _Walk:
    """One walk through a document, along several patterns at once."""

    def __init__(self, found: list[list[Place]]) -> None:
        self.found = found
        self._left = MAX_STEPS

    def below(self, value: Any, nodes: list[_Node], walked: str) -> None:
        """Note the patterns that end here, and go on with the others."""
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

    def _members(self, value: Any, nodes: list[_Node]) -> Iterator[Place]:
        """Those that a pattern may mean; all of them only if one has a `*` here."""
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
