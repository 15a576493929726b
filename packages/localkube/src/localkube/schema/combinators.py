"""anyOf, oneOf, allOf and not.

When no alternative fits, the violations of the closest one are reported next to the summary. Closest is what
kube-apiserver counts: the alternative with the most checks that had something to say about the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kuberun.meta import JsonObject
from localkube.schema import causes
from localkube.schema.jsontypes import effective_format, has_type, types_of
from localkube.schema.problems import Problem

_Check = Callable[[Any], list[Problem] | None]
_Node = Mapping[type, tuple[_Check, ...]]
Compile = Callable[[JsonObject], _Node]


@dataclass(frozen=True, slots=True)
class _Alternative:
    schema: JsonObject
    node: _Node

    def problems(self, value: Any) -> list[Problem]:
        found: list[Problem] = []
        for check in self.node[value.__class__]:
            if problems := check(value):
                found += problems
        return found


def combinator_checks(schema: JsonObject, kind: type, compile_node: Compile) -> list[_Check]:
    """The checks of the four keywords that have something to say about values of the class."""

    def alternatives(keyword: str) -> list[_Alternative]:
        return [_Alternative(item, compile_node(item)) for item in schema.get(keyword) or ()]

    found: list[_Check] = []
    if any_of := alternatives("anyOf"):
        found.append(_any_of(any_of))
    if one_of := alternatives("oneOf"):
        found.append(_one_of(one_of))
    if (all_of := alternatives("allOf")) and any(item.node[kind] for item in all_of):
        found.append(_all_of(all_of))
    if (excluded := schema.get("not")) is not None:
        found.append(_not(_Alternative(excluded, compile_node(excluded))))
    return found


def _any_of(alternatives: list[_Alternative]) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        failures: list[tuple[_Alternative, list[Problem]]] = []
        for alternative in alternatives:
            problems = alternative.problems(value)
            if not problems:
                return None
            failures.append((alternative, problems))
        return [_summary("must validate at least one schema (anyOf)"), *_closest(failures, value)]

    return check


def _one_of(alternatives: list[_Alternative]) -> _Check:
    def check(value: Any) -> list[Problem] | None:
        failures = [(item, problems) for item in alternatives if (problems := item.problems(value))]
        fitting = len(alternatives) - len(failures)
        if fitting == 1:
            return None
        if fitting:
            return [_summary(f"must validate one and only one schema (oneOf). Found {fitting} valid alternatives")]
        summary = _summary("must validate one and only one schema (oneOf). Found none valid")
        return [summary, *_closest(failures, value)]

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


def _closest(failures: list[tuple[_Alternative, list[Problem]]], value: Any) -> list[Problem]:
    counted = [(_said(alternative.schema, value), problems) for alternative, problems in failures]
    best = max(count for count, _ in counted)
    return next(problems for count, problems in counted if count == best)


def _said(schema: JsonObject, value: Any) -> int:
    """How many checks of a schema had something to say about a value, nested ones included."""
    types = types_of(schema)
    if value is None:
        return 0 if types and not schema.get("nullable") else 1
    count = 4 + _said_by_alternatives(schema, value)
    if types or effective_format(schema):
        count += 2 if has_type(value, types) else 1
    match value:
        case str():
            count += 2 if effective_format(schema) else 1
        case bool():
            pass
        case int() | float():
            count += 2
        case list():
            items = schema.get("items")
            count += 2 + sum(_said(items, item) for item in value) if isinstance(items, dict) else 2
        case dict():
            properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
            known = [(properties.get(name, extra), item) for name, item in value.items()]
            count += 1 + sum(_said(part, item) for part, item in known if isinstance(part, dict))
    return count


def _said_by_alternatives(schema: JsonObject, value: Any) -> int:
    count = sum(_said(item, value) for item in schema.get("allOf") or ())
    for keyword in ("anyOf", "oneOf"):
        count += max((_said(item, value) for item in schema.get(keyword) or ()), default=0)
    return count


def _summary(text: str) -> Problem:
    return Problem(lambda path: causes.invalid(causes.WHOLE_OBJECT, "", f"{causes.go_quote(path)} {text}"), [])
