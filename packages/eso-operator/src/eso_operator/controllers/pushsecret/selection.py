"""Which values go where: the keys of each source, the stores, and the remote keys. Pure.

    template -> for each store and source: dataTo and data -> deliveries

    dataTo   conversion -> match -> rewrite (or one bundle)      on the converted names of the source's keys
    data     wins over dataTo entries with the same source key, and comes last

There are three sets of names: the keys of the Secret (conflicts are resolved on these), the converted keys (matching,
rewriting), and the remote names (must be unique). All of this happens before the first push, so an error in the spec
stops everything and leaves no partial push.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeVar

from eso_api.pushsecret import PushData, PushDataTo, PushMatch, PushRemoteRef, PushRewrite, PushSecret, PushSecretSpec
from eso_api.template import Rewrite
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.record import NOTHING, RemoteKey, RemoteValue, keys_of
from eso_operator.controllers.pushsecret.snapshot import PushSource, PushStore, caller_of, targets_store
from eso_operator.sources.shape import ShapeError, rewritten
from eso_render.engine import render_key
from eso_render.metering import allow, pattern_nanos
from eso_render.secret import Desired
from eso_render.templates import RenderText
from eso_wire.values import ObjectRef, RemoteRef, SecretMap, SourceSecret
from gotmpl.sprig.regexes import BadPatternError, compiled
from kubebase.hints import with_hint

REVERSE_UNICODE: Final = "ReverseUnicode"
_ESCAPE: Final = re.compile(r"_U([0-9a-fA-F]{4,5})_")
_KEY_NANOS: Final = 1_000

V = TypeVar("V")
Values = Mapping[str, SecretBytes]


class EntryError(ShapeError):
    """An entry that cannot be pushed as it is written; nothing is pushed then."""

    def __init__(self, path: str, message: str, remote_key: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.remote_key = remote_key


@dataclass(frozen=True, slots=True)
class Entry:
    """One value for one remote key. `data` is its record in the status."""

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
class SourceEntries:
    """The entries of one source for a store."""

    source: SourceSecret
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """All entries for one store. `ours` are those in the status, `known` the values that this process remembers."""

    store: PushStore
    by_source: tuple[SourceEntries, ...]
    spec: PushSecretSpec
    caller: ObjectRef
    ours: frozenset[RemoteKey] = frozenset()
    known: Mapping[RemoteKey, RemoteValue] = field(default_factory=lambda: NOTHING)

    @property
    def entries(self) -> list[Entry]:
        return [entry for each in self.by_source for entry in each.entries]

    def key(self, entry: Entry) -> RemoteKey:
        return RemoteKey.of(self.store.key, entry.data)

    def only(self, wanted: Callable[[Entry], bool]) -> Delivery:
        """Return the same delivery with the wanted entries alone."""
        left = [SourceEntries(each.source, tuple(filter(wanted, each.entries))) for each in self.by_source]
        return replace(self, by_source=tuple(each for each in left if each.entries))


# --- deliveries -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries of the spec to apply, and the values to apply them to."""

    data: Sequence[PushData]
    rules: Sequence[tuple[int, PushDataTo]]
    """Entries of dataTo that are for the store, each with its index in the spec."""
    values: Values = field(repr=False)


def templated(source: PushSource, desired: Desired) -> PushSource:
    """Return the source after its template. Its own keys stay; type, labels and annotations follow the template."""
    about = SourceSecret(
        type=desired.type,
        labels={**source.about.labels, **desired.labels},
        annotations={**source.about.annotations, **desired.annotations},
    )
    return replace(source, about=about, values=desired.data)


def selections(push: PushSecret, stores: Sequence[PushStore], sources: Sequence[PushSource]) -> tuple[Selection, ...]:
    """Return the selection of each store from each source, in order. Raises SelectorError."""
    return tuple(selection_for(store, push.spec, source.values) for store in stores for source in sources)


def selection_for(store: PushStore, spec: PushSecretSpec, values: Mapping[str, SecretBytes]) -> Selection:
    """Return the selection of one store from one source."""
    rules = [
        (index, rule)
        for index, rule in enumerate(spec.data_to)
        if rule.store_ref is not None and targets_store(rule.store_ref, store)
    ]
    return Selection(spec.data, rules, values)


def deliveries(
    push: PushSecret,
    stores: Sequence[PushStore],
    *,
    sources: Sequence[PushSource],
    known: Mapping[RemoteKey, RemoteValue],
    selected: Sequence[tuple[Entry, ...]],
) -> Iterator[Delivery]:
    """Yield one delivery for each store, from the results of `selections`."""
    results, recorded = iter(selected), frozenset(keys_of(push.status))
    for store in stores:
        of_sources = [(source, next(results)) for source in sources]
        # If several sources have a value for one remote key, the last source by name wins.
        winners = {
            RemoteKey.of(store.key, entry.data): source.name for source, entries in of_sources for entry in entries
        }
        won = [
            SourceEntries(
                source.about,
                tuple(each for each in entries if winners[RemoteKey.of(store.key, each.data)] == source.name),
            )
            for source, entries in of_sources
        ]
        yield Delivery(
            store=store,
            by_source=tuple(each for each in won if each.entries),
            spec=push.spec,
            caller=caller_of(push),
            ours=frozenset(key for key in recorded if key.store == store.key),
            known=known,
        )


# --- the entries of one source for one store --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SourceKeys:
    """The values to select from, and their keys as converted by each strategy, computed once for all entries."""

    values: Values
    names: Callable[[str], dict[str, str]]


def select_all(selections: Sequence[Selection], *, render: RenderText = render_key) -> tuple[tuple[Entry, ...], ...]:
    """Return the entries of each selection, in order."""
    return tuple(select(selection, render=render) for selection in selections)


def select(selection: Selection, *, render: RenderText = render_key) -> tuple[Entry, ...]:
    """Return all entries from one source for one store."""
    values, data = selection.values, selection.data
    allow(render, _KEY_NANOS * sum(map(len, values)))
    source = _SourceKeys(values, cache(lambda strategy: read_keys(values, strategy)))
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


def _many(rules: Sequence[tuple[int, PushDataTo]], source: _SourceKeys, render: RenderText) -> list[Entry]:
    entries = [entry for index, rule in rules for entry in _expanded(f"spec.dataTo[{index}]", rule, source, render)]
    _refuse_twice(entries, "the same remote key")
    return entries


def _expanded(path: str, rule: PushDataTo, source: _SourceKeys, render: RenderText) -> Iterator[Entry]:
    """Yield the entries of one rule: one for each matching key, or one for all of them."""
    values, raw_of = source.values, _converted(path, source, rule.conversion_strategy)
    matching = [name for name in sorted(raw_of) if _matches(path, rule, name, render)]
    if not matching:
        return
    if rule.remote_key:
        bundle = {name: values[raw_of[name]] for name in matching}
        yield Entry(path, _data("", rule.remote_key, rule.metadata), bundle)
        return
    for name in matching:
        remote_key = _rewritten(path, name, rule.rewrite, render)
        if not remote_key:
            raise EntryError(path, f'rewrite turns key "{name}" into an empty remote key')
        yield Entry(path, _data(raw_of[name], remote_key, rule.metadata), values[raw_of[name]])


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


def _data(secret_key: str, remote_key: str, metadata: Any) -> PushData:
    remote = PushRemoteRef(remote_key=remote_key)
    return PushData(match=PushMatch(secret_key=secret_key, remote_ref=remote), metadata=metadata)


# --- data -------------------------------------------------------------------------------------------------------------


def _explicit(path: str, data: PushData, source: _SourceKeys) -> Entry:
    remote_key, wanted = data.match.remote_ref.remote_key, data.match.secret_key
    values, raw_of = source.values, _converted(path, source, data.conversion_strategy)
    if not wanted:
        return Entry(path, data, {name: values[raw] for name, raw in raw_of.items()})
    if wanted not in raw_of:
        raise EntryError(path, with_hint(f'the source has no key "{wanted}"', wanted, raw_of), remote_key)
    return Entry(path, data, values[raw_of[wanted]])


def _source_key(data: PushData, source: _SourceKeys) -> str:
    """Return the key of an entry, as the Secret has it."""
    raw_of = _converted("spec.data", source, data.conversion_strategy)
    return raw_of.get(data.match.secret_key, data.match.secret_key)


def _converted(path: str, source: _SourceKeys, strategy: str) -> dict[str, str]:
    try:
        return source.names(strategy)
    except ShapeError as problem:
        raise EntryError(path, str(problem)) from None


def _refuse_twice(entries: Sequence[Entry], what: str) -> None:
    first: dict[RemoteRef, str] = {}
    for entry in entries:
        if (other := first.get(entry.remote)) is not None:
            place = f'"{entry.remote.key}"' + (f', property "{entry.remote.property}"' if entry.remote.property else "")
            between = f"{other} and {entry.path} push" if other != entry.path else f"several keys of {other} go"
            raise EntryError(entry.path, f"{between} to {what}: {place}", entry.remote.key)
        first[entry.remote] = entry.path


# --- conversionStrategy ----------------------------------------------------------------------------------------------


def read_key(key: str, strategy: str) -> str:
    """Convert one key by the strategy."""
    return _ESCAPE.sub(_character, key) if strategy == REVERSE_UNICODE else key


def read_keys(values: Mapping[str, V], strategy: str) -> dict[str, str]:
    """Map each converted key to its key in the Secret; raise if two keys convert to the same name."""
    raw_of: dict[str, str] = {}
    for raw in sorted(values):
        name = read_key(raw, strategy)
        if name in raw_of:
            raise ShapeError(
                f'keys "{raw_of[name]}" and "{raw}" both read as "{name}" under conversionStrategy {strategy}: rename'
            )
        raw_of[name] = raw
    return raw_of


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    # Half of a surrogate pair is not a character.
    return "\N{REPLACEMENT CHARACTER}" if 0xD800 <= code <= 0xDFFF else chr(code)
