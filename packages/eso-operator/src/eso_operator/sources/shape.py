"""Shaping of fetched values for the template: rewrite or convert keys, check names, decode, refuse null bytes.

Pure. The order is part of the API: rewrite steps see undecoded values, and with rewrite steps no key is converted.

Key names: the rules are those of the existing operator, where letters and numbers of every script are valid. The API
server may still reject such a key.

Rewrite steps rename or merge keys. Each step works on the result of the step before it. If two keys get the same name,
the key that sorts last by its old name wins, and a note names both. The same input always gives the same Secret; in the
existing operator the winner is random.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, assert_never

from eso_api.externalsecret import Find, RemoteRef
from eso_api.template import MergeRewrite, RegexpRewrite, Rewrite, TransformRewrite
from eso_api.values import SecretBytes
from eso_operator.sources.entries import Extract, FindMany, Generate, OneValue, ReadEntry
from eso_render.engine import render_key
from eso_render.errors import RenderError
from eso_render.metering import TooSlowError, allow, pattern_nanos
from eso_render.templates import DecodingError, RenderText, decode
from gotmpl.errors import FuncError
from gotmpl.floats import format_float
from gotmpl.jsontext import JsonError, encode
from gotmpl.jsontext import decode as decode_json
from gotmpl.sprig.regexes import BadPatternError, compiled, replace_all


class ShapeError(ValueError):
    """Fetched values cannot be shaped as the entry asks. The message names the key and the remedy."""


V = TypeVar("V")

MAX_KEY_BYTES: Final = 253
_PUNCTUATION: Final = frozenset("-._")


def converted(values: Mapping[str, V], strategy: str) -> dict[str, V]:
    """Return the map with every key converted. Raises ShapeError if two keys become one."""
    result: dict[str, V] = {}
    origins: dict[str, str] = {}
    for key, value in values.items():
        name = convert(key, strategy)
        if name in result:
            raise ShapeError(
                f'keys "{origins[name]}" and "{key}" both become "{name}": use conversionStrategy Unicode, or rewrite'
            )
        result[name] = value
        origins[name] = key
    return result


def convert(key: str, strategy: str) -> str:
    """Convert one key: invalid characters become `_`, or `_U1f600_` under strategy Unicode."""
    match strategy:
        case "" | "Default":
            return "".join(one if _fits(one) else "_" for one in key)
        case "Unicode":
            return "".join(one if _fits(one) else f"_U{ord(one):04x}_" for one in key)
        case _:
            return key


def checked(values: Mapping[str, V]) -> dict[str, V]:
    """Return the map without empty keys. Raises ShapeError for a key that a Secret cannot hold."""
    for key in values:
        if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
            raise ShapeError(f'key "{key[:40]}…" is longer than {MAX_KEY_BYTES} bytes: shorten it with rewrite')
        if not all(map(_fits, key)):
            raise ShapeError(
                f'key "{key}" has characters other than letters, digits, "-", "." and "_":'
                " use rewrite, or conversionStrategy without rewrite"
            )
    return {key: value for key, value in values.items() if key}


def _fits(character: str) -> bool:
    return character in _PUNCTUATION or unicodedata.category(character)[0] in "LN"


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
            step_notes: list[str] = []
            current = _step(current, step, render, step_notes)
            if notes is not None:
                notes += [f"rewrite[{index}]: {note}" for note in step_notes]
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
        found = decode_json(value.reveal().decode("utf-8", "surrogateescape"))
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


Values = Mapping[str, SecretBytes]

_KEY_NANOS: Final = 1_000
_BYTE_NANOS: Final = 20
_ENTRY_NANOS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Shaped:
    """The merged values of all entries, where later entries win, and the problems of entries by path."""

    values: dict[str, SecretBytes]
    problems: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    """Notes on results that the user may not have intended."""


def shape_all(entries: Sequence[ReadEntry], render: RenderText = render_key) -> Shaped:
    """Shape and merge all entries. Every entry is tried, so that a user sees all causes at once."""
    shaped = Shaped({})
    for read in entries:
        try:
            allow(render, _nanos(read.value))
            notes: list[str] = []
            shaped.values.update(_shaped(read, render, notes))
            shaped.remarks.extend(f"{read.entry.path}: {note}" for note in notes)
        except (ShapeError, TooSlowError) as problem:
            shaped.problems[read.entry.path] = str(problem)
    return shaped


def _shaped(read: ReadEntry, render: RenderText, notes: list[str]) -> dict[str, SecretBytes]:
    match read.entry, read.value:
        case OneValue() as entry, SecretBytes() as value:
            return {entry.key: shape_value(value, entry.ref)}
        case Extract() as entry, Mapping() as values:
            return shape_fetched(values, entry.ref, entry.steps, render, notes)
        case FindMany() as entry, Mapping() as values:
            if not values:
                matched = f"it matches 0 of {read.considered} keys" if read.considered else "it matches no key"
                notes.append(f"{matched}; check name, tags and path")
            return shape_fetched(values, entry.find, entry.steps, render, notes)
        case Generate() as entry, Mapping() as values:
            return shape_generated(values, entry.steps, render, notes)
        case _:
            raise ShapeError("the provider returned another shape than was requested")


def _nanos(value: SecretBytes | Values) -> int:
    """Return an upper bound of the time for checking names and decoding."""
    if isinstance(value, SecretBytes):
        return _ENTRY_NANOS + _BYTE_NANOS * len(value)
    return sum(_ENTRY_NANOS + _KEY_NANOS * len(key) + _BYTE_NANOS * len(part) for key, part in value.items())


def shape_value(value: SecretBytes, ref: RemoteRef) -> SecretBytes:
    """Shape the value of one entry of `data`."""
    return _without_null_bytes(_decoded(value, ref.decoding_strategy, ""), ref.null_byte_policy, "")


def shape_fetched(
    values: Values,
    source: RemoteRef | Find,
    steps: Sequence[Rewrite],
    render: RenderText = render_key,
    notes: list[str] | None = None,
) -> dict[str, SecretBytes]:
    """Shape the values of one `extract` or `find`."""
    named = rewritten(values, steps, render, notes) if steps else converted(values, source.conversion_strategy)
    decoded = {key: _decoded(value, source.decoding_strategy, key) for key, value in checked(named).items()}
    return {key: _without_null_bytes(decoded[key], source.null_byte_policy, key) for key in sorted(decoded)}


def shape_generated(
    values: Values, steps: Sequence[Rewrite], render: RenderText = render_key, notes: list[str] | None = None
) -> dict[str, SecretBytes]:
    """Shape the values of a generator: rewrite keys, without conversion or decoding."""
    return checked(rewritten(values, steps, render, notes))


def _decoded(value: SecretBytes, strategy: str, key: str) -> SecretBytes:
    try:
        return SecretBytes(decode(strategy, value.reveal()))
    except DecodingError as problem:
        raise ShapeError(f'key "{key}": {problem}' if key else str(problem)) from None


def _without_null_bytes(value: SecretBytes, policy: str, key: str) -> SecretBytes:
    if policy == "Fail" and b"\0" in value.reveal():
        raise ShapeError(f"{f'key {key!r}' if key else 'the value'} contains a null byte, and nullBytePolicy is Fail")
    return value
