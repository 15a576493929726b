"""anyOf, oneOf, allOf and not. When no alternative of anyOf or oneOf fits, one summary is reported.

For anyOf, the problems of the first alternative follow. A real API server reports those of the alternative with the
most fitting parts, which is often the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubebase.meta import JsonObject
from localkube.schema import causes
from localkube.schema.problems import Problem

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
