"""Dictionaries. They accept only map[string]interface {}, not the template's own data, which is map[string]string."""

from __future__ import annotations

from gotmpl.errors import FuncError, bounded_value
from gotmpl.functions import ANY, DICT, STRING, Functions
from gotmpl.sprig.conversion import is_empty, text_of
from gotmpl.values import GoObject, StrMap, StrSlice, Value, go_type, to_bytes

FUNCTIONS = Functions()


@FUNCTIONS.add("dict", variadic=ANY)
def dict_(*values: Value) -> dict[str, Value]:
    keys, entries = values[::2], [*values[1::2], *[""] * (len(values) % 2)]
    return {text_of(key): entry for key, entry in zip(keys, entries, strict=True)}


@FUNCTIONS.add("get", params=(DICT, STRING))
def get(mapping: dict[str, Value] | None, key: str) -> Value:
    return (mapping or {}).get(key, "")


@FUNCTIONS.add("set", params=(DICT, STRING, ANY))
def set_(mapping: dict[str, Value] | None, key: str, value: Value) -> dict[str, Value]:
    if mapping is None:
        raise FuncError("assignment to entry in nil map")
    mapping[key] = value
    return mapping


@FUNCTIONS.add("unset", params=(DICT, STRING))
def unset(mapping: dict[str, Value] | None, key: str) -> dict[str, Value]:
    if mapping is None:
        return {}
    mapping.pop(key, None)
    return mapping


@FUNCTIONS.add("hasKey", params=(DICT, STRING))
def has_key(mapping: dict[str, Value] | None, key: str) -> bool:
    return key in (mapping or {})


@FUNCTIONS.add("pluck", params=(STRING,), variadic=DICT)
def pluck(key: str, *mappings: dict[str, Value] | None) -> list[Value]:
    return [mapping[key] for mapping in mappings if mapping is not None and key in mapping]


@FUNCTIONS.add("keys", variadic=DICT)
def keys(*mappings: dict[str, Value] | None) -> StrSlice:
    """Return the keys, sorted within each dictionary; Go's order is random."""
    return StrSlice(key for mapping in mappings for key in sorted(mapping or {}, key=to_bytes))


@FUNCTIONS.add("values", params=(DICT,))
def values_(mapping: dict[str, Value] | None) -> list[Value]:
    return [(mapping or {})[key] for key in sorted(mapping or {}, key=to_bytes)]


@FUNCTIONS.add("pick", params=(DICT,), variadic=STRING)
def pick(mapping: dict[str, Value] | None, *selected: str) -> dict[str, Value]:
    return {key: value for key, value in (mapping or {}).items() if key in selected}


@FUNCTIONS.add("omit", params=(DICT,), variadic=STRING)
def omit(mapping: dict[str, Value] | None, *unwanted: str) -> dict[str, Value]:
    return {key: value for key, value in (mapping or {}).items() if key not in unwanted}


@FUNCTIONS.add("merge", "mustMerge", params=(DICT,), variadic=DICT)
def merge(target: dict[str, Value] | None, *sources: dict[str, Value] | None) -> Value:
    """Fill the empty entries of the first dictionary, which is modified."""
    return _merged(target, sources, overwrite=False)


@FUNCTIONS.add("mergeOverwrite", "mustMergeOverwrite", params=(DICT,), variadic=DICT)
def merge_overwrite(target: dict[str, Value] | None, *sources: dict[str, Value] | None) -> Value:
    return _merged(target, sources, overwrite=True)


def _merged(target: dict[str, Value] | None, sources: tuple[dict[str, Value] | None, ...], *, overwrite: bool) -> Value:
    out = {} if target is None else target
    for source in sources:
        bounded_value(source)
        bounded_value(out)
        _merge(out, source or {}, overwrite=overwrite)
    return out


def _merge(target: dict[str, Value], source: dict[str, Value], *, overwrite: bool) -> None:
    for key, value in source.items():
        known = target.get(key)
        if value is None and not overwrite:
            continue
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value, overwrite=overwrite)
            if known:
                continue
        if key not in target or overwrite or is_empty(known):
            if isinstance(target, StrMap) and not isinstance(source, StrMap):
                shown = go_type(value) if isinstance(value, list) else "interface {}"
                raise FuncError(f"reflect.Value.SetMapIndex: value of type {shown} is not assignable to type string")
            target[key] = value


@FUNCTIONS.add("deepCopy", "mustDeepCopy", params=(ANY,))
def deep_copy(value: Value) -> Value:
    if value is None:
        raise FuncError("reflect: call of reflect.Value.Type on zero Value")
    bounded_value(value)
    return _copied(value)


def _copied(value: Value) -> Value:
    if isinstance(value, list):
        return type(value)(map(_copied, value))
    if isinstance(value, dict):
        return type(value)({key: _copied(item) for key, item in value.items()})
    return value.copied() if isinstance(value, GoObject) else value


@FUNCTIONS.add("dig", variadic=ANY)
def dig(*path: Value) -> Value:
    if len(path) < 3:
        raise FuncError("dig needs at least three arguments")
    *steps, default, value = path
    value = _as(value, dict, "map[string]interface {}")
    *above, last = [_as(step, str, "string") for step in steps]
    for key in above:
        if key not in value:
            return default
        value = _as(value[key], dict, "map[string]interface {}")
    return value.get(last, default)


def _as(value: Value, selected: type, name: str) -> Value:
    if type(value) is not selected:
        shown = "nil" if value is None else go_type(value)
        raise FuncError(f"interface conversion: interface {{}} is {shown}, not {name}")
    return value
