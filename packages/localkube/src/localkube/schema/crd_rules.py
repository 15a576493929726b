"""CEL rules, checked when a definition is written: a rule that does not compile is refused, never skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kuberun.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, fieldpaths
from localkube.schema.cel import BOOL, STRING, CompileError, Program, compile_program, optional_of, type_of_schema

_RULES: Final = "x-kubernetes-validations"
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NO_TYPE: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)


def rule_causes(schema: Any, path: str, *, root: bool = True, uncorrelated: str = "") -> Iterator[Cause]:
    """What is wrong with the rules at and below a schema. `uncorrelated` is where oldSelf stopped being available."""
    if not isinstance(schema, dict):
        return
    declared = schema.get(_RULES) or []
    written = [
        cause
        for index, rule in enumerate(declared)
        for cause in _text_causes(rule, schema, f"{path}.{_RULES}[{index}]")
    ]
    yield from written
    if declared and not written:
        yield from _compile_causes(schema, path, root=root, uncorrelated=uncorrelated)
    for name, part in (schema.get("properties") or {}).items():
        embedded = bool(part.get("x-kubernetes-embedded-resource"))
        yield from rule_causes(part, f"{path}.properties[{name}]", root=embedded, uncorrelated=uncorrelated)
    for keyword in ("additionalProperties", "items"):
        part = schema.get(keyword)
        if isinstance(part, dict):
            lost = keyword == "items" and schema.get("x-kubernetes-list-type") != "map"
            yield from rule_causes(
                part,
                f"{path}.{keyword}",
                root=bool(part.get("x-kubernetes-embedded-resource")),
                uncorrelated=uncorrelated or (path if lost else ""),
            )


def _text_causes(rule: JsonObject, schema: JsonObject, path: str) -> Iterator[Cause]:
    text, message = str(rule.get("rule") or "").strip(), str(rule.get("message") or "")
    if not text:
        yield causes.required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield causes.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _has_breaks(message.strip()):
        yield causes.invalid(f"{path}.message", message, "must not contain line breaks")
    elif _has_breaks(text) and not message.strip():
        yield causes.required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = str(rule.get("messageExpression") or "")
    if expression and not expression.strip():
        yield causes.required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield causes.not_supported(f"{path}.reason", reason, _REASONS)
    if place := str(rule.get("fieldPath") or ""):
        yield from _field_path_causes(place, schema, f"{path}.fieldPath")


def _field_path_causes(place: str, schema: JsonObject, path: str) -> Iterator[Cause]:
    if not place.strip():
        yield causes.invalid(path, place, "must be non-empty if specified")
    if _has_breaks(place):
        yield causes.invalid(path, place, "must not contain line breaks")
    try:
        fieldpaths.resolve(place, schema)
    except fieldpaths.PathError:
        yield causes.invalid(path, place, "must be a valid path")


def _compile_causes(schema: JsonObject, path: str, *, root: bool, uncorrelated: str) -> Iterator[Cause]:
    kind = type_of_schema(schema, root=root, name="self")
    if kind is None:
        yield Cause(f"{path}.{_RULES}", _NO_TYPE, "InternalError")
        return
    for index, rule in enumerate(schema[_RULES]):
        where = f"{path}.{_RULES}[{index}]"
        scope = {"self": kind, "oldSelf": optional_of(kind) if rule.get("optionalOldSelf") else kind}
        try:
            program = compile_program(rule["rule"], scope)
        except CompileError as failure:
            yield causes.invalid(f"{where}.rule", _shown(rule), f"compilation failed: {failure}")
            continue
        yield from _program_causes(program, rule, where, uncorrelated)
        yield from _message_causes(rule, scope, where)


def _program_causes(program: Program, rule: JsonObject, where: str, uncorrelated: str) -> Iterator[Cause]:
    if program.type != BOOL:
        yield causes.invalid(f"{where}.rule", _shown(rule), "cel expression must evaluate to a bool")
    if "oldSelf" in program.variables:
        if uncorrelated:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            yield causes.invalid(f"{where}.rule", rule["rule"], detail)
    elif rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        yield causes.invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], detail)


def _message_causes(rule: JsonObject, scope: Any, where: str) -> Iterator[Cause]:
    expression = rule.get("messageExpression")
    if not expression:
        return
    try:
        program = compile_program(expression, scope)
    except CompileError as failure:
        detail = f"messageExpression compilation failed: {failure}"
        yield causes.invalid(f"{where}.messageExpression", _shown(rule), detail)
        return
    if program.type != STRING:
        detail = "messageExpression must evaluate to a string"
        yield causes.invalid(f"{where}.messageExpression", _shown(rule), detail)


def _shown(rule: JsonObject) -> causes.Verbatim:
    """A rule as the real server prints it, with the field names of its Go struct."""
    fields = (
        ("Rule", rule.get("rule", "")),
        ("Message", rule.get("message", "")),
        ("MessageExpression", rule.get("messageExpression", "")),
        ("Reason", rule.get("reason")),
        ("FieldPath", rule.get("fieldPath", "")),
        ("OptionalOldSelf", rule.get("optionalOldSelf")),
    )
    return causes.Verbatim("{" + ",".join(f'"{name}":{causes.go_json(value)}' for name, value in fields) + "}")


def _has_breaks(text: str) -> bool:
    return re.search("[\n\r]", text) is not None
