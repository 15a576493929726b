"""x-kubernetes-validations: CEL rules at the nodes of a schema, with transition rules and ratcheting.

    self      the value at the node
    oldSelf   the value it replaces; a rule that uses it runs only on updates

A rule that fails on a value that did not change is forgiven (ratcheting), unless the rule looks at oldSelf.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes
from localkube.schema.causes import Step, render, shown
from localkube.schema.cel import (
    STEP_LIMIT,
    BudgetError,
    CompileError,
    EvaluationError,
    Program,
    Type,
    compile_program,
    type_of_schema,
)

# --- Simple paths into a schema, such as .spec['a b'].c: `fieldPath` of a rule, `jsonPath` of a selectable field ------

_TOKEN: Final = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+")
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "'": "'",
    "\\": "\\",
}


class PathError(ValueError):
    """The path does not lead to a field; the message says why."""


@dataclass(frozen=True, slots=True)
class Resolved:
    path: str
    """Normalised: `spec.c`, `spec.labels[app]`."""
    steps: tuple[str, ...]
    schema: JsonObject


def resolve(text: str, schema: JsonObject, *, brackets: str = "allowed") -> Resolved:
    """Follow a path through a schema; PathError if it does not lead to a field."""
    path, steps = "", []
    for name in _names(text, brackets=brackets):
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                raise PathError("does not refer to a valid field")
            schema, path = properties[name], join(path, name)
        elif isinstance(extra, dict):
            schema, path = extra, f"{path}[{name}]"
        else:
            raise PathError("does not refer to a valid field")
        steps.append(name)
    return Resolved(path, tuple(steps), schema)


def join(path: str, below: str) -> str:
    if not path or not below:
        return path or below
    return path + below if below.startswith("[") else f"{path}.{below}"


def _names(text: str, *, brackets: str) -> Iterator[str]:
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        match token:
            case ".":
                yield _next(tokens)
            case "[":
                if brackets != "allowed":
                    raise PathError("array notation is not allowed")
                quoted = _next(tokens)
                if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
                    raise PathError(f"expected single quoted string but got {quoted}")
                yield re.sub(r"\\(.)", _unescaped, quoted[1:-1])
                closing = _next(tokens)
                if closing != "]":
                    raise PathError(f"expected ] but got {closing}")
            case _:
                raise PathError(f"expected [ or . but got: {token}")


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise PathError("unexpected end of JSON path")
    return token


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise PathError(f"invalid string literal: invalid escape char \\{found[1]}")
    return _ESCAPES[found[1]]


# --- Correlation of the parts of a new object with those of the old one, to detect changes ----------------------------
# Fields correlate by name, items only in lists that are maps, by their key fields. Values that cannot be correlated
# count as changed, except that everything below an unchanged value is unchanged.


@dataclass(frozen=True, slots=True)
class Correlation:
    new: Any
    old: Any
    schema: JsonObject
    inherited: bool = False
    """A value around this one is known to be unchanged."""
    known: bool = True
    """False if nothing of the old object corresponds to this value."""

    @classmethod
    def of(cls, new: Any, old: Any, schema: JsonObject) -> Correlation:
        return cls(new, old, schema)

    def unchanged(self) -> bool:
        return self.inherited or (self.known and same(self.new, self.old))

    def key(self, name: str) -> Correlation:
        extra = self.schema.get("additionalProperties")
        schema = (self.schema.get("properties") or {}).get(name) or (extra if isinstance(extra, dict) else None)
        old = self.old.get(name, _ABSENT) if isinstance(self.old, dict) and self.known else _ABSENT
        if schema is None or old is _ABSENT:
            return Correlation(self.new[name], None, schema or {}, self.unchanged(), known=False)
        return Correlation(self.new[name], old, schema, self.inherited)

    def item(self, index: int) -> Correlation:
        items = self.schema.get("items")
        schema = items if isinstance(items, dict) else {}
        old = old_item(self.new[index], self.old, self.schema) if isinstance(self.old, list) and self.known else None
        if old is None:
            return Correlation(self.new[index], None, schema, self.unchanged(), known=False)
        return Correlation(self.new[index], old, schema, self.inherited)

    def follow(self, steps: Iterable[Step]) -> Correlation:
        """Follow steps to the correlation of an inner value."""
        location = self
        for step in steps:
            match step:
                case int():
                    location = location.item(step)
                case str():
                    location = location.key(step)
                case (name,):
                    location = location.key(name)
        return location


def old_item(item: Any, old: list[Any], schema: JsonObject) -> Any | None:
    """Find the item of the old list with the same keys, if the list is a map."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return None
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    wanted = [item.get(key) for key in keys]
    for candidate in old:
        if isinstance(candidate, dict) and [candidate.get(key) for key in keys] == wanted:
            return candidate
    return None


def same(one: Any, two: Any) -> bool:
    """Return deep equality of JSON, where true is not 1."""
    if one.__class__ is not two.__class__:
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(two) and all(same(left, right) for left, right in zip(one, two, strict=True))
    return bool(one == two)


_ABSENT = object()


OBJECT_LIMIT: Final = 2_000_000
"""Steps of all rules of one object; about a second."""
_MESSAGE_LIMIT: Final = 5 * 1024
_SKIPPED: Final = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule."""

    declared: JsonObject
    program: Program
    message: Program | None
    location: str
    """The path below the node at which a violation is reported (fieldPath), or empty."""

    @property
    def uses_old(self) -> bool:
        return "oldSelf" in self.program.variables


@dataclass(slots=True)
class RuleNode:
    """Rules at and below one node of a schema."""

    schema: JsonObject
    rules: list[Rule] = field(default_factory=list)
    properties: dict[str, RuleNode] = field(default_factory=dict)
    additional: RuleNode | None = None
    items: RuleNode | None = None


def compile_rules(schema: JsonObject) -> RuleNode | None:
    """Return all rules of a schema, or None if it has none. Raises CompileError if one is not valid CEL."""
    return _compile(schema, root=True)


def compile_rule(declared: JsonObject, schema: JsonObject, self_type: Type) -> Rule:
    """Compile one rule of the node with the schema."""
    scope = {"self": self_type, "oldSelf": self_type}
    message = declared.get("messageExpression")
    return Rule(
        declared=declared,
        program=compile_program(declared["rule"], scope),
        message=compile_program(message, scope) if message else None,
        location=resolve(declared.get("fieldPath", ""), schema).path if declared.get("fieldPath") else "",
    )


def rule_causes(node: RuleNode, value: Any, old: Any | None, found: list[Cause]) -> list[Cause]:
    """Report violations of the rules below a value. Rules are skipped if earlier findings make them meaningless."""
    if any(cause.reason in _BLOCKING for cause in found):
        return [causes.invalid(causes.WHOLE_OBJECT, None, _SKIPPED)]
    whole = Correlation.of(value, old, node.schema) if old is not None else None
    violations: list[Cause] = []
    try:
        violations.extend(_Walk(OBJECT_LIMIT, whole).visit(node, _Location(value, old)))
    except _OutOfBudgetError as stop:
        violations.append(stop.cause)
    return violations


def _compile(schema: JsonObject, *, root: bool) -> RuleNode | None:
    """Return the nodes of a schema that have rules at or below them."""
    if not _has_rules(schema):
        return None
    node = RuleNode(schema)
    if declared := schema.get("x-kubernetes-validations"):
        kind = type_of_schema(schema, root=root, name="self")
        if kind is None:
            raise CompileError("the schema of this value has no CEL type", declared[0]["rule"], 0)
        node.rules = [compile_rule(rule, schema, kind) for rule in declared]
    for name, part in (schema.get("properties") or {}).items():
        if (inner := _below(part)) is not None:
            node.properties[name] = inner
    node.additional = _below(schema.get("additionalProperties"))
    node.items = _below(schema.get("items"))
    return node


def _below(schema: Any) -> RuleNode | None:
    if not isinstance(schema, dict):
        return None
    return _compile(schema, root=False)


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    parts = [*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return any(_has_rules(part) for part in parts)


class _OutOfBudgetError(Exception):
    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class _Location:
    """A value to check, and the value that it replaces."""

    value: Any
    old: Any
    steps: tuple[Step, ...] = ()

    def item(self, index: int, schema: JsonObject) -> _Location:
        item = self.value[index]
        before = old_item(item, self.old, schema) if isinstance(self.old, list) else None
        return _Location(item, before, (*self.steps, index))

    def key(self, name: str, step: Step) -> _Location:
        before = self.old.get(name) if isinstance(self.old, dict) else None
        return _Location(self.value[name], before, (*self.steps, step))


@dataclass(slots=True)
class _Walk:
    """One pass over an object, with the number of remaining steps."""

    budget: int
    whole: Correlation | None
    """Of the whole object with the one it replaces, on updates."""

    def visit(self, node: RuleNode, location: _Location) -> Iterator[Cause]:
        value = location.value
        if value is None:
            return
        for rule in node.rules:
            yield from self.apply(rule, node, location)
        if isinstance(value, dict):
            if node.additional is not None:
                for name in value:
                    yield from self.visit(node.additional, location.key(name, (name,)))
            for name, part in node.properties.items():
                if name in value:
                    yield from self.visit(part, location.key(name, name))
        elif isinstance(value, list) and node.items is not None:
            for index in range(len(value)):
                yield from self.visit(node.items, location.item(index, node.schema))

    def apply(self, rule: Rule, node: RuleNode, location: _Location) -> Iterator[Cause]:
        if rule.uses_old and location.old is None:
            return
        path = render(location.steps)
        values = {"self": location.value, "oldSelf": location.old}
        allowed = min(self.budget, STEP_LIMIT)
        try:
            result, left = rule.program.run(values, allowed)
        except BudgetError as failure:
            text = f"'{failure}': no further validation rules will be run due to call cost exceeds limit for rule: "
            cause = causes.invalid(shown(path), node.schema.get("type"), text + _text(rule.declared))
            raise _OutOfBudgetError(cause) from None
        except EvaluationError as failure:
            yield causes.invalid(shown(path), node.schema.get("type"), _failure_text(failure, rule.declared))
            return
        self.budget -= allowed - left
        if result is not True and not self.forgives(rule, location):
            yield self.violation(rule, node, values, path)

    def forgives(self, rule: Rule, location: _Location) -> bool:
        """Return whether ratcheting forgives a violation.

        The value did not change, and the rule does not use oldSelf.
        """
        if rule.uses_old or self.whole is None:
            return False
        return self.whole.follow(location.steps).unchanged()

    def violation(self, rule: Rule, node: RuleNode, values: JsonObject, path: str) -> Cause:
        detail = (
            self.message(rule, values)
            or rule.declared.get("message", "").strip()
            or ("failed rule: " + rule.declared["rule"].strip())
        )
        location = shown(join(path, rule.location))
        bad = causes.OMITTED if node.schema.get("type") in {"object", "array"} else values["self"]
        match rule.declared.get("reason"):
            case "FieldValueForbidden":
                return causes.forbidden(location, detail)
            case "FieldValueRequired":
                return causes.required(location, detail)
            case "FieldValueDuplicate":
                return causes.duplicate(location, bad)
            case _:
                return causes.invalid(location, bad, detail)

    def message(self, rule: Rule, values: JsonObject) -> str:
        """Return the text of messageExpression, or empty if it fails or must not be shown."""
        if rule.message is None:
            return ""
        try:
            text, _ = rule.message.run(values, min(self.budget, STEP_LIMIT))
        except EvaluationError:
            return ""
        trimmed = text.strip() if isinstance(text, str) else ""
        return "" if "\n" in trimmed or len(trimmed.encode()) > _MESSAGE_LIMIT else trimmed


def _text(declared: JsonObject) -> str:
    return str(declared.get("message") or declared["rule"]).strip()


def _failure_text(failure: EvaluationError, declared: JsonObject) -> str:
    if str(failure).startswith("no such overload"):
        return (
            f"'{failure}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {_text(declared)}"
        )
    return f"{failure} evaluating rule: {_text(declared)}"
