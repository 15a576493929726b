"""Documents of YAML from the events of libyaml, for `yamlvalues.py`, which loads this when it reads the first text.

A process of a cluster usually reads no YAML, and the library takes 1 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml

from kubebase.yamlscalars import KNOWN_TAGS, TagError
from kubebase.yamlvalues import Rules, YamlBoundError, YamlError, key_text


def documents(text: str, rules: Rules) -> Iterator[Any]:
    """Yield the value of each document. Raises YamlError."""
    try:
        yield from _Builder(yaml.parse(text, Loader=yaml.CBaseLoader), rules).documents()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # The parser's messages are fixed phrases without any of the text.
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", "it cannot be read"))
        raise _at(mark, problem) from None


class _Builder:
    """Builds plain values from the events of the parser."""

    def __init__(self, events: Iterator[Any], rules: Rules) -> None:
        self._events = events
        self._rules = rules
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._nodes = 0

    def documents(self) -> Iterator[Any]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                yield self._value(next(self._events), 0)

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        before = self._nodes
        self._count(1)
        if depth > self._rules.depth:
            raise YamlBoundError(f"it is nested more than {self._rules.depth} levels deep")
        if event.tag and event.tag not in KNOWN_TAGS and not self._rules.ignores_unknown_tags:
            raise _at(event.start_mark, "an unknown tag; quote a text that begins with !")
        match event:
            case yaml.ScalarEvent():
                value = self._scalar(event)
            case yaml.SequenceStartEvent():
                value = self._list(depth)
            case _:
                value = self._map(depth)
        if event.anchor:
            self._anchors[event.anchor] = value
            self._sizes[event.anchor] = self._nodes - before
        return value

    def _aliased(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _at(event.start_mark, "an alias without an anchor before it")
        self._count(self._sizes[event.anchor])
        return deepcopy(self._anchors[event.anchor])

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._rules.nodes:
            raise YamlBoundError(f"it has more than {self._rules.nodes} values")

    def _list(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _map(self, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, depth + 1)
            value = self._value(next(self._events), depth + 1)
            if _is_merge(event):
                _merge(entries, value, event.start_mark)
            else:
                entries[self._key(key, event.start_mark)] = value
        return entries

    def _key(self, key: Any, mark: Any) -> str:
        text = key_text(key, self._rules.float_key)
        if text is None:
            raise _at(mark, "a key must be text, a number or a boolean")
        return text

    def _scalar(self, event: Any) -> Any:
        tag = event.tag or ""
        if tag == "!" or not (tag or event.implicit[0]):
            return event.value
        try:
            return self._rules.scalar(tag, event.value)
        except TagError:
            raise _at(event.start_mark, "a value that does not fit its tag") from None
        except ValueError as error:
            raise _at(event.start_mark, str(error)) from None


def _is_merge(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]


def _merge(entries: dict[str, Any], value: Any, mark: Any) -> None:
    """Merge the entries of `<<`: one map, or several of which the first wins. Later keys of the map itself win."""
    maps = value if isinstance(value, list) else [value]
    for source in reversed(maps):
        if not isinstance(source, dict):
            raise _at(mark, "only maps can be merged with <<")
        entries.update(source)


def _at(mark: Any, problem: str) -> YamlError:
    return YamlError(problem, line=mark.line + 1, column=mark.column + 1) if mark else YamlError(problem)
