"""Walks over values guided by a Type: merge, compare, list the fields, remove fields.

These are the operations of server-side apply. None edits its arguments; results share unchanged parts with them, so
that `is` shows that a part did not change. Values must fit their type (see `types`) or be null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from localkube.patch.fields import LEAF, SELF, FieldSet, joined, key_step, value_step
from localkube.patch.types import DEDUCED, TEXTUAL, ListType, MapType, MismatchError, SchemaType, Shape, fits, item_keys


class Difference(NamedTuple):
    """Fields that exist afterwards and are new or different, and removed fields."""

    changed: FieldSet
    removed: FieldSet


def field_set(value: Any, kind: SchemaType) -> FieldSet:
    """Return every field that an applied configuration contains."""
    return _fields_below(value, kind, {}, _refuse_duplicate) or {}


def present_fields(value: Any, kind: SchemaType) -> FieldSet:
    """List the fields of an object that may hold several items of one key: those count as one field."""
    return _fields_below(value, kind, {}, _accept_duplicate) or {}


_OnDuplicate = Callable[[], None]


def _refuse_duplicate() -> None:
    raise MismatchError


def _accept_duplicate() -> None:
    pass


def _fields_below(value: Any, kind: SchemaType, node: FieldSet, on_duplicate: _OnDuplicate) -> FieldSet | None:
    """Return `node` with the fields below `value` added; LEAF for an atomic value; None if there are no fields."""
    if type(value) is dict:
        if kind.map is None:
            raise MismatchError
        if kind.map.atomic:
            return _as_whole(value, kind)
        _add_map_fields(value, kind.map, node, on_duplicate)
    elif type(value) is list:
        if kind.list is None:
            raise MismatchError
        if kind.list.atomic:
            return _as_whole(value, kind)
        _add_list_fields(value, kind.list, node, on_duplicate)
    else:
        return _as_whole(value, kind)
    return node or None


def _as_whole(value: Any, kind: SchemaType) -> FieldSet:
    if not fits(value, kind):
        raise MismatchError
    return LEAF


def _add_map_fields(value: dict[str, Any], kind: MapType, node: FieldSet, on_duplicate: _OnDuplicate) -> None:
    fields, element = kind.fields, kind.element
    for name, item in value.items():
        inner = fields.get(name)
        if type(item) is str and (inner or element or _NOTHING).scalar in TEXTUAL:
            node["f:" + name] = LEAF
        elif inner is not None:
            held = _fields_below(item, inner, {}, on_duplicate)
            if held is not None or item == {}:
                node["f:" + name] = held or LEAF
        elif element is None:
            raise MismatchError
        else:
            held = _fields_below(item, element, {SELF: LEAF}, on_duplicate)
            node["f:" + name] = LEAF if held is None or len(held) <= 1 else held


_NOTHING = SchemaType()
"""The type of fields that a schema does not declare; no value fits it."""


def _add_list_fields(value: list[Any], kind: ListType, node: FieldSet, on_duplicate: _OnDuplicate) -> None:
    for item in value:
        step = item_step(item, kind)
        if step in node:
            on_duplicate()
            node[step] = LEAF
            continue
        held = _fields_below(item, kind.element, {SELF: LEAF}, on_duplicate)
        node[step] = LEAF if held is None or len(held) <= 1 else held


def item_step(item: Any, kind: ListType) -> str:
    """Return the step to one item of a list that merges. Raises MismatchError for an item without identity."""
    if kind.keys:
        return key_step(item_keys(item, kind))
    if item is None or isinstance(item, dict | list):
        raise MismatchError
    return value_step(item)


def merged(old: Any, new: Any, kind: SchemaType) -> Any:
    """Merge the fields of `new` into `old`. Returns `old` itself if that changes nothing."""
    if type(new) is dict and kind.map is not None and not kind.map.atomic:
        if type(old) is dict and new:
            return _merged_maps(old, new, kind.map)
        return old if type(old) is dict else new
    if type(new) is list and kind.list is not None and not kind.list.atomic:
        if type(old) is list and old and new:
            return _merged_lists(old, new, kind.list)
        return old if type(old) is list and (old or not new) else new
    if new is None:
        return old if _outlives_null(old, kind) else None
    return old if equal(old, new) else new


def _outlives_null(old: Any, kind: SchemaType) -> bool:
    """Return whether the old value stays under a null.

    A null over a map or list that merges adds nothing; over anything else it replaces.
    """
    match kind.shape_of(None):
        case "map":
            return isinstance(old, dict) and bool(old) and kind.map is not None and not kind.map.atomic
        case "list":
            return isinstance(old, list) and bool(old) and kind.list is not None and not kind.list.atomic
        case "scalar":
            return False


def _merged_maps(old: dict[str, Any], new: dict[str, Any], kind: MapType) -> dict[str, Any]:
    result = old
    fields, element = kind.fields, kind.element or DEDUCED
    for name, item in new.items():
        if name in old:
            before = old[name]
            if type(item) is str and item == before:
                continue
            after = merged(before, item, fields.get(name, element))
            if after is before:
                continue
        else:
            after = item
        if result is old:
            result = dict(old)
        result[name] = after
    return result


def _merged_lists(old: list[Any], new: list[Any], kind: ListType) -> list[Any]:
    """Return the items of `new` in their order; items only in `old` keep their place relative to the shared ones."""
    steps = [item_step(item, kind) for item in old]
    before = _unique(steps, old)
    after = {item_step(item, kind): item for item in new}
    incoming = list(after)
    shared = [step for step in incoming if step in before]
    result: list[Any] = []
    left = right = met = 0  # met: how many of the shared items are placed
    while left < len(steps) or right < len(incoming):
        if left < len(steps):
            step = steps[left]
            if step not in after:
                result.append(old[left])
                left += 1
                continue
            wanted = shared[met] if met < len(shared) else None
            if step != wanted:  # placed already, or its turn comes later, in the order of `new`
                left += 1
                if wanted is not None:
                    continue
            elif step == incoming[right]:
                left += 1
        if right < len(incoming):
            step = incoming[right]
            item = before.get(step)
            result.append(after[step] if item is None else merged(item, after[step], kind.element))
            met += step in before
            right += 1
    return old if len(result) == len(old) and all(a is b for a, b in zip(old, result, strict=True)) else result


def _unique(steps: list[str], items: list[Any]) -> dict[str, Any]:
    """Return the items by step; None if an old object has several with the same key: those are replaced, not merged."""
    result: dict[str, Any] = {}
    for step, item in zip(steps, items, strict=True):
        result[step] = None if step in result else item
    return result


def compared(old: Any, new: Any, kind: SchemaType) -> Difference:
    changed, removed = _compared(old, new, kind)
    return Difference(changed or {}, removed or {})


_Found = tuple[FieldSet | None, FieldSet | None]
_SAME: _Found = (None, None)


def _compared(old: Any, new: Any, kind: SchemaType) -> _Found:
    """Return the sets of fields below two existing values; LEAF for a value that differs as a whole."""
    if old is new or (type(new) is str and old == new):
        return _SAME
    shape, was = kind.shape_of(new), kind.shape_of(old)
    found = _compared_as(shape, old, new, kind)
    if was == shape:
        return found
    before = _compared_as(was, old, new, kind)
    return _either(found[0], before[0]), _either(found[1], before[1])


def _compared_as(shape: Shape, old: Any, new: Any, kind: SchemaType) -> _Found:
    if shape == "map" and kind.map is not None and not kind.map.atomic:
        olds, news = (value if type(value) is dict else {} for value in (old, new))
        if olds or news:
            return _compared_maps(olds, news, kind.map)
    elif shape == "list" and kind.list is not None and not kind.list.atomic:
        items, others = (value if type(value) is list else [] for value in (old, new))
        if items or others:
            return _compared_lists(items, others, kind.list)
    return _SAME if equal(old, new) else (LEAF, None)


def _compared_maps(old: dict[str, Any], new: dict[str, Any], kind: MapType) -> _Found:
    changed: FieldSet = {}
    removed: FieldSet = {}
    fields, element = kind.fields, kind.element or DEDUCED
    for name, item in new.items():
        if name not in old:
            changed["f:" + name] = whole(item, fields.get(name, element))
            continue
        before = old[name]
        if item is before:
            continue
        more, less = _compared(before, item, fields.get(name, element))
        if more is not None:
            changed["f:" + name] = more
        if less is not None:
            removed["f:" + name] = less
    for name, item in old.items():
        if name not in new:
            removed["f:" + name] = whole(item, fields.get(name, element))
    return changed or None, removed or None


def _compared_lists(old: list[Any], new: list[Any], kind: ListType) -> _Found:
    changed: FieldSet = {}
    removed: FieldSet = {}
    before, after = _grouped(old, kind), _grouped(new, kind)
    for step in {**before, **after}:
        more, less = _compared_items(before.get(step, []), after.get(step, []), kind.element)
        if more is not None:
            changed[step] = more
        if less is not None:
            removed[step] = less
    return changed or None, removed or None


def _compared_items(old: list[Any], new: list[Any], kind: SchemaType) -> _Found:
    """Compare the items of one key: normally one or none on each side. Several count as one field."""
    match len(old), len(new):
        case 1, 1:
            return _compared(old[0], new[0], kind)
        case n, m if n > 1 and m > 1:
            return _SAME if equal(old, new) else (LEAF, None)
        case _:
            return _whole_group(new, kind), _whole_group(old, kind)


def _whole_group(items: list[Any], kind: SchemaType) -> FieldSet | None:
    if not items:
        return None
    return whole(items[0], kind) if len(items) == 1 else LEAF


def _grouped(items: list[Any], kind: ListType) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for item in items:
        result.setdefault(item_step(item, kind), []).append(item)
    return result


def _either(left: FieldSet | None, right: FieldSet | None) -> FieldSet | None:
    if left is None or right is None:
        return right if left is None else left
    return joined(left, right)


def whole(value: Any, kind: SchemaType) -> FieldSet:
    """List a value that was added or removed, with the fields below it."""
    result: FieldSet = {}
    if type(value) is dict and kind.map is not None and not kind.map.atomic:
        fields, element = kind.map.fields, kind.map.element or DEDUCED
        result = {"f:" + name: whole(item, fields.get(name, element)) for name, item in value.items()}
    elif type(value) is list and kind.list is not None and not kind.list.atomic:
        groups = _grouped(value, kind.list)
        result = {step: _whole_group(items, kind.list.element) for step, items in groups.items()}
    return {SELF: LEAF, **result} if result else LEAF


def taken_out(value: Any, fields: FieldSet, kind: SchemaType) -> Any:
    """Remove fields from a value. A map or list that loses its last item becomes null."""
    if type(value) is dict and kind.map is not None:
        remaining = {} if kind.map.atomic else _remaining_fields(value, fields, kind.map)
        return remaining or None
    if type(value) is list and kind.list is not None:
        items = [] if kind.list.atomic else _remaining_items(value, fields, kind.list)
        return items or None
    return value


def _remaining_fields(value: dict[str, Any], fields: FieldSet, kind: MapType) -> dict[str, Any]:
    result: dict[str, Any] = {}
    element = kind.element or DEDUCED
    for name, item in value.items():
        out = fields.get("f:" + name)
        if out is None:
            result[name] = item
        elif out and SELF not in out:
            result[name] = taken_out(item, out, kind.fields.get(name, element))
    return result


def _remaining_items(value: list[Any], fields: FieldSet, kind: ListType) -> list[Any]:
    result: list[Any] = []
    for item in value:
        out = fields.get(item_step(item, kind))
        if out is None:
            result.append(item)
        elif out and SELF not in out:
            result.append(taken_out(item, out, kind.element))
    return result


def equal(left: Any, right: Any) -> bool:
    """Return whether JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if left is right:
        return True
    if left != right:
        return False
    if isinstance(left, dict | list):  # Python takes 1 for true; text that is the same settles it, and is quick to make
        return msgspec.json.encode(left) == msgspec.json.encode(right) or _equal_inside(left, right)
    return isinstance(left, bool) == isinstance(right, bool)


def _equal_inside(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return all(equal(item, right[name]) for name, item in left.items())
    return all(map(equal, left, right))


def copied(value: Any) -> Any:
    if type(value) is dict:
        return {name: copied(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    if type(value) is list:
        return [copied(item) if type(item) in _CONTAINERS else item for item in value]
    return value


_CONTAINERS = (dict, list)
