"""CEL rules, checked when a definition is written: a rule that does not compile is refused, never skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, fieldpaths
from localkube.schema.cel import BOOL, STRING, CompileError, Type, compile_program, type_of_schema

_RULES: Final = "x-kubernetes-validations"
_NO_TYPE: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)


def rule_causes(schema: Any, path: str, *, root: bool = True, uncorrelated: str = "") -> Iterator[Cause]:
    """Report the mistakes in the rules at and below a schema. `uncorrelated` is the list that has no oldSelf."""
    if not isinstance(schema, dict):
        return
    yield from _node_causes(schema, f"{path}.{_RULES}", root=root, uncorrelated=uncorrelated)
    for name, part in (schema.get("properties") or {}).items():
        yield from rule_causes(part, f"{path}.properties[{name}]", root=False, uncorrelated=uncorrelated)
    extra, lost = schema.get("additionalProperties"), schema.get("x-kubernetes-list-type") != "map"
    yield from rule_causes(extra, f"{path}.additionalProperties", root=False, uncorrelated=uncorrelated)
    uncorrelated = uncorrelated or (path if lost else "")
    yield from rule_causes(schema.get("items"), f"{path}.items", root=False, uncorrelated=uncorrelated)


def _node_causes(schema: JsonObject, path: str, *, root: bool, uncorrelated: str) -> Iterator[Cause]:
    declared = schema.get(_RULES) or []
    if not declared:
        return
    kind = type_of_schema(schema, root=root, name="self")
    if kind is None:
        yield Cause(path, _NO_TYPE, "InternalError")
        return
    scope = {"self": kind, "oldSelf": kind}
    for index, rule in enumerate(declared):
        where = f"{path}[{index}]"
        if rule.get("optionalOldSelf") is not None:
            yield causes.forbidden(f"{where}.optionalOldSelf", "optionalOldSelf is not supported")
        yield from _field_path_causes(str(rule.get("fieldPath") or ""), schema, f"{where}.fieldPath")
        yield from _expression_causes(rule, "rule", scope, where, uncorrelated)
        if rule.get("messageExpression"):
            yield from _expression_causes(rule, "messageExpression", scope, where)


def _field_path_causes(field_path: str, schema: JsonObject, path: str) -> Iterator[Cause]:
    if not field_path:
        return
    try:
        fieldpaths.resolve(field_path, schema)
    except fieldpaths.PathError:
        yield causes.invalid(path, field_path, "must be a valid path")


def _expression_causes(
    rule: JsonObject, field: str, scope: dict[str, Type], where: str, uncorrelated: str = ""
) -> Iterator[Cause]:
    text = str(rule.get(field) or "")
    expected, name, prefix = (BOOL, "bool", "") if field == "rule" else (STRING, "string", "messageExpression ")
    if not text.strip():
        yield causes.required(f"{where}.{field}", f"{field} is not specified")
        return
    try:
        program = compile_program(text, scope)
    except CompileError as failure:
        yield causes.invalid(f"{where}.{field}", _shown(rule), f"{prefix}compilation failed: {failure}")
        return
    if program.type != expected:
        detail = f"{prefix or 'cel expression '}must evaluate to a {name}"
        yield causes.invalid(f"{where}.{field}", _shown(rule), detail)
    if uncorrelated and "oldSelf" in program.variables:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield causes.invalid(f"{where}.{field}", text, detail)


def _shown(rule: JsonObject) -> causes.Verbatim:
    """Print a rule as the real server does, with the field names of its Go struct."""
    fields = (
        ("Rule", rule.get("rule", "")),
        ("Message", rule.get("message", "")),
        ("MessageExpression", rule.get("messageExpression", "")),
        ("Reason", rule.get("reason")),
        ("FieldPath", rule.get("fieldPath", "")),
        ("OptionalOldSelf", rule.get("optionalOldSelf")),
    )
    return causes.Verbatim("{" + ",".join(f'"{name}":{causes.go_json(value)}' for name, value in fields) + "}")
