"""The YAML that templates and people write, read as Kubernetes tools written in Go read it.

YAML 1.1 with the scalars of go-yaml v2: `yes` and `y` are true, `0777` is octal, `1:30` and dates stay text. Keys
become text, of two equal keys the last one counts. Aliases are copied, within a bound. Where `fromYaml` turns all
numbers into floats, whole numbers stay whole here.
Messages say the line and what is wrong, never what stands there: it is rendered from secret values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml

from eso_render.decoding import DecodingError, decode
from eso_render.functions.yamlscalars import BINARY, TagError, resolve
from gotmpl.floats import format_float32

MAX_DEPTH = 100
MAX_NODES = 100_000
"""Counted with what aliases stand for, so that a short text cannot become a huge value."""

_KEY_INFINITIES = {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}


class YamlError(ValueError):
    """The text is not YAML, or not the YAML that is needed. `line` is 0 where it is not known."""

    def __init__(self, problem: str, *, line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line


def document(raw: bytes) -> Any:
    """The first document as JSON: maps, lists, text, numbers, booleans and null. An empty text is null."""
    value = next(_values(raw), None)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise YamlError("JSON cannot hold infinity and not-a-number") from None
    return value


def documents(raw: bytes) -> list[Any]:
    """All documents of a file."""
    return list(_values(raw))


def flat_map(raw: bytes) -> dict[str, str | None]:
    """A map of keys to scalars, all as text; None where there is a map or a list. An empty text is an empty map."""
    entries = next(_values(raw), None)
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise YamlError("a YAML map of keys and values is needed")
    return {key: _scalar_text(value) for key, value in entries.items()}


def _values(raw: bytes) -> Iterator[Any]:
    """Every document, with infinity and not-a-number among the floats."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise YamlError("the text is not UTF-8") from None
    try:
        yield from _Builder(yaml.parse(text, Loader=yaml.CBaseLoader)).documents()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # What the parser has to say are fixed phrases, without any of the text.
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", "it cannot be read"))
        raise YamlError(problem, line=mark.line + 1 if mark else 0) from None


def _scalar_text(value: Any) -> str | None:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format_float32(value)
        case str():
            return value
        case _:
            return None


class _Builder:
    """Events of the parser -> plain values."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
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
        if depth > MAX_DEPTH:
            raise YamlError(f"it is nested more than {MAX_DEPTH} levels deep")
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event)
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
            raise YamlError("an alias without an anchor before it", line=event.start_mark.line + 1)
        self._count(self._sizes[event.anchor])
        return deepcopy(self._anchors[event.anchor])

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise YamlError(f"it has more than {MAX_NODES} values")

    def _list(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _map(self, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._value(event, depth + 1)
            value = self._value(next(self._events), depth + 1)
            if _is_merge(event):
                _merge(entries, value, line)
            else:
                entries[_key_text(key, line)] = value
        return entries


def _is_merge(event: Any) -> bool:
    return isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]


def _merge(entries: dict[str, Any], value: Any, line: int) -> None:
    """`<<`: the entries of a map, or of several of which the first wins. Later keys of the map itself win over them."""
    maps = value if isinstance(value, list) else [value]
    for source in reversed(maps):
        if not isinstance(source, dict):
            raise YamlError("only maps can be merged with <<", line=line)
        entries.update(source)


def _key_text(key: Any, line: int) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case float():
            text = format_float32(key)
            return _KEY_INFINITIES.get(text, text)
        case _:
            raise YamlError("a key must be text, a number or a boolean", line=line)


def _scalar(event: Any) -> Any:
    tag = event.tag or ""
    if tag == "!" or not (tag or event.implicit[0]):
        return event.value
    line = event.start_mark.line + 1
    try:
        found, value = resolve(tag, event.value)
    except TagError:
        raise YamlError("a value that does not fit its tag", line=line) from None
    return _binary(event.value, line) if found == BINARY else value


def _binary(text: str, line: int) -> str:
    try:
        return decode("Base64", text.encode()).decode()
    except (DecodingError, UnicodeDecodeError):
        raise YamlError("!!binary must be Base64 of text", line=line) from None
