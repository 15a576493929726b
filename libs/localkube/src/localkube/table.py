"""Table and PartialObjectMetadata: objects for people and for metadata-only clients; JSONPath of printer columns.

The kind defines the columns. Cells of a custom kind are converted to the type of their column; those of a built-in kind
are shown unchanged. Times become ages here, because an age needs the current time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from kubebase.clock import parse_rfc3339
from kubebase.meta import JsonObject
from localkube.model import Column, ServedKind

# --- JSONPath as the printer columns of our CRDs use it: `.status.conditions[?(@.type=="Ready")].status` --------------
# A path is compiled once into steps; each maps the values found so far to those one step on. A path may have fields
# (`.a`, `.example\.com/b`), all members of an object or list (`.*`), items (`[0]`, `[-1]`, `[*]`) and filters that
# compare a field with a text (`==`, `!=`).


_Step = Callable[[list[Any]], list[Any]]

_PARTS: Final = re.compile(
    r"""\.(?P<members>\*)
      | \.(?P<field>(?:\\.|[^\\ \t\r\n.,*\[\]$@{}])+)
      | \[(?P<index>-?[0-9]{1,9}|\*)\]
      | \[\?\(\s*@(?P<left>(?:\.[A-Za-z0-9_-]+)+)\s*(?P<operator>==|!=)
        \s*(?P<quote>["'])(?P<text>[^"'\\]*)(?P=quote)\s*\)\]""",
    re.VERBOSE,
)


def jsonpath_reader(path: str) -> Callable[[JsonObject], Any]:
    """Compile a path to a function that gives the first value there, or None. ValueError if it is not supported."""
    steps = _compiled(path)

    def read(obj: JsonObject) -> Any:
        values: list[Any] = [obj]
        for step in steps:
            values = step(values)
        return values[0] if values else None

    return read


def _compiled(path: str) -> list[_Step]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        part = _PARTS.match(path, at)
        if part is None:
            raise ValueError(f"unsupported JSONPath {path!r} at character {at}")
        steps.append(_step(part))
        at = part.end()
    return steps


def _step(part: re.Match[str]) -> _Step:
    if part["members"] is not None:
        return _members
    if part["field"] is not None:
        return _field(part["field"].replace("\\", ""))
    if part["index"] is not None:
        return _items(part["index"])
    wanted, text = part["operator"] == "==", part["text"]
    left = _compiled(part["left"])

    def passes(item: Any) -> bool:
        found = [item]
        for step in left:
            found = step(found)
        return bool(found) and (found[0] == text) is wanted

    return lambda values: [item for value in values if isinstance(value, list) for item in value if passes(item)]


def _field(key: str) -> _Step:
    return lambda values: [value[key] for value in values if isinstance(value, dict) and key in value]


def _members(values: list[Any]) -> list[Any]:
    return [
        member
        for value in values
        if isinstance(value, dict | list)
        for member in (value.values() if isinstance(value, dict) else value)
    ]


def _items(index: str) -> _Step:
    if index == "*":
        return lambda values: [item for value in values if isinstance(value, list) for item in value]
    at = int(index)
    return lambda values: [value[at] for value in values if isinstance(value, list) and -len(value) <= at < len(value)]


__all__ = [
    "Include",
    "human_duration",
    "jsonpath_reader",
    "partial_metadata",
    "partial_metadata_list",
    "table",
    "without_headers",
]

Include = Literal["Metadata", "Object", "None"]


def table(
    objs: Iterable[JsonObject], kind: ServedKind, *, include: Include, now: datetime, list_meta: JsonObject
) -> JsonObject:
    """Return a meta.k8s.io/v1 Table with one row for each object.

    `list_meta` is the metadata of the list or of the object.
    """
    columns = _columns(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": [_definition(column, kind) for column in columns],
        "rows": [
            {"cells": [_cell(column, kind, obj, now) for column in columns], "object": _included(obj, include)}
            for obj in objs
        ],
    }


def without_headers(shown: JsonObject) -> JsonObject:
    """Drop the column definitions: a watch sends them in its first event only."""
    return {**shown, "columnDefinitions": None}


def partial_metadata(obj: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def partial_metadata_list(objs: Iterable[JsonObject], list_meta: JsonObject) -> JsonObject:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "items": [partial_metadata(obj) for obj in objs],
    }


def human_duration(seconds: float) -> str:
    """Format a time span in at most two units, as kubectl does: 5m3s, 3h20m, 12d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours = whole // 60, whole // 3600
    days, years = hours // 24, hours // 24 // 365
    if minutes < 10:
        return _units(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _units(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _created(obj: JsonObject) -> Any:
    return obj["metadata"].get("creationTimestamp")


_NAME: Final = Column(
    "Name",
    "string",
    lambda obj: obj["metadata"]["name"],
    format="name",
    description="Name of the object, unique among the objects of its kind in its namespace.",
)
_CREATION: Final = "When the server created the object."
_AGE: Final = Column("Age", "date", _created, description=_CREATION)
_CREATED_AT: Final = Column("Created At", "date", _created, description=_CREATION)


def _columns(kind: ServedKind) -> list[Column]:
    """Return the columns. The name comes first, unless the kind places it elsewhere."""
    columns = list(kind.columns) or [_AGE if kind.custom else _CREATED_AT]
    return columns if any(column.format == "name" for column in columns) else [_NAME, *columns]


def _definition(column: Column, kind: ServedKind) -> JsonObject:
    """Build a column definition; built-in kinds declare an age as string."""
    is_age = column.type == "date" and not kind.custom and column is not _CREATED_AT
    return {
        "name": column.name,
        "type": "string" if is_age else column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _cell(column: Column, kind: ServedKind, obj: JsonObject, now: datetime) -> Any:
    value = column.read(obj)
    if column is _NAME or column is _CREATED_AT:
        return value
    if not kind.custom:
        return _age(value or "", now) if column.type == "date" else value
    return None if value is None else _shaped(column.type, value, now)


def _shaped(kind: str, value: Any, now: datetime) -> Any:
    """Return a value in the type of its column, or None."""
    match kind, value:
        case "string", _:
            return _text(value)
        case "date", str():
            return _age(value, now)
        case ("integer", bool()) | ("number", bool()):
            return None
        case "integer", int() | float():
            return int(value)
        case "number", int() | float():
            return value
        case "boolean", bool():
            return value
        case _:
            return None


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case dict() | list():
            text = msgspec.json.encode(value, order="sorted").decode()
            return text.translate(_HTML)
        case _:
            return str(value)


_HTML: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _age(value: str, now: datetime) -> str:
    if not value:
        return "<unknown>"
    if _RFC3339.fullmatch(value) is None:
        return "<invalid>"
    try:
        moment = parse_rfc3339(value)
    except ValueError:
        return "<invalid>"
    return human_duration((now - moment).total_seconds())


def _included(obj: JsonObject, include: Include) -> JsonObject | None:
    match include:
        case "Metadata":
            return partial_metadata(obj)
        case "Object":
            return obj
        case "None":
            return None
