r"""JSONPath as printer columns use it: `.status.conditions[?(@.type=="Ready")].status`.

A path is compiled once into steps; each maps the values found so far to those one step on. Understood are fields
(`.a`, `.example\.com/b`, `['a']`), items (`[0]`, `[-1]`, `[1:3]`, `[*]`), `.*`, `..`, unions (`[0,2]`) and filters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kuberun.meta import JsonObject

Step = Callable[[list[Any]], list[Any]]


def jsonpath_reader(path: str) -> Callable[[JsonObject], Any]:
    """A function that gives the first value at the path, or None. Raises ValueError for a path that makes no sense."""
    steps = _compiled(path)

    def read(obj: JsonObject) -> Any:
        try:
            found = _walk(steps, [obj])
        except (LookupError, TypeError):
            return None
        return found[0] if found else None

    return read


_FIELD: Final = re.compile(r"\.((?:\\.|[^\\ \t\r\n.,\[\]$@{}])*)", re.DOTALL)
_BRACKET: Final = re.compile(r"\[([^\]\n]*)\]")
_FILTER: Final = re.compile(r"""\[\?\(((?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^"')\n])*)\)\]""")
_QUOTED: Final = re.compile(r""""((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'""")
_WORD: Final = re.compile(r"[+-]?[0-9][0-9.]*|[A-Za-z_][A-Za-z0-9_]*")
_SLICE: Final = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def _compiled(path: str) -> tuple[Step, ...]:
    steps: list[Step] = []
    at = 0
    while at < len(path):
        at, step = _next_step(path, at)
        if step is not None:
            steps.append(step)
    return tuple(steps)


def _next_step(path: str, at: int) -> tuple[int, Step | None]:
    """The position after one step, and the step; None for what only takes place, such as `$`."""
    if path[at] in " @$":
        return at + 1, None
    if path.startswith("..", at):
        return at + (1 if path[at + 2 : at + 3].isalnum() else 2), _descend
    if found := _FILTER.match(path, at):
        return found.end(), _filter(found[1])
    if path.startswith("[?(", at):
        raise ValueError(f"unterminated filter in {path}")
    for pattern, make in ((_FIELD, _field), (_BRACKET, _bracket), (_WORD, _constant)):
        if found := pattern.match(path, at):
            return found.end(), make(found[found.re.groups])
    if found := _QUOTED.match(path, at):
        text = found[1] if found[1] is not None else found[2]
        return found.end(), _give(re.sub(r"\\(.)", r"\1", text))
    raise ValueError(f"unrecognized character {path[at]!r} in {path}")


def _walk(steps: Sequence[Step], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step(values)
    return values


def _field(name: str) -> Step:
    if name == "*":
        return _each
    key = name.replace("\\", "")
    return lambda values: [value[key] for value in values if isinstance(value, dict) and key in value]


def _bracket(text: str) -> Step:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1:
        options = [_bracket(part) for part in parts]
        return lambda values: [found for option in options for found in option(values)]
    if text == "*":
        text = ":"
    if len(text) > 1 and text[0] == text[-1] == "'":
        steps = _compiled("." + text[1:-1])
        return lambda values: _walk(steps, values)
    found = _SLICE.fullmatch(text)
    if found is None or text == "":
        raise ValueError(f"invalid array index {text}")
    start, *rest = (None if part in (None, "", ":") else int(part.lstrip(":")) for part in found.groups())
    if found[2] is None and start is not None:
        return partial(_item, start)
    stop, stride = rest
    if stride is not None and stride <= 0:
        raise ValueError(f"step must be > 0 in [{text}]")
    return partial(_items, slice(start, stop, stride))


def _item(index: int, values: list[Any]) -> list[Any]:
    return [_list(value)[index] for value in values if value is not None]


def _items(where: slice, values: list[Any]) -> list[Any]:
    return [item for value in values if value is not None for item in _list(value)[where]]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _each(values: list[Any]) -> list[Any]:
    return [item for value in values for item in _children(value)]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _descend(values: list[Any]) -> list[Any]:
    """Every map and list at any depth, parents first."""
    result: list[Any] = []
    for value in values:
        if children := _children(value):
            result += [value, *_descend(children)]
    return result


def _constant(word: str) -> Step:
    match word:
        case "true" | "false":
            return _give(word == "true")
        case _ if word[0].isalpha() or word[0] == "_":
            raise ValueError(f"unrecognized identifier {word}")
        case _:
            return _give(float(word) if "." in word else int(word))


def _give(value: Any) -> Step:
    return lambda values: [value] * len(values)


def _filter(text: str) -> Step:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        wanted = _compiled(text)
        return lambda values: [item for value in values for item in _list(value) if _exists(wanted, item)]
    if found[2] not in _OPERATORS:
        raise ValueError(f"unrecognized filter operator {found[2]}")
    compare, left, right = _OPERATORS[found[2]], _compiled(found[1]), _compiled(found[3])

    def step(values: list[Any]) -> list[Any]:
        return [item for value in values for item in _list(value) if _passes(compare, left, right, item)]

    return step


def _exists(steps: Sequence[Step], item: Any) -> bool:
    try:
        return bool(_walk(steps, [item]))
    except (LookupError, TypeError):
        return False


def _passes(compare: Callable[[Any, Any], bool], left: Sequence[Step], right: Sequence[Step], item: Any) -> bool:
    """Values of different kinds cannot be compared: then the whole path has no result."""
    lefts, rights = _walk(left, [item]), _walk(right, [item])
    if not lefts or not rights:
        return False
    if len(lefts) > 1 or len(rights) > 1 or type(lefts[0]) is not type(rights[0]):
        raise TypeError("cannot compare")
    return compare(lefts[0], rights[0])
