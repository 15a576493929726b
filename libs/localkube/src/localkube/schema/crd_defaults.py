"""Checks of the defaults in a schema: they must be valid and have no unknown fields."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, pruning, rules, values
from localkube.schema.cel import CompileError
from localkube.schema.problems import Problem, shown


def default_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    """Report the mistakes in the defaults at and below a schema."""
    if schema.get("default") is not None:
        yield from _value_causes(copy.deepcopy(schema), f"{path}.default")
    if isinstance(schema.get("items"), dict):
        yield from default_causes(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from default_causes(part, f"{path}.properties[{name}]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from default_causes(schema["additionalProperties"], f"{path}.additionalProperties")


def _value_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    default = schema["default"]
    pruned = copy.deepcopy(default)
    pruning.prune(pruned, pruning.compile_pruning(schema, root=False))
    if pruned != default:
        yield causes.invalid(path, default, "must not have unknown fields")
    problems = values.run(values.compile_node(schema), default)
    found = list(dict.fromkeys(_placed(problem, path) for problem in problems))
    yield from found
    if found:
        return
    try:
        node = rules.compile_rules(schema)
    except CompileError:
        return  # reported where the rule is
    if node is not None:
        for cause in rules.rule_causes(node, default, None, []):
            yield Cause(_joined(path, cause.field), cause.message, cause.reason)


def _placed(problem: Problem, path: str) -> Cause:
    cause = problem.cause()
    return Cause(_joined(path, cause.field), cause.message, cause.reason)


def _joined(path: str, below: str) -> str:
    if below in {"", shown("")}:
        return path
    return f"{path}{below}" if below.startswith("[") else f"{path}.{below}"
