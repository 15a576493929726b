"""Value validation: one schema node compiled to the checks that apply to each type of JSON value.

A compiled node is a mapping from the Python class of a value to the checks for that class, so that a value without
constraints costs one dictionary look-up. Rules and texts follow kube-apiserver's OpenAPI validation, oddities included
(a list passes for a string with a format, every applicable check runs even when the type is already wrong).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, formats
from localkube.schema.causes import Problem, below, child, shown

# --- anyOf, oneOf, allOf and not. When no alternative of anyOf or oneOf fits, one summary is reported -----------------
# For anyOf, the problems of the first alternative follow. A real API server reports those of the alternative with the
# most fitting parts, which is often the first.


_Check = Callable[[Any], list[Problem] | None]
_Node = Mapping[type, tuple[_Check, ...]]
Compile = Callable[[JsonObject], _Node]


@dataclass(frozen=True, slots=True)
class _Alternative:
    node: _Node

    def problems(self, value: Any) -> list[Problem]:
        found: list[Problem] = []
        for check in self.node[value.__class__]:
            if problems := check(value):
                found += problems
        return found


def combinator_checks(schema: JsonObject, kind: type, compile_node: Compile) -> list[_Check]:
    """Compile the checks of the four keywords that apply to values of the class."""

    def alternatives(keyword: str) -> list[_Alternative]:
        return [_Alternative(compile_node(item)) for item in schema.get(keyword) or ()]

    found: list[_Check] = []
    if any_of := alternatives("anyOf"):
        found.append(_any_of(any_of))
    if one_of := alternatives("oneOf"):
        found.append(_one_of(one_of))
    if (all_of := alternatives("allOf")) and any(item.node[kind] for item in all_of):
        found.append(_all_of(all_of))
    if (excluded := schema.get("not")) is not None:
        found.append(_not(_Alternative(compile_node(excluded))))
    return found


def _any_of(alternatives: list[_Alternative]) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        first: list[Problem] = []
        for alternative in alternatives:
            problems = alternative.problems(value)
            if not problems:
                return None
            first = first or problems
        return [_summary("must validate at least one schema (anyOf)"), *first]

    return check


def _one_of(alternatives: list[_Alternative]) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        fitting = sum(not alternative.problems(value) for alternative in alternatives)
        if fitting == 1:
            return None
        count = f"{fitting} valid alternatives" if fitting else "none valid"
        return [_summary(f"must validate one and only one schema (oneOf). Found {count}")]

    return check


def _all_of(alternatives: list[_Alternative]) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        results = [item.problems(value) for item in alternatives]
        failed = [problems for problems in results if problems]
        if not failed:
            return None
        none = ". None validated" if len(failed) == len(alternatives) else ""
        details = [problem for problems in failed for problem in problems]
        return [*details, _summary(f"must validate all the schemas (allOf){none}")]

    return check


def _not(excluded: _Alternative) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        return None if excluded.problems(value) else [_summary("must not validate the schema (not)")]

    return check


def _summary(text: str) -> Problem:
    return Problem(lambda path: causes.invalid(causes.WHOLE_OBJECT, "", f"{causes.go_quote(path)} {text}"), [])


INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_EXACT_FLOAT: Final = 2**53

TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    type(None): "null",
}


def types_of(schema: JsonObject) -> tuple[str, ...]:
    """Return the JSON types that a schema allows; none means any."""
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def effective_format(schema: JsonObject) -> str:
    """Return the schema's format if it is enforced, else the empty text."""
    name = str(schema.get("format", ""))
    if not name:
        return ""
    types = types_of(schema)
    return name if formats.is_known(types[0] if len(types) == 1 else "", name) else ""


def is_json_integer(value: float) -> bool:
    return value.is_integer() and abs(value) <= _EXACT_FLOAT


Check = Callable[[Any], list[Problem] | None]
Node = Mapping[type, tuple[Check, ...]]

_DATA_FORMATS: Final[dict[type, str]] = {int: "int64", float: "float64"}


def compile_node(schema: JsonObject) -> Node:
    """Return the checks of one schema, by class of value."""
    return {kind: tuple(_checks(schema, kind)) for kind in TYPE_NAMES}


def run(node: Node, value: Any) -> list[Problem]:
    """Report every violation of a value, duplicates included."""
    found: list[Problem] = []
    for check in node[value.__class__]:
        if problems := check(value):
            found += problems
    return found


def _checks(schema: JsonObject, kind: type) -> list[Check]:
    found: list[Check] = []
    if (type_check := _type_check(schema, kind)) is not None:
        found.append(type_check)
    if kind is type(None):
        return [*found, *_enum_checks(schema)]
    found += combinator_checks(schema, kind, compile_node)
    if kind is str:
        found += _string_checks(schema)
    elif kind in (int, float):
        found += _number_checks(schema)
    elif kind is list:
        found += _list_checks(schema)
    found += _enum_checks(schema)
    if kind is dict:
        found += _object_checks(schema)
    return found


def _type_check(schema: JsonObject, kind: type) -> Check | None:
    if kind is not int:
        return _class_check(schema, kind)
    whole, broken = _class_check(schema, int), _class_check(schema, float)
    if whole is None and broken is None:
        return None

    def check(value: int) -> list[Problem] | None:
        """Read whole numbers beyond 64 bits as floats."""
        if INT64_MIN <= value <= INT64_MAX:
            return whole(value) if whole is not None else None
        return broken(float(value)) if broken is not None else None

    return check


def _class_check(schema: JsonObject, kind: type) -> Check | None:
    types, format_name = types_of(schema), effective_format(schema)
    actual = TYPE_NAMES[kind]
    if not types and not format_name:
        return None
    if kind is type(None):
        return _always(_wrong_type(",".join(types), "null")) if types and not schema.get("nullable") else None
    if format_name and kind not in (str, list) and not _fits_format(types, kind, format_name):
        return _always(_wrong_type(format_name, _DATA_FORMATS.get(kind, "")))
    if format_name and kind is float and "integer" in types:
        return _unless_integer(_wrong_type(format_name, "float64"))
    is_text = format_name and kind in (str, list) and not {"number", "integer"} & set(types)
    if is_text or actual in types or (kind is int and "number" in types):
        return None
    wrong = _wrong_type(",".join(types), actual)
    return _unless_integer(wrong) if kind is float and "integer" in types else _always(wrong)


def _unless_integer(wrong: Callable[[str], Cause]) -> Check:
    return lambda value: None if is_json_integer(value) else [Problem(wrong, [])]


def _fits_format(types: tuple[str, ...], kind: type, format_name: str) -> bool:
    actual = TYPE_NAMES[kind]
    return (
        actual in types
        or _DATA_FORMATS.get(kind) == format_name
        or (kind is int and "number" in types)
        or (kind is float and "integer" in types)
    )


def _wrong_type(expected: str, actual: str) -> Callable[[str], Cause]:
    return lambda path: causes.type_invalid(
        shown(path), actual, f"{path} in body must be of type {expected}: {causes.go_quote(actual)}"
    )


def _string_checks(schema: JsonObject) -> list[Check]:
    found: list[Check] = []
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None or shortest is not None or pattern:
        found.append(_string_check(longest, shortest, pattern))
    name = effective_format(schema)
    has_format = formats.check_for(name) if name else None
    if has_format is not None:
        found.append(_format_check(name, has_format))
    return found


def _string_check(longest: int | None, shortest: int | None, pattern: str | None) -> Check:
    """Report only the first of length and pattern violations."""
    matcher = formats.compiled(pattern) if pattern else None

    def check(value: str) -> list[Problem] | None:
        if longest is not None and len(value) > longest:
            return [Problem(lambda path: causes.too_long(path, longest), [])]
        if shortest is not None and len(value) < shortest:
            return [_worded(value, f"should be at least {shortest} chars long")]
        if matcher is not None and matcher.search(value) is None:
            return [_worded(value, f"should match '{pattern}'")]
        return None

    return check


def _format_check(name: str, has_format: formats.FormatCheck) -> Check:
    def check(value: str) -> list[Problem] | None:
        if has_format(value):
            return None

        def make_cause(path: str) -> Cause:
            detail = f"{path} in body must be of type {name}: {causes.go_quote(value)}"
            return causes.type_invalid(shown(path), value, detail)

        return [Problem(make_cause, [])]

    return check


def _number_checks(schema: JsonObject) -> list[Check]:
    types, name = types_of(schema), effective_format(schema)
    found: list[Check] = []
    if types == ("integer",):
        found.append(_range_check(name))
    if (factor := schema.get("multipleOf")) is not None:
        found.append(_multiple_check(factor))
    if (least := schema.get("minimum")) is not None:
        found.append(_minimum_check(least, exclusive=bool(schema.get("exclusiveMinimum"))))
    if (most := schema.get("maximum")) is not None:
        found.append(_maximum_check(most, exclusive=bool(schema.get("exclusiveMaximum"))))
    return found


def _range_check(format_name: str) -> Check:
    limit = 2**31 if format_name == "int32" else 2**63
    wanted = f"with format {format_name}" if format_name else "(default format)"
    text = f"Checked value must be of type integer {wanted} in "

    def check(value: float) -> list[Problem] | None:
        if -limit <= value < limit and value == int(value):
            return None
        return [Problem(lambda path: causes.invalid(causes.WHOLE_OBJECT, "", text + path), [])]

    return check


def _multiple_check(factor: float) -> Check:
    shown_factor = causes.go_value(int(factor) if float(factor).is_integer() else factor)

    def check(value: float) -> list[Problem] | None:
        divides = value % factor == 0 if isinstance(value, int) else is_json_integer(value / factor)
        return None if divides else [_worded(value, f"should be a multiple of {shown_factor}")]

    return check


def _minimum_check(least: float, *, exclusive: bool) -> Check:
    words = "greater than" if exclusive else "greater than or equal to"

    def check(value: float) -> list[Problem] | None:
        bound = _bound_for(value, least)
        if value > bound or (value == bound and not exclusive):
            return None
        return [_worded(value, f"should be {words} {causes.go_value(bound)}")]

    return check


def _maximum_check(most: float, *, exclusive: bool) -> Check:
    words = "less than" if exclusive else "less than or equal to"

    def check(value: float) -> list[Problem] | None:
        bound = _bound_for(value, most)
        if value < bound or (value == bound and not exclusive):
            return None
        return [_worded(value, f"should be {words} {causes.go_value(bound)}")]

    return check


def _bound_for(value: float, bound: float) -> float:
    """Compare whole numbers with the whole part of a bound."""
    return int(bound) if isinstance(value, int) else bound


def _list_checks(schema: JsonObject) -> list[Check]:
    found: list[Check] = []
    items = schema.get("items")
    if isinstance(items, dict):
        node = compile_node(items)
        if any(node.values()):
            found.append(_items_check(node))
    if (fewest := schema.get("minItems")) is not None:
        detail = f"should have at least {fewest} items"
        found.append(lambda value: [_worded(len(value), detail)] if len(value) < fewest else None)
    if (most := schema.get("maxItems")) is not None:
        found.append(lambda value: [_too_many(len(value), most)] if len(value) > most else None)
    return found


def _items_check(node: Node) -> Check:
    def check(value: list[Any]) -> list[Problem] | None:
        found: list[Problem] = []
        for index, item in enumerate(value):
            for one in node[item.__class__]:
                if problems := one(item):
                    found += below(index, problems)
        return found or None

    return check


def _enum_checks(schema: JsonObject) -> list[Check]:
    allowed = schema.get("enum")
    if not allowed:
        return []
    texts = [item if isinstance(item, str) else causes.go_json(item) for item in allowed]
    words = frozenset(item for item in allowed if isinstance(item, str))

    def check(value: Any) -> list[Problem] | None:
        if value.__class__ is str and value in words:
            return None
        if any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in allowed):
            return None
        return [Problem(lambda path: causes.not_supported(shown(path), value, texts), [])]

    return [check]


def _object_checks(schema: JsonObject) -> list[Check]:
    found: list[Check] = []
    if (fewest := schema.get("minProperties")) is not None:
        detail = f"should have at least {fewest} properties"
        found.append(lambda value: [_worded(len(value), detail)] if len(value) < fewest else None)
    if (most := schema.get("maxProperties")) is not None:
        found.append(lambda value: [_too_many(len(value), most)] if len(value) > most else None)
    properties = {name: compile_node(item) for name, item in (schema.get("properties") or {}).items()}
    extra = schema.get("additionalProperties")
    additional = compile_node(extra) if isinstance(extra, dict) else None
    if additional is not None or any(any(node.values()) for node in properties.values()):
        found.append(_properties_check(properties, additional))
    if needed := tuple(schema.get("required") or ()):
        found.append(_required_check(needed))
    return found


def _properties_check(properties: dict[str, Node], additional: Node | None) -> Check:
    get = properties.get

    def check(value: JsonObject) -> list[Problem] | None:
        found: list[Problem] = []
        for name, item in value.items():
            node = get(name, additional)
            if node is None:
                continue
            for one in node[item.__class__]:
                if problems := one(item):
                    found += below(name, problems)
        return found or None

    return check


def _required_check(needed: tuple[str, ...]) -> Check:
    def check(value: JsonObject) -> list[Problem] | None:
        missing = [name for name in needed if name not in value]
        return [Problem(_missing(name), []) for name in missing] if missing else None

    return check


def _missing(name: str) -> Callable[[str], Cause]:
    return lambda path: causes.required(child(path, name))


def _worded(value: object, detail: str) -> Problem:
    return Problem(lambda path: causes.invalid(shown(path), value, f"{path} in body {detail}"), [])


def _too_many(actual: int, most: int) -> Problem:
    return Problem(lambda path: causes.too_many(shown(path), actual, most), [])


def _always(make_cause: Callable[[str], Cause]) -> Check:
    return lambda _value: [Problem(make_cause, [])]
