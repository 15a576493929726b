"""Selects the entries for one store: `data` and `dataTo` applied to the values of one source. Pure.

    dataTo   conversion -> match -> rewrite (or one bundle)      on the converted names of the source's keys
    data     wins over dataTo entries with the same source key, and comes last

There are three sets of names: the keys of the Secret (conflicts are resolved on these), the converted keys (matching,
rewriting), and the remote names (must be unique).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from eso_api.pushsecret import PushData, PushDataTo, PushMatch, PushRemoteRef, PushRewrite
from eso_api.rewrite import Rewrite
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.conversion import read_keys
from eso_operator.sources.shape import ShapeError, rewritten
from eso_render.engine import render_key
from eso_render.metering import allow, pattern_nanos
from eso_render.scopes import RenderText
from eso_wire.values import RemoteRef, SecretMap
from gotmpl.sprig.regexes import BadPatternError, compiled
from kubebase.hints import with_hint

Values = Mapping[str, SecretBytes]

_KEY_NANOS: Final = 1_000


class EntryError(ShapeError):
    """An entry that cannot be pushed as it is written; nothing is pushed then."""

    def __init__(self, path: str, message: str, remote_key: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.remote_key = remote_key


@dataclass(frozen=True, slots=True)
class Entry:
    """One value for one place. `data` is its record in the status."""

    path: str
    data: PushData
    payload: SecretBytes | SecretMap = field(repr=False)

    @property
    def remote(self) -> RemoteRef:
        ref = self.data.match.remote_ref
        return RemoteRef(ref.remote_key, property=ref.property)

    @property
    def is_whole(self) -> bool:
        return not isinstance(self.payload, SecretBytes)

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """Return the settings for the provider; raise if they are not an object."""
        given = self.data.metadata
        if given is None or isinstance(given, Mapping):
            return given
        raise EntryError(self.path, "metadata must be an object", self.remote.key)


@dataclass(frozen=True, slots=True)
class _Source:
    """The values to select from, and their keys as converted by each strategy, computed once for all entries."""

    values: Values
    names: Callable[[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries of the spec to apply, and the values to apply them to."""

    data: Sequence[PushData]
    rules: Sequence[tuple[int, PushDataTo]]
    """Entries of dataTo that are for the store, each with its place in the spec."""
    values: Values = field(repr=False)


def select_all(selections: Sequence[Selection], *, render: RenderText = render_key) -> tuple[tuple[Entry, ...], ...]:
    """Return the entries of each selection, in order."""
    return tuple(select(selection, render=render) for selection in selections)


def select(selection: Selection, *, render: RenderText = render_key) -> tuple[Entry, ...]:
    """Return all entries from one source for one store."""
    values, data = selection.values, selection.data
    allow(render, _KEY_NANOS * sum(map(len, values)))
    source = _Source(values, cache(lambda strategy: read_keys(values, strategy)))
    explicit = [_explicit(f"spec.data[{index}]", each, source) for index, each in enumerate(data)]
    taken = {_source_key(each, source) for each in data}
    found = _many(selection.rules, source, render)
    many = [entry for entry in found if entry.data.match.secret_key not in taken]
    entries = (*many, *explicit)
    _refuse_twice(entries, "the same place")
    for entry in entries:
        _ = entry.metadata
    return entries


# --- dataTo -----------------------------------------------------------------------------------------------------------


def _many(rules: Sequence[tuple[int, PushDataTo]], source: _Source, render: RenderText) -> list[Entry]:
    entries = [entry for index, rule in rules for entry in _expanded(f"spec.dataTo[{index}]", rule, source, render)]
    _refuse_twice(entries, "the same remote key")
    return entries


def _expanded(path: str, rule: PushDataTo, source: _Source, render: RenderText) -> Iterator[Entry]:
    """Yield the entries of one rule: one for each matching key, or one for all of them."""
    values, raw_of = source.values, _names(path, source, rule.conversion_strategy)
    matching = [name for name in sorted(raw_of) if _matches(path, rule, name, render)]
    if not matching:
        return
    if rule.remote_key:
        bundle = {name: values[raw_of[name]] for name in matching}
        yield Entry(path, _recorded("", rule.remote_key, rule.metadata), bundle)
        return
    for name in matching:
        remote_key = _rewritten(path, name, rule.rewrite, render)
        if not remote_key:
            raise EntryError(path, f'rewrite turns key "{name}" into an empty remote key')
        yield Entry(path, _recorded(raw_of[name], remote_key, rule.metadata), values[raw_of[name]])


def _matches(path: str, rule: PushDataTo, name: str, render: RenderText) -> bool:
    pattern = rule.match.regexp if rule.match is not None else ""
    if not pattern:
        return True
    allow(render, pattern_nanos(pattern, name))
    try:
        return compiled(pattern).search(name.encode("utf-8", "surrogateescape")) is not None
    except BadPatternError as problem:
        raise EntryError(path, f"match.regexp is not a regular expression (RE2): {problem.in_full}") from None


def _rewritten(path: str, name: str, steps: Sequence[PushRewrite], render: RenderText) -> str:
    shaped = [Rewrite(regexp=step.regexp, transform=step.transform) for step in steps]
    try:
        return next(iter(rewritten({name: SecretBytes(b"")}, shaped, render)))
    except ShapeError as problem:
        raise EntryError(path, str(problem)) from None


def _recorded(secret_key: str, remote_key: str, metadata: Any) -> PushData:
    remote = PushRemoteRef(remote_key=remote_key)
    return PushData(match=PushMatch(secret_key=secret_key, remote_ref=remote), metadata=metadata)


# --- data -------------------------------------------------------------------------------------------------------------


def _explicit(path: str, data: PushData, source: _Source) -> Entry:
    remote_key, wanted = data.match.remote_ref.remote_key, data.match.secret_key
    values, raw_of = source.values, _names(path, source, data.conversion_strategy)
    if not wanted:
        return Entry(path, data, {name: values[raw] for name, raw in raw_of.items()})
    if wanted not in raw_of:
        raise EntryError(path, with_hint(f'the source has no key "{wanted}"', wanted, raw_of), remote_key)
    return Entry(path, data, values[raw_of[wanted]])


def _source_key(data: PushData, source: _Source) -> str:
    """Return the key of an entry, as the Secret has it."""
    raw_of = _names("spec.data", source, data.conversion_strategy)
    return raw_of.get(data.match.secret_key, data.match.secret_key)


def _names(path: str, source: _Source, strategy: str) -> dict[str, str]:
    try:
        return source.names(strategy)
    except ShapeError as problem:
        raise EntryError(path, str(problem)) from None


def _refuse_twice(entries: Sequence[Entry], what: str) -> None:
    seen: dict[RemoteRef, str] = {}
    for entry in entries:
        if (other := seen.get(entry.remote)) is not None:
            place = f'"{entry.remote.key}"' + (f', property "{entry.remote.property}"' if entry.remote.property else "")
            between = f"{other} and {entry.path} push" if other != entry.path else f"several keys of {other} go"
            raise EntryError(entry.path, f"{between} to {what}: {place}", entry.remote.key)
        seen[entry.remote] = entry.path
