"""Rewrite steps, which rename or merge fetched keys. Each step works on the result of the step before it. Pure.

If two keys get the same name, the key that sorts last by its old name wins, and a note names both. The same input
always gives the same Secret; in the existing operator the winner is random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, assert_never

from eso_api.rewrite import MergeRewrite, RegexpRewrite, Rewrite, TransformRewrite
from eso_api.values import SecretBytes
from eso_operator.sources.errors import ShapeError
from eso_render.engine import render_key
from eso_render.errors import RenderError
from eso_render.metering import allow, pattern_nanos
from eso_render.scopes import RenderText
from gotmpl.errors import FuncError
from gotmpl.floats import format_float
from gotmpl.jsontext import JsonError, decode, encode
from gotmpl.sprig.regexes import BadPatternError, compiled, replace_all

Values = Mapping[str, SecretBytes]

_MAX_KEYS: Final = 100_000
_MAX_NOTES: Final = 3
_NO_VALUE: Final = "<no value>"
_MERGE_NANOS: Final = 2_000
"""Time for each byte of JSON, which is parsed and may be encoded again."""


def rewritten(
    values: Values, steps: Sequence[Rewrite], render: RenderText = render_key, notes: list[str] | None = None
) -> dict[str, SecretBytes]:
    """Return the values after all steps. Errors name the step. Unintended-looking results are added to `notes`."""
    current = dict(values)
    for index, step in enumerate(steps):
        try:
            said: list[str] = []
            current = _step(current, step, render, said)
            if notes is not None:
                notes += [f"rewrite[{index}]: {note}" for note in said]
        except ShapeError as problem:
            raise ShapeError(f"rewrite[{index}]: {problem}") from None
    return current


def _step(values: Values, step: Rewrite, render: RenderText, notes: list[str]) -> dict[str, SecretBytes]:
    """Run the operation of one step. If a step has several, merge runs before regexp, and regexp before transform."""
    operation = step.merge or step.regexp or step.transform
    match operation:
        case MergeRewrite():
            allow(render, _MERGE_NANOS * sum(map(len, values.values())))
            return _merged(values, operation)
        case RegexpRewrite():
            return _renamed(values, _by_regexp(operation, render), notes)
        case TransformRewrite():
            return _renamed(values, _by_template(operation, render), notes)
        case None:
            return dict(values)
        case _:
            assert_never(operation)


def _renamed(values: Values, rename: Callable[[str], str], notes: list[str]) -> dict[str, SecretBytes]:
    origin: dict[str, str] = {}
    for key in sorted(values):
        name = rename(key)
        if name in origin and len(notes) < _MAX_NOTES:
            notes.append(f'"{origin[name]}" and "{key}" both become "{name}"; the value of "{key}" is used')
        origin[name] = key
    return {name: values[key] for name, key in origin.items()}


def _by_regexp(operation: RegexpRewrite, render: RenderText) -> Callable[[str], str]:
    allow(render, pattern_nanos(operation.source, ""))
    try:
        pattern = compiled(operation.source)
    except BadPatternError as problem:
        raise ShapeError(f"regexp.source is not a regular expression (RE2): {problem.in_full}") from None

    def rename(key: str) -> str:
        allow(render, pattern_nanos(operation.source, key))
        try:
            return replace_all(pattern, key, operation.target)
        except FuncError as problem:
            raise ShapeError(f"regexp: {problem}") from None

    return rename


def _by_template(operation: TransformRewrite, render: RenderText) -> Callable[[str], str]:
    def rename(key: str) -> str:
        try:
            key_alone = {"value": key.encode("utf-8", "surrogateescape")}
            rendered = render(operation.template, key_alone, name="transform").decode("utf-8", "surrogateescape")
        except RenderError as problem:
            raise ShapeError(f'transform of key "{key}": {problem}') from None
        if _NO_VALUE in rendered:
            raise ShapeError(f'transform of key "{key}": prints a field that is not there; the key is .value')
        return rendered

    return rename


def _merged(values: Values, operation: MergeRewrite) -> dict[str, SecretBytes]:
    merged: dict[str, Any] = {}
    conflicts: set[str] = set()
    for key in _in_order(values, operation):
        properties = _object(key, values[key])
        conflicts |= merged.keys() & properties.keys()
        merged |= properties
    if conflicts and operation.conflict_policy != "Ignore":
        named = ", ".join(f'"{name}"' for name in sorted(conflicts)[:20])
        raise ShapeError(
            f"merge: several keys have the properties {named}; set conflictPolicy Ignore to let priority decide"
        )
    if operation.strategy == "JSON":
        if not operation.into:
            raise ShapeError("merge: strategy JSON needs into, the key for the merged object")
        return {**values, operation.into: _secret(encode(merged, escape_html=False))}
    return {name: _secret(_text(value)) for name, value in merged.items()}


def _in_order(values: Values, operation: MergeRewrite) -> list[str]:
    """Return the keys that priority does not name, sorted, then those that it names; later ones win."""
    missing = [key for key in operation.priority if key not in values]
    if missing and operation.priority_policy != "IgnoreNotFound":
        raise ShapeError(f'merge: priority names "{missing[0]}", which was not fetched; see priorityPolicy')
    named = [key for key in operation.priority if key in values]
    return [*sorted(key for key in values if key not in operation.priority), *named]


def _object(key: str, value: SecretBytes) -> dict[str, Any]:
    try:
        found = decode(value.reveal().decode("utf-8", "surrogateescape"))
    except JsonError:
        found = ()
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ShapeError(f'merge: the value of "{key}" is not a JSON object')
    if len(found) > _MAX_KEYS:
        raise ShapeError(f'merge: the value of "{key}" has more than {_MAX_KEYS} properties')
    return found


def _text(value: Any) -> str:
    """Return a property as the text of a key's value."""
    match value:
        case str():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return format_float(value, "f", -1)
        case _:
            return encode(value)


def _secret(text: str) -> SecretBytes:
    return SecretBytes(text.encode("utf-8", "surrogateescape"))
