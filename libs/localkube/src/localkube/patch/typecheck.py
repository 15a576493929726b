"""Type checks: whether a value fits its Type, and if not, where and why, with the texts of the API server.

`fits` is the fast check; `problems` runs only after it failed.
"""

from __future__ import annotations

from typing import Any, Final

from localkube.patch.gotext import literal, plain_pointer, quoted, type_name
from localkube.patch.types import DEDUCED, UNTYPED, ListType, MapType, Scalar, SchemaType


class MismatchError(Exception):
    """A value that does not fit its type; `problems` says where and why."""


def fits(value: Any, kind: SchemaType) -> bool:
    """Return whether a value fits; duplicate items of an atomic list are allowed."""
    if value is None or kind is UNTYPED or kind is DEDUCED:
        return True
    if type(value) is str:
        return kind.scalar in TEXTUAL
    if type(value) is dict:
        return kind.map is not None and _map_fits(value, kind.map)
    if type(value) is list:
        if kind.list is None or (not kind.list.atomic and _item_problems(value, kind.list)):
            return False
        element = kind.list.element
        return all(fits(item, element) for item in value)
    return kind.scalar is not None and not _scalar_problem(value, kind.scalar)


TEXTUAL: Final = ("string", "untyped")


def _map_fits(value: dict[str, Any], kind: MapType) -> bool:
    fields, element = kind.fields, kind.element
    for name, item in value.items():
        inner = fields.get(name, element)
        if inner is None or not fits(item, inner):
            return False
    return True


def item_keys(item: Any, kind: ListType) -> dict[str, Any]:
    """Return the fields, with their defaults, that identify an item of a list of maps."""
    if not isinstance(item, dict):
        raise MismatchError
    result = {}
    for name in kind.keys:
        if name in item:
            result[name] = item[name]
        elif name in kind.defaults:
            result[name] = kind.defaults[name]
    if not result:
        raise MismatchError
    return result


def report(value: Any, kind: SchemaType) -> str:
    """Return all problems as one text: a single one inline, several as a list."""
    found = problems(value, kind, "")
    if len(found) == 1:
        return found[0]
    return "\n".join(["errors:", *("  " + problem for problem in found)])


def problems(value: Any, kind: SchemaType, path: str) -> list[str]:
    """Return every problem as `path: text`."""
    match kind.shape_of(value):
        case "map" if kind.map is not None:
            return _map_problems(value, kind.map, path)
        case "list" if kind.list is not None:
            return _list_problems(value, kind.list, path)
        case _:
            text = _scalar_problem(value, kind.scalar or "untyped") if value is not None else ""
            return [_at(path, text)] if text else []


def _map_problems(value: Any, kind: MapType, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [_at(path, f"expected map, got {plain_pointer(value)}")]
    result: list[str] = []
    for name in sorted(value):
        inner = kind.fields.get(name, kind.element)
        if inner is None:
            result.append(_at(f"{path}.{name}", "field not declared in schema"))
            break
        result += problems(value[name], inner, f"{path}.{name}")
    return result


def _list_problems(value: Any, kind: ListType, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        return [_at(path, f"expected list, got {plain_pointer(value)}")]
    if kind.atomic:
        steps = [f"[{index}]" for index in range(len(value))]
    else:
        found = _item_problems(value, kind)
        if found:
            return [_at(path, text) for text in found]
        steps = [_item_text(item, kind) for item in value]
    return [
        problem
        for step, item in zip(steps, value, strict=True)
        for problem in problems(item, kind.element, path + step)
    ]


def _item_problems(value: list[Any], kind: ListType) -> list[str]:
    """Return items without identity, and items with the same one."""
    seen: set[str] = set()
    result: list[str] = []
    for index, item in enumerate(value):
        text = _identity_problem(item, kind)
        if text:
            return [*result, f"element {index}: {text}"]
        step = _item_text(item, kind)
        if step in seen:
            result.append(f"duplicate entries for key {step}")
        seen.add(step)
    return result


def _identity_problem(item: Any, kind: ListType) -> str:
    match item:
        case None if kind.keys:
            return "associative list with keys may not have a null element"
        case None:
            return "associative list without keys has an element that's an explicit null"
        case list() if not kind.keys:
            return "not supported: associative list with lists as elements"
        case dict():
            return _key_problem(item, kind) if kind.keys else _MAP_IN_SET
        case _:
            return "associative list with keys may not have non-map elements" if kind.keys else ""


_MAP_IN_SET: Final = "associative list without keys has an element that's a map type"


def _key_problem(item: dict[str, Any], kind: ListType) -> str:
    if any(name in item or name in kind.defaults for name in kind.keys):
        return ""
    names = " ".join(f'"{name}"' for name in kind.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{names}] "
        "(and doesn't have default values for any key fields)"
    )


def _item_text(item: Any, kind: ListType) -> str:
    if not kind.keys:
        return f"[={quoted(item)}]"
    keys = item_keys(item, kind)
    return "[" + ",".join(f"{name}={quoted(keys[name])}" for name in sorted(keys)) + "]"


def _scalar_problem(value: Any, scalar: Scalar) -> str:
    match scalar:
        case "numeric" if isinstance(value, bool) or not isinstance(value, int | float):
            return f"expected numeric (int or float), got {type_name(value)}"
        case "string" if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{literal(value)}}}"
        case "boolean" if not isinstance(value, bool):
            return f"expected boolean, got {plain_pointer(value)}"
        case "untyped" if not isinstance(value, str | bool | int | float):
            return f"expected any scalar, got {plain_pointer(value)}"
    return ""


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text
