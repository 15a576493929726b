"""YAML to Go values: the events of libyaml, resolved as go-yaml v2 does, then converted as by JSON.

Every number becomes a float64, every key a string; aliases are copied, within a limit. It does not use the reader of
`kubebase.yamlvalues`, because its errors are values of templates and must be those of go-yaml: what is wrong first, in
which line, and with which key.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from gotmpl.floats import format_float32, format_json
from gotmpl.formatting import Spec, format_value
from gotmpl.values import Value
from kubebase.yamlscalars import BINARY, FLOAT, MERGE, NULL, STR, TIMESTAMP, TagError, resolve
from kubebase.yamlvalues import key_text

MAX_NODES = 200_000
MAX_DEPTH = 200
_TOO_DEEP = "error converting YAML to JSON: yaml: exceeded max depth"
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_INVALID = re.compile("[\udc80-\udcff]")
_ESCAPE = re.compile(r"\\.")


class YamlReadError(ValueError):
    """Why a text is not YAML, in go-yaml's words."""


def read(text: str) -> Any:
    """Return the first document as Go values with JSON's types only."""
    if _INVALID.search(text):
        raise YamlReadError("error converting YAML to JSON: yaml: invalid leading UTF-8 octet")
    if _UNREADABLE.search(text):
        raise YamlReadError("error converting YAML to JSON: yaml: control characters are not allowed")
    import yaml

    try:
        events = _first_document(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), text, yaml)
        return _json(_Composer(iter(events)).document(), _Budget())
    except yaml.MarkedYAMLError as exc:
        raise YamlReadError(f"error converting YAML to JSON: yaml: {_where(exc, yaml)}{exc.problem}") from None
    except TagError as exc:
        raise YamlReadError(f"error converting YAML to JSON: {exc}") from None


def _slash_escaped(scalar: Any, text: str) -> bool:
    r"""Return whether a scalar contains a `\/`: JSON and libyaml support that escape, but go-yaml v2 does not."""
    return "\\/" in text and "\\/" in _ESCAPE.findall(text, scalar.start_mark.index, scalar.end_mark.index)


def _where(error: Any, yaml: Any) -> str:
    """Return the line that go-yaml names: that of the problem if it is not the first, else that of the context."""
    line: int = error.problem_mark.line if error.problem_mark else 0
    if line:
        line += isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark:
        line = error.context_mark.line
    return f"line {line}: " if line else ""


def _first_document(events: Iterator[Any], text: str, yaml: Any) -> list[Any]:
    """Read the whole document first, so that syntax errors are reported before semantic ones."""
    out: list[Any] = []
    anchors: set[str] = set()
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:  # checked here, because libyaml gets slower with each level
            raise YamlReadError(_TOO_DEEP)
        match type(event).__name__:
            case "DocumentEndEvent":
                break
            case "AliasEvent" if event.anchor not in anchors:
                raise YamlReadError(f"error converting YAML to JSON: yaml: unknown anchor '{event.anchor}' referenced")
            case "ScalarEvent" if event.style == '"' and _slash_escaped(event, text):
                raise yaml.scanner.ScannerError(
                    "while parsing a quoted scalar", event.start_mark, "found unknown escape character", event.end_mark
                )
            case _:
                anchors.add(getattr(event, "anchor", None) or "")
        out.append(event)
    return out


class _Mapping(list[tuple[Any, Any]]):
    """Pairs in the order of the text, with keys not yet converted to text."""


class _Composer:
    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Any] = {}
        self._open: set[str] = set()

    def document(self) -> Any:
        for event in self._events:
            kind = type(event).__name__
            if kind == "StreamEndEvent":
                return None
            if kind == "DocumentStartEvent":
                return self._node(next(self._events), 0)
        return None

    def _node(self, event: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise YamlReadError(_TOO_DEEP)
        anchor = event.anchor
        match type(event).__name__:
            case "AliasEvent":
                return self._alias(anchor)
            case "ScalarEvent":
                value: Any = _scalar(event)
                if anchor:
                    self._anchors[anchor] = value
                return value
            case "SequenceStartEvent":
                return self._collection(anchor, [], self._sequence, depth)
            case _:
                return self._collection(anchor, _Mapping(), self._mapping, depth)

    def _collection(self, anchor: str | None, out: Any, fill: Callable[[Any, int], None], depth: int) -> Any:
        if anchor:
            self._anchors[anchor] = out
            self._open.add(anchor)
        fill(out, depth)
        self._open.discard(anchor or "")
        return out

    def _alias(self, anchor: str) -> Any:
        if anchor in self._open:
            raise YamlReadError(f"error converting YAML to JSON: yaml: anchor '{anchor}' value contains itself")
        return self._anchors[anchor]

    def _sequence(self, out: list[Any], depth: int) -> None:
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            out.append(self._node(event, depth + 1))

    def _mapping(self, out: _Mapping, depth: int) -> None:
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            merges = _is_merge(event)
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if merges:
                _merge(out, value)
            else:
                out.append((key, value))


def _is_merge(event: Any) -> bool:
    if type(event).__name__ != "ScalarEvent" or event.value != "<<":
        return False
    return event.tag == MERGE or (not event.tag and event.implicit[0])


def _merge(out: _Mapping, value: Any) -> None:
    sources = value if type(value) is list else [value]
    for source in reversed(sources):
        if not isinstance(source, _Mapping):
            raise YamlReadError(
                "error converting YAML to JSON: yaml: map merge requires map or sequence of maps as the value"
            )
        out.extend(source)


def _scalar(event: Any) -> Any:
    tag = event.tag or ""
    if tag == "!":
        return event.value
    if not tag and not event.implicit[0]:
        return event.value
    found, value = resolve(tag, event.value)
    if found == BINARY:
        try:
            return base64.b64decode(event.value, validate=True).decode("utf-8", "surrogateescape")
        except ValueError:
            raise YamlReadError(
                "error converting YAML to JSON: yaml: !!binary value contains invalid base64 data"
            ) from None
    if found in {NULL, FLOAT}:
        return value
    return event.value if found in {TIMESTAMP, STR} else value


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_NODES

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise YamlReadError("error converting YAML to JSON: yaml: document contains excessive aliasing")


def _json(value: Any, budget: _Budget) -> Value:
    """Return a new tree with JSON's types."""
    budget.spend()
    match value:
        case _Mapping():
            return {_key(key, entry): _json(entry, budget) for key, entry in value}
        case list():
            return [_json(entry, budget) for entry in value]
        case bool() | None:
            return value
        case int():
            return float(value)
        case float():
            if not math.isfinite(value):
                shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
                raise YamlReadError(f"error converting YAML to JSON: json: unsupported value: {shown}")
            return float(format_json(value))
        case _:
            return re.sub("[\udc80-\udcff]", "\ufffd", value)


def _key(key: Any, entry: Any) -> str:
    if (text := key_text(key, float_key)) is not None:
        return text
    problem = f"yaml: invalid map key: {_shown(key)}"
    if key is None:
        problem = f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_shown(entry)}"
    raise YamlReadError(f"error converting YAML to JSON: {problem}")


def float_key(key: float) -> str:
    text = format_float32(key)
    return {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}.get(text, text)


def _shown(value: Any) -> str:
    """Return %#v of a value as go-yaml holds it."""
    match value:
        case None:
            return "<nil>"
        case _Mapping():
            pairs = ", ".join(f"{_inner(key)}:{_inner(entry)}" for key, entry in value)
            return f"map[interface {{}}]interface {{}}{{{pairs}}}"
        case list():
            return f"[]interface {{}}{{{', '.join(map(_inner, value))}}}"
        case _:
            return format_value(value, Spec().but(go_syntax=True))


def _inner(value: Any) -> str:
    return "interface {}(nil)" if value is None else _shown(value)
