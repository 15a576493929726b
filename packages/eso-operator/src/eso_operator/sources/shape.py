"""Shaping of fetched values for the template: rewrite or convert keys, check names, decode, refuse null bytes.

Pure. The order is part of the API: rewrite steps see undecoded values, and with rewrite steps no key is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eso_api.externalsecret import Find, RemoteRef
from eso_api.rewrite import Rewrite
from eso_api.values import SecretBytes
from eso_operator.sources.errors import ShapeError
from eso_operator.sources.keys import checked, converted
from eso_operator.sources.rewrite import rewritten
from eso_operator.sources.wants import Answered, Extract, FindMany, Generate, OneValue
from eso_render.decoding import DecodingError, decode
from eso_render.engine import render_key
from eso_render.metering import TooSlowError, allow
from eso_render.scopes import RenderText

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


def shape_all(entries: Sequence[Answered], render: RenderText = render_key) -> Shaped:
    """Shape and merge all entries. Every entry is tried, so that a user sees all causes at once."""
    shaped = Shaped({})
    for entry in entries:
        try:
            allow(render, _nanos(entry.answer))
            notes: list[str] = []
            shaped.values.update(_shaped(entry, render, notes))
            shaped.remarks.extend(f"{entry.want.path}: {note}" for note in notes)
        except (ShapeError, TooSlowError) as problem:
            shaped.problems[entry.want.path] = str(problem)
    return shaped


def _shaped(entry: Answered, render: RenderText, notes: list[str]) -> dict[str, SecretBytes]:
    match entry.want, entry.answer:
        case OneValue() as want, SecretBytes() as answer:
            return {want.key: shape_value(answer, want.ref)}
        case Extract() as want, Mapping() as answers:
            return shape_fetched(answers, want.ref, want.steps, render, notes)
        case FindMany() as want, Mapping() as answers:
            if not answers:
                matched = f"it matches 0 of {entry.considered} keys" if entry.considered else "it matches no key"
                notes.append(f"{matched}; check name, tags and path")
            return shape_fetched(answers, want.find, want.steps, render, notes)
        case Generate() as want, Mapping() as answers:
            return shape_generated(answers, want.steps, render, notes)
        case _:
            raise ShapeError("the provider answered with another shape than was asked for")


def _nanos(answer: SecretBytes | Values) -> int:
    """Return an upper bound of the time for checking names and decoding."""
    if isinstance(answer, SecretBytes):
        return _ENTRY_NANOS + _BYTE_NANOS * len(answer)
    return sum(_ENTRY_NANOS + _KEY_NANOS * len(key) + _BYTE_NANOS * len(value) for key, value in answer.items())


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
