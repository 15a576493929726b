"""The YAML that templates produce, read as Kubernetes tools written in Go read it.

YAML 1.1 with the scalars of go-yaml v2: `yes` and `y` are true, `0777` is octal, `1:30` and dates stay text. Keys
become text, of two equal keys the last one counts. Only the first document is read. Aliases are copied, within a bound.
Messages say the line and what is wrong, never what stands there: it is rendered from secret values.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import yaml

from eso_render.decoding import DecodingError, decode
from gotmpl.floats import format_float

MAX_DEPTH = 100
MAX_NODES = 100_000
"""Counted with what aliases stand for, so that a short text cannot become a huge value."""

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]{0,19}))"
)
_BASES = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_KEY_INFINITIES = {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}


class YamlError(ValueError):
    """The text is not YAML, or not the YAML that is needed."""


def document(raw: bytes) -> Any:
    """The first document as JSON: maps, lists, text, numbers, booleans and null. An empty text is null."""
    value = load(raw)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise YamlError("the rendered YAML has a number that JSON cannot hold: infinity or not-a-number") from None
    return value


def load(raw: bytes) -> Any:
    """The same, with infinity and not-a-number among the floats."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise YamlError("the rendered text is not UTF-8, so it cannot be read as YAML") from None
    try:
        return _Builder(yaml.parse(text, Loader=yaml.CBaseLoader)).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        # What the parser has to say are fixed phrases, without any of the text.
        problem = getattr(error, "problem", None) or getattr(error, "reason", "it cannot be read")
        raise YamlError(f"the rendered text is not valid YAML{line}: {problem}") from None


def flat_map(raw: bytes) -> dict[str, str]:
    """A map of keys to scalars, all as text. An empty text is an empty map."""
    entries = load(raw)
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise YamlError("the rendered text must be a YAML map of keys and values")
    return {key: _scalar_text(key, value) for key, value in entries.items()}


def float32_text(value: float) -> str:
    """A float as the Go libraries write it where text is wanted: rounded to 32 bits, with the fewest digits."""
    try:
        narrow = _as_float32(value)
    except OverflowError:
        narrow = math.copysign(math.inf, value)
    if not math.isfinite(narrow):
        return format_float(narrow)
    short = next((text for text in (f"{narrow:.{n}e}" for n in range(9)) if _as_float32(float(text)) == narrow), None)
    return format_float(float(short) if short else narrow)


def _scalar_text(key: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float32_text(value)
        case str():
            return value
        case _:
            raise YamlError(f"key {key} must be a single value, not a map or a list")


def _as_float32(value: float) -> float:
    narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrow


class _Builder:
    """Events of the parser -> plain values."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._nodes = 0

    def document(self) -> Any:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                return self._value(next(self._events), 0)
        return None

    def _value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        before = self._nodes
        self._count(1)
        if depth > MAX_DEPTH:
            raise YamlError(f"the rendered YAML is nested more than {MAX_DEPTH} levels deep")
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
            line = event.start_mark.line + 1
            raise YamlError(f"the rendered YAML, line {line}, has an alias without an anchor before it")
        self._count(self._sizes[event.anchor])
        return deepcopy(self._anchors[event.anchor])

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise YamlError(f"the rendered YAML has more than {MAX_NODES} values")

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
            raise YamlError(f"the rendered YAML, line {line}: only maps can be merged with <<")
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
            text = float32_text(key)
            return _KEY_INFINITIES.get(text, text)
        case _:
            raise YamlError(f"the rendered YAML, line {line}: a key must be text, a number or a boolean")


def _scalar(event: Any) -> Any:
    tag = (event.tag or "").removeprefix(_TAG)
    if event.implicit[0] and tag in {"", "!"}:
        return _plain(event.value)
    line = event.start_mark.line + 1
    match tag:
        case "binary":
            return _binary(event.value, line)
        case "int" | "bool" | "null" | "float":
            value = _plain(event.value)
            return float(value) if tag == "float" and type(value) is int else _typed(value, tag, line)
        case _:
            return event.value


def _typed(value: Any, tag: str, line: int) -> Any:
    expected = {"int": int, "bool": bool, "null": type(None), "float": float}[tag]
    if type(value) is not expected:
        raise YamlError(f"the rendered YAML, line {line}: the value is not a !!{tag}")
    return value


def _binary(text: str, line: int) -> str:
    try:
        return decode("Base64", text.encode()).decode()
    except (DecodingError, UnicodeDecodeError):
        raise YamlError(f"the rendered YAML, line {line}: !!binary must be Base64 of text") from None


def _plain(text: str) -> Any:
    """A scalar without quotes and without a tag."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return float(text) if _FLOAT.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    digits = text.replace("_", "")
    whole = _whole_number(digits)
    if whole is not None:
        return whole
    return float(digits) if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)) else text


def _whole_number(digits: str) -> int | None:
    """What fits into 64 bits; a larger number is a float."""
    found = _INTEGER.fullmatch(digits)
    if found is None or found.lastgroup is None:
        return None
    value = int(found["sign"] + found[found.lastgroup], _BASES[found.lastgroup])
    fits = -(2**63) <= value < 2**64 if not found["sign"] else -(2**63) <= value < 2**63
    return value if fits else None
