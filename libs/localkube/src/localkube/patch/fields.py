"""Sets of fields, in the form FieldsV1 has on the wire (nested dicts, not converted in between), and their managers.

    {"f:data": {"f:a": {}}, "f:spec": {".": {}, "f:replicas": {}}}     holds .data.a, .spec and .spec.replicas

A key is one step of a path: `f:` a field, `k:` the item of a list by its key fields, `v:` the item of a set by its
value, `i:` an item by index. An empty dict is a member without children; `.` marks a member that has children. The root
set is the exception: there, empty means nothing. Sets are never edited in place: results share parts with operands.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from kubebase.clock import parse_rfc3339, rfc3339
from kubebase.meta import JsonObject
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


# --- metadata.managedFields: the fields of each manager, read into a dict and written back in the API's order ---------

Operation = Literal["Apply", "Update"]

MAX_UPDATERS: Final = 10
_BUCKET: Final = "ancient-changes"
"""Holds the fields of the oldest updaters once there are more than the maximum."""


class Manager(NamedTuple):
    """Identity of one entry. An applier is the same across versions; an updater is one for each version it uses."""

    name: str
    operation: Operation
    api_version: str
    subresource: str

    @property
    def sort_text(self) -> str:
        parts = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        if not self.api_version:
            del parts["apiVersion"]
        if self.subresource:
            parts["subresource"] = self.subresource
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    @property
    def described(self) -> str:
        """Return the manager's name in conflicts."""
        text = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            text += f" with subresource {json.dumps(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Holding:
    """The fields of one manager in one API version. `raw` is the stored entry it was read from, if any."""

    api_version: str
    fields: FieldSet
    time: str = ""
    raw: JsonObject | None = None


Managed = dict[Manager, Holding]


def applier(name: str, subresource: str) -> Manager:
    return Manager(name or "unknown", "Apply", "", subresource)


def updater(name: str, api_version: str, subresource: str) -> Manager:
    return Manager(name or "unknown", "Update", api_version, subresource)


def entries_of(obj: JsonObject | None) -> Any:
    """Return the managedFields of an object; None if it has none."""
    metadata = obj.get("metadata") if obj else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def stored(obj: JsonObject | None, kind: SchemaType) -> Managed:
    """Return the managers of a stored object, converted to the current schema. Stored entries need no other check."""
    result: Managed = {}
    for entry in entries_of(obj) or ():
        fields = entry.get("fieldsV1") or {}
        fit = fitted(fields, kind)
        holding = Holding(entry["apiVersion"], fit, entry.get("time") or "", entry if fit is fields else None)
        result[_identity(entry)] = holding
    return result


def sent(entries: list[Any], kind: SchemaType) -> Managed:
    """Return the managers that a client wrote itself.

    Raises ValueError or TypeError for anything that is not a list of entries.
    """
    result: Managed = {}
    for index, entry in enumerate(entries):
        if entry.get("operation") not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not entry.get("apiVersion"):
            raise ValueError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r} in managed fields entry {index}")
        time = entry.get("time")
        fields = fitted(checked(entry.get("fieldsV1") or {}), kind)
        result[_identity(entry)] = Holding(entry["apiVersion"], fields, rfc3339(parse_rfc3339(time)) if time else "")
    return result


def _identity(entry: JsonObject) -> Manager:
    operation: Operation = entry["operation"]
    version = "" if operation == "Apply" else entry["apiVersion"]
    return Manager(entry.get("manager") or "", operation, version, entry.get("subresource") or "")


def is_reset(entries: Any) -> bool:
    """Return whether a client requests to forget all managers, with an empty list or one empty entry."""
    return isinstance(entries, list) and (not entries or (len(entries) == 1 and not entries[0]))


def encoded(managed: Managed) -> list[JsonObject]:
    """Return the entries as stored: appliers first, then by time, name, version and subresource."""
    order = sorted(
        managed.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0].name, pair[1].api_version, pair[0])
    )
    return [_entry(manager, holding) for manager, holding in order]


def _entry(manager: Manager, holding: Holding) -> JsonObject:
    if holding.raw is not None:
        return holding.raw
    entry: JsonObject = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": holding.api_version,
        "time": holding.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": ordered(holding.fields),
        "subresource": manager.subresource,
    }
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


def held(holding: Holding, fields: FieldSet) -> Holding:
    """Return the holding with other fields."""
    return holding if fields is holding.fields else replace(holding, fields=fields, raw=None)


def drop_unserved(managed: Managed, served: Collection[str]) -> None:
    """Forget the fields held in versions that no longer exist. Without versions, keep all."""
    if not served:
        return
    for manager in [manager for manager, holding in managed.items() if holding.api_version not in served]:
        del managed[manager]


def cap_updaters(managed: Managed) -> None:
    """Merge the oldest updaters, version by version, until there are at most MAX_UPDATERS."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return
    updaters.sort(key=lambda manager: (managed[manager].time, manager.sort_text))
    first: dict[str, Manager] = {}
    for manager in updaters:
        if excess <= 0:
            return
        version = managed[manager].api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = updater(_BUCKET, version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(first[version])
        newest = managed.pop(manager)
        fields = union(newest.fields, managed[bucket].fields)
        managed[bucket] = Holding(version, fields, newest.time)
        excess -= 1
