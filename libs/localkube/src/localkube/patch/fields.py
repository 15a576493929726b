"""Sets of fields, in the form FieldsV1 has on the wire: nested dicts, so that nothing is converted in between.

    {"f:data": {"f:a": {}}, "f:spec": {".": {}, "f:replicas": {}}}     holds .data.a, .spec and .spec.replicas

A key is one step of a path: `f:` a field, `k:` the item of a list by its key fields, `v:` the item of a set by its
value, `i:` an item by index. An empty dict is a member without children; `.` marks a member that has children. The root
set is the exception: there, empty means nothing. Sets are never edited in place: results share parts with operands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from localkube.patch.types import SchemaType

FieldSet = dict[str, Any]

SELF: Final = "."
LEAF: Final[FieldSet] = {}
_ALONE: Final[FieldSet] = {SELF: LEAF}
"""A leaf written out, which spares the operations below a case for leaves."""


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    result = dict(left)
    for step, other in right.items():
        mine = result.get(step)
        if mine is None or step == SELF or mine is other:
            result[step] = other
        else:
            result[step] = joined(mine, other)
    return result


def joined(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the union of two nodes: all fields at one path and below it."""
    return _shortest(union(left or _ALONE, right or _ALONE))


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, mine in left.items():
        other = right.get(step)
        if other is None:
            continue
        if mine == other:
            result[step] = mine
        elif common := intersection(mine or _ALONE, other or _ALONE):
            result[step] = _shortest(common)
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the members of left that are not members of right. A member of right does not remove its children."""
    if not right:
        return left
    result: FieldSet = {}
    for step, mine in left.items():
        other = right.get(step)
        if other is None:
            result[step] = mine
        elif mine != other and (rest := difference(mine or _ALONE, other or _ALONE)):
            result[step] = _shortest(rest)
    return result


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """Do as `difference`, but a member of right also removes everything below it."""
    if not right:
        return left
    result: FieldSet = {}
    for step, mine in left.items():
        other = right.get(step)
        if other is None or (not mine and other and SELF not in other):
            result[step] = mine
        elif step != SELF and other and SELF not in other and (rest := without(mine, other)):
            result[step] = _shortest(rest)
    return result


def with_named_parents(fields: FieldSet, kind: SchemaType | None) -> FieldSet:
    """Also include every declared field with a member below it: `.spec` for `.spec.replicas`, but not keys of maps."""
    result: FieldSet = {}
    for step, below in fields.items():
        if not below:
            result[step] = below
            continue
        inner, named = _below(kind, step)
        parents = with_named_parents(below, inner)
        result[step] = {SELF: LEAF, **parents} if named and SELF not in parents else parents
    return result


def _below(kind: SchemaType | None, step: str) -> tuple[SchemaType | None, bool]:
    """Return the type one step down, and whether the schema names that step."""
    if kind is None:
        return None, False
    if step[0] == "f" and kind.map is not None:
        named = kind.map.fields.get(step[2:])
        return (kind.map.element, False) if named is None else (named, True)
    if step[0] == "k" and kind.list is not None:
        return kind.list.element, False
    return None, False


def fitted(fields: FieldSet, kind: SchemaType) -> FieldSet:
    """Return the set after a schema change: fields that became atomic are held as a whole.

    `fields` itself if nothing changed.
    """
    result = fields
    for step, below in fields.items():
        if not below:
            continue
        inner = _child_type(kind, step)
        if inner is None or (inner.map is not None and inner.map.flat):
            continue
        fit = LEAF if _is_atomic(inner) else fitted(below, inner)
        if fit is not below:
            if result is fields:
                result = dict(fields)
            result[step] = fit
    return result


def _child_type(kind: SchemaType, step: str) -> SchemaType | None:
    if kind.map is not None:
        if kind.map.deduced:
            return None
        return kind.map.fields.get(step[2:]) or kind.map.element
    return kind.list.element if kind.list is not None else None


def _is_atomic(kind: SchemaType) -> bool:
    if kind.map is not None:
        return kind.map.atomic and not kind.map.deduced
    return kind.list is not None and kind.scalar is None and kind.list.atomic


def ordered(fields: FieldSet) -> FieldSet:
    """Return the set with its steps in the order the API shows them."""
    return {step: ordered(fields[step]) if fields[step] else LEAF for step in sorted(fields)}


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield every member as text such as `.spec.ports[port=80].name`: members of one level first, then those below."""
    steps = sorted((step for step in fields if step != SELF), key=_rank)
    for step in steps:
        if not fields[step] or SELF in fields[step]:
            yield prefix + step_text(step)
    for step in steps:
        if fields[step]:
            yield from paths(fields[step], prefix + step_text(step))


def _rank(step: str) -> tuple[str, Any]:
    """Return the sort key: fields come first, then items by key and by value; numbers sort as numbers, before text."""
    match step[0]:
        case "k":
            return "k", [(name, _value_rank(value)) for name, value in json.loads(step[2:]).items()]
        case "v":
            return "v", _value_rank(json.loads(step[2:]))
        case kind:
            return kind, step


def _value_rank(value: Any) -> tuple[int, Any]:
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
        case _:
            return 3, json.dumps(value)


def step_text(step: str) -> str:
    rest = step[2:]
    match step[0]:
        case "f":
            return "." + rest
        case "k":
            pairs = json.loads(rest)
            return "[" + ",".join(f"{name}={_value_text(pairs[name])}" for name in pairs) + "]"
        case "v":
            return f"[={_value_text(json.loads(rest))}]"
        case _:
            return f"[{rest}]"


def value_step(value: Any) -> str:
    """Return the step to an item of a set."""
    return "v:" + _encoded(value)


def key_step(keys: dict[str, Any]) -> str:
    """Return the step to an item of a list of maps."""
    return "k:" + _encoded(dict(sorted(keys.items())))


def checked(fields: Any) -> FieldSet:
    """Return a set that a client sent, in canonical form. Steps of an unknown kind are dropped.

    Raises ValueError or TypeError for anything that is not a set of fields.
    """
    if not isinstance(fields, dict):
        raise TypeError("a set of fields is a map")
    result: FieldSet = {}
    for step, below in fields.items():
        if step == SELF:
            result[SELF] = LEAF
            continue
        if len(step) < 2:
            raise ValueError(f"key must be 2 characters long: {step}")
        if step[1] != ":":
            raise ValueError(f"missing colon: {step}")
        if step[0] in "fkvi":
            result[_canonical(step)] = _shortest(checked(below))
    return result


@lru_cache(maxsize=4096)
def _canonical(step: str) -> str:
    match step[0]:
        case "k":
            keys = json.loads(step[2:])
            if not isinstance(keys, dict):
                raise TypeError(f"not the key of a list item: {step}")
            return key_step(keys)
        case "v":
            return value_step(json.loads(step[2:]))
        case "i":
            return f"i:{int(step[2:])}"
        case _:
            return step


def _shortest(fields: FieldSet) -> FieldSet:
    return LEAF if len(fields) == 1 and SELF in fields else fields


def _value_text(value: Any) -> str:
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def _encoded(value: Any) -> str:
    """Return JSON as the API writes it inside a step: compact, with HTML characters escaped."""
    text = msgspec.json.encode(value).decode()
    return text.translate(_ESCAPES) if any(sign in text for sign in "&<>\u2028\u2029") else text


_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "&<>\u2028\u2029"}
