r"""JSONPath as the printer columns of our CRDs use it: `.status.conditions[?(@.type=="Ready")].status`.

A path is compiled once into steps; each maps the values found so far to those one step on. A path may have fields
(`.a`, `.example\.com/b`), all members of an object or list (`.*`), items (`[0]`, `[-1]`, `[*]`) and filters that
compare a field with a text (`==`, `!=`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from kubebase.meta import JsonObject

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
