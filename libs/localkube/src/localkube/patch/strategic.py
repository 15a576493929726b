"""Strategic merge patch: a merge patch whose schema defines which lists merge item by item, and by which key.

Only built-in kinds have the extensions it reads (x-kubernetes-patch-strategy, x-kubernetes-patch-merge-key). A patch
can carry directives:

    $patch: replace | delete              in a map, or in an item of a list
    $retainKeys: [names]                  drop all other fields of this map
    $deleteFromPrimitiveList/LIST: [...]  remove scalars from a list
    $setElementOrder/LIST: [...]          the order of the result
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import StatusError, bad_request
from localkube.patch.gotext import not_decodable, plain, type_name
from localkube.patch.values import copied

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_ANYTHING: Final[JsonObject] = {}


def strategic_merge(doc: JsonObject, patch: Any, schema: JsonObject) -> JsonObject:
    """Merge the patch into a copy of the document."""
    if not isinstance(patch, dict):
        raise bad_request(not_decodable(patch, "value of type map[string]interface {}"))
    return _merged_map(copied(doc), copied(patch), schema)


def _merged_map(old: JsonObject, patch: JsonObject, schema: JsonObject) -> JsonObject:
    if _PATCH in patch:
        return _replaced_map(patch)
    _retain(old, patch)
    for name in [name for name in patch if name.startswith(_ORDER)]:
        _merge_ordered(old, patch, name, schema)
    for name, change in patch.items():
        if name.startswith(_DELETE.rstrip("/")):
            _delete_scalars(old, name, change)
        elif change is None:
            old.pop(name, None)
        elif type(old.get(name)) is not type(change) or not isinstance(change, dict | list):
            _set(old, name, _new(change))
        elif isinstance(change, dict):
            inner = _field(schema, name)
            replaces = "replace" in _strategies(inner)
            old[name] = change if replaces else _merged_map(old[name], change, inner)
        else:
            old[name] = _merged_list(old[name], change, _field(schema, name))
    return old


def _replaced_map(patch: JsonObject) -> JsonObject:
    match patch[_PATCH]:
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case other:
            raise _failed(f"unknown patch type: {plain(other)} in map: {plain(patch)}")


def _retain(old: JsonObject, patch: JsonObject) -> None:
    if _RETAIN not in patch:
        return
    names = patch.pop(_RETAIN)
    directives = (_DELETE, _ORDER)
    set_here = [name for name, value in patch.items() if value is not None and not name.startswith(directives)]
    if not isinstance(names, list) or any(name not in names for name in set_here):
        raise bad_request("invalid patch format of retainKeys")
    for name in [name for name in old if name not in names]:
        del old[name]


def _delete_scalars(old: JsonObject, name: str, gone: Any) -> None:
    if not name.startswith(_DELETE):
        raise bad_request("invalid patch format of primitive list")
    target = name[len(_DELETE) :]
    if isinstance(old.get(target), list) and isinstance(gone, list):
        old[target] = [item for item in old[target] if item not in gone]


def _merge_ordered(old: JsonObject, patch: JsonObject, directive: str, schema: JsonObject) -> None:
    """Merge one list and put the result in the order given; the list is then done with."""
    name = directive[len(_ORDER) :]
    order, change, before = patch.pop(directive), patch.pop(name, None), old.get(name)
    for value in (order, [] if change is None else change, [] if before is None else before):
        if not isinstance(value, list):
            raise _failed(f"expected a []interface {{}}, but received a {type_name(value)}")
    inner = _field(schema, name)
    key = _key(inner)
    _check_order(change or [], order, key)
    if before is None and change is None:
        return
    if before is None or change is None:
        result = _new(change) if before is None else before
    else:
        result = _merged_list(before, change, inner)
    if not (before or change):
        raise _failed("no elements in any of the given slices")
    old[name] = _in_order(result, order, _order_left(before or [], change or [], key), key)


def _order_left(before: list[Any], change: list[Any], key: str) -> list[Any]:
    """Return the server's order after deletions: new items have moved into the positions of deleted ones."""
    gone = [_identity(item, key) for item in change if isinstance(item, dict) and item.get(_PATCH) == "delete"]
    remaining = [item for item in before if _identity(item, key) not in gone]
    if len(remaining) == len(before):
        return before
    known = {_identity(item, key) for item in remaining}
    added = [item for item in change if _PATCH not in item and _identity(item, key) not in known]
    return [*remaining, *added][: len(before)]


def _check_order(change: list[Any], order: list[Any], key: str) -> None:
    """Check that the items of the patch appear in the order list, and in that order."""
    items = [item for item in change if not (isinstance(item, dict) and _PATCH in item)]
    remaining = iter([_identity(item, key) for item in order])
    if order and not all(_identity(item, key) in remaining for item in items):
        raise _failed(
            f"The order in patch list:\n{plain(change)}\n doesn't match $setElementOrder list:\n{plain(order)}\n"
        )


def _merged_list(old: list[Any], change: list[Any], schema: JsonObject) -> list[Any]:
    if "merge" not in _strategies(schema):
        return change
    if not old and not change:
        return old
    kinds = {type(item) for item in (*old, *change)}
    if list in kinds:
        raise StatusError(422, "Invalid", "the server rejected our request due to an error in our request")
    if len(kinds) > 1:
        raise _failed(f"list element types are not identical: [{plain(old)} {plain(change)}]")
    if dict not in kinds:
        return _in_order(list(dict.fromkeys([*old, *change])), change, old, "")
    return _merged_items(old, change, schema)


def _merged_items(old: list[Any], change: list[Any], schema: JsonObject) -> list[Any]:
    key = _key(schema)
    if not key:
        raise _failed("cannot merge lists without merge key")
    plain_items = [item for item in change if _PATCH not in item]
    replaces = False
    for item in change:
        match item.get(_PATCH, ""):
            case "":
                pass
            case "delete":
                gone = _identity(item, key)
                old = [other for other in old if _identity(other, key) != gone]
            case "replace":
                replaces = True
            case "merge":
                raise _failed("merging lists cannot yet be specified in the patch")
            case other:
                raise _failed(f"unknown patch type: {plain(other)} in map: {plain(item)}")
    if replaces:
        return _in_order(plain_items, [], plain_items, key)
    result = list(old)
    for item in plain_items:
        at = _position(result, key, _identity(item, key))
        if at is None:
            result.append(item)
        else:
            result[at] = _merged_map(result[at], item, schema.get("items", _ANYTHING))
    return _in_order(result, plain_items, old, key)


def _position(items: list[Any], key: str, identity: Any) -> int | None:
    return next((index for index, item in enumerate(items) if _identity(item, key) == identity), None)


def _in_order(items: list[Any], order: list[Any], server_order: list[Any], key: str) -> list[Any]:
    """Return the items of the patch in its order.

    The others keep the server's order, before the first item they preceded.
    """
    wanted = _ranks(order, key)
    served = _ranks(server_order, key)
    mine = sorted((item for item in items if _identity(item, key) in wanted), key=_by(wanted, key))
    others = sorted((item for item in items if _identity(item, key) not in wanted), key=_by(served, key))
    result: list[Any] = []
    while mine and others:
        left, right = served.get(_identity(others[0], key)), served.get(_identity(mine[0], key))
        result.append((others if left is not None and right is not None and left < right else mine).pop(0))
    return [*result, *mine, *others]


def _ranks(items: list[Any], key: str) -> dict[Any, int]:
    return {_identity(item, key): index for index, item in reversed(list(enumerate(items)))}


def _by(ranks: dict[Any, int], key: str) -> Callable[[Any], int]:
    return lambda item: ranks.get(_identity(item, key), len(ranks))


def _identity(item: Any, key: str) -> Any:
    """Return the identity of an item: the value of the merge key, or the scalar itself. True is not 1."""
    if key:
        if not isinstance(item, dict):
            raise _failed(f"expected a map[string]interface {{}}, but received a {type_name(item)}")
        if key not in item:
            raise _failed(f"map: {plain(item)} does not contain declared merge key: {key}")
        item = item[key]
    if isinstance(item, dict | list):
        raise StatusError(422, "Invalid", "the server rejected our request due to an error in our request")
    return (type(item) is bool, item)


def _new(value: Any) -> Any:
    """Clean a value without counterpart: drop its nulls and directives."""
    match value:
        case dict():
            items = {name: _new(item) for name, item in value.items() if item is not None}
            return None if _PATCH in value else {name: item for name, item in items.items() if item is not None}
        case list():
            return [_new(item) for item in value if not (isinstance(item, dict) and _PATCH in item)]
        case _:
            return value


def _set(old: JsonObject, name: str, value: Any) -> None:
    if value is None:
        old.pop(name, None)
    else:
        old[name] = value


def _field(schema: JsonObject, name: str) -> JsonObject:
    """Return the schema of one field; for a plain map, that of its values."""
    found = schema.get("properties", {}).get(name)
    if found is None:
        more = schema.get("additionalProperties")
        return more if isinstance(more, dict) else _ANYTHING
    return found if isinstance(found, dict) else _ANYTHING


def _strategies(schema: JsonObject) -> list[str]:
    return str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _key(schema: JsonObject) -> str:
    return str(schema.get("x-kubernetes-patch-merge-key", ""))


def _failed(message: str) -> StatusError:
    """Report a patch that the server cannot interpret."""
    return StatusError(500, "", message)
