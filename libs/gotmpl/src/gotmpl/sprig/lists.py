"""Lists. Every function accepts any slice; the `must` twins differ only in name, because both report errors."""

from __future__ import annotations

from gotmpl.errors import FuncError, bounded_items, bounded_value
from gotmpl.functions import ANY, INT, Functions
from gotmpl.sprig.conversion import is_empty, to_int
from gotmpl.values import IntSlice, ListSlice, NilSlice, Value, go_kind, wrap64

FUNCTIONS = Functions()
_NIL = "runtime error: invalid memory address or nil pointer dereference"


def items(value: Value, what: str) -> list[Value]:
    if isinstance(value, list):
        return value
    raise FuncError(_NIL if value is None else f"Cannot {what} on type {go_kind(value)}")


@FUNCTIONS.add("list", "tuple", variadic=ANY)
def list_(*values: Value) -> list[Value]:
    return list(values)


@FUNCTIONS.add("first", "mustFirst", params=(ANY,))
def first(value: Value) -> Value:
    found = items(value, "find first")
    return found[0] if found else None


@FUNCTIONS.add("last", "mustLast", params=(ANY,))
def last(value: Value) -> Value:
    found = items(value, "find last")
    return found[-1] if found else None


@FUNCTIONS.add("rest", "mustRest", params=(ANY,))
def rest(value: Value) -> Value:
    found = items(value, "find rest")
    return list(found[1:]) if found else NilSlice()


@FUNCTIONS.add("initial", "mustInitial", params=(ANY,))
def initial(value: Value) -> Value:
    found = items(value, "find initial")
    return list(found[:-1]) if found else NilSlice()


@FUNCTIONS.add("append", "push", "mustAppend", "mustPush", params=(ANY, ANY))
def append(value: Value, item: Value) -> list[Value]:
    return [*items(value, "push"), item]


@FUNCTIONS.add("prepend", "mustPrepend", params=(ANY, ANY))
def prepend(value: Value, item: Value) -> list[Value]:
    return [item, *items(value, "prepend")]


@FUNCTIONS.add("concat", variadic=ANY)
def concat(*values: Value) -> list[Value]:
    out: list[Value] = []
    for value in values:
        if not isinstance(value, list):
            raise FuncError(f"Cannot concat type {go_kind(value)} as list" if value is not None else _NIL)
        out += value
        bounded_items(len(out))
    return out or NilSlice()


@FUNCTIONS.add("reverse", "mustReverse", params=(ANY,))
def reverse(value: Value) -> list[Value]:
    return list(reversed(items(value, "find reverse")))


def same(left: Value, right: Value) -> bool:
    """Compare as reflect.DeepEqual: equal types, equal contents."""
    bounded_value(left)
    bounded_value(right)
    return _same(left, right)


def _same(left: Value, right: Value) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return bool(left == right)


@FUNCTIONS.add("uniq", "mustUniq", params=(ANY,))
def uniq(value: Value) -> list[Value]:
    """Remove duplicates. Plain values use hashes: pairwise comparison takes too long for a long list."""
    out: list[Value] = []
    plain: set[tuple[type, Value]] = set()
    others: list[Value] = []
    for item in items(value, "find uniq"):
        if isinstance(item, (str, int, float)):
            if (type(item), item) not in plain:
                plain.add((type(item), item))
                out.append(item)
        elif not any(same(item, known) for known in others):
            others.append(item)
            bounded_items(len(others) ** 2)
            out.append(item)
    return out


@FUNCTIONS.add("without", "mustWithout", params=(ANY,), variadic=ANY)
def without(value: Value, *omitted: Value) -> list[Value]:
    found = items(value, "find without")
    return [item for item in found if not any(same(item, other) for other in omitted)]


@FUNCTIONS.add("has", "mustHas", params=(ANY, ANY))
def has(needle: Value, value: Value) -> bool:
    if value is None:
        return False
    return any(same(needle, item) for item in items(value, "find has"))


@FUNCTIONS.add("compact", "mustCompact", params=(ANY,))
def compact(value: Value) -> list[Value]:
    return [item for item in items(value, "compact") if not is_empty(item)]


@FUNCTIONS.add("slice", "mustSlice", params=(ANY,), variadic=ANY)
def slice_(value: Value, *bounds: Value) -> Value:
    """Lists only: this replaces the builtin of the same name."""
    if not isinstance(value, list):
        raise FuncError(_NIL if value is None else f"list should be type of slice or array but {go_kind(value)}")
    found = value
    if not found:
        return None
    start = to_int(bounds[0]) if bounds else 0
    end = to_int(bounds[1]) if len(bounds) > 1 else len(found)
    if not 0 <= start <= end <= len(found):
        raise FuncError("reflect.Value.Slice: slice index out of bounds")
    return type(found)(found[start:end])


@FUNCTIONS.add("chunk", "mustChunk", params=(INT, ANY))
def chunk(size: int, value: Value) -> ListSlice:
    if not isinstance(value, list):
        raise FuncError(_NIL if value is None else f"Cannot chunk type {go_kind(value)}")
    found = value
    if size <= 0:
        if size and (len(found) - 1) // size == -1:
            return ListSlice()
        raise FuncError("runtime error: makeslice: len out of range")
    return ListSlice(list(found[at : at + size]) for at in range(0, len(found), size))


@FUNCTIONS.add("until", params=(INT,))
def until(count: int) -> IntSlice:
    return until_step(0, count, -1 if count < 0 else 1)


@FUNCTIONS.add("untilStep", params=(INT, INT, INT))
def until_step(start: int, stop: int, step: int) -> IntSlice:
    if step == 0:
        return IntSlice()
    bounded_items((stop - start) // step)
    return IntSlice(range(start, stop, step))


@FUNCTIONS.add("seq", variadic=INT)
def seq(*bounds: int) -> str:
    match bounds:
        case (end,):
            start, step = 1, -1 if end < 1 else 1
        case (start, end):
            step = -1 if end < start else 1
        case (start, step, end):
            if step == 0 or (end < start) != (step < 0):
                return ""
        case _:
            return ""
    steps = until_step(start, wrap64(end + (1 if step > 0 else -1)), step)
    return " ".join(map(str, steps))


@FUNCTIONS.add("all", variadic=ANY)
def all_(*values: Value) -> bool:
    return not any(is_empty(value) for value in values)


@FUNCTIONS.add("any", variadic=ANY)
def any_(*values: Value) -> bool:
    return any(not is_empty(value) for value in values)
