"""Converts keys of a Secret to remote names: `_U1f600_` becomes the character with that code point. Pure.

Selects the entries for one store: `data` and `dataTo` applied to the values of one source. Pure.

    dataTo   conversion -> match -> rewrite (or one bundle)      on the converted names of the source's keys
    data     wins over dataTo entries with the same source key, and comes last

There are three sets of names: the keys of the Secret (conflicts are resolved on these), the converted keys (matching,
rewriting), and the remote names (must be unique).

Builds deliveries from sources and stores: template, selection, and the source that wins a place.

This happens before the first push, so an error in the spec stops everything and leaves no partial push.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, TypeVar

from eso_api.pushsecret import PushData, PushDataTo, PushMatch, PushRemoteRef, PushRewrite, PushSecret, PushSecretSpec
from eso_api.template import Rewrite
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.record import (
    Known,
    Place,
    Spot,
    spot_of,
    spots_of,
)
from eso_operator.controllers.pushsecret.snapshot import Chosen, Source, caller_of, targets_store
from eso_operator.sources.shape import ShapeError, rewritten
from eso_render.engine import render_key
from eso_render.metering import allow, pattern_nanos
from eso_render.scopes import RenderText
from eso_render.secret import Desired
from eso_wire.values import (
    ObjectRef,
    RemoteRef,
    SecretMap,
    SourceSecret,
)
from gotmpl.sprig.regexes import BadPatternError, compiled
from kubebase.hints import with_hint


@dataclass(frozen=True, slots=True)
class Parcel:
    """The values of one source for a store."""

    source: SourceSecret
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Delivery:
    """All values for one store. `ours` are the entries in the status, `known` those that this process remembers."""

    store: Chosen
    parcels: tuple[Parcel, ...]
    spec: PushSecretSpec
    caller: ObjectRef
    ours: frozenset[Spot] = frozenset()
    known: Mapping[Place, Known] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        return [entry for parcel in self.parcels for entry in parcel.entries]

    def place(self, entry: Entry) -> Place:
        return Place(self.store.key, *spot_of(entry.data))

    def only(self, places: Collection[Place]) -> Delivery:
        """Return the same delivery without entries for other places."""
        parcels = [
            Parcel(parcel.source, tuple(entry for entry in parcel.entries if self.place(entry) in places))
            for parcel in self.parcels
        ]
        return replace(self, parcels=tuple(parcel for parcel in parcels if parcel.entries))

    def again(self, lost: Collection[str], known: Mapping[Place, Known]) -> Delivery | None:
        """Return a delivery of the entries for remote keys that may have been deleted since; None if there are none."""
        parcels = [
            Parcel(parcel.source, tuple(entry for entry in parcel.entries if entry.remote.key in lost))
            for parcel in self.parcels
        ]
        part = replace(self, parcels=tuple(parcel for parcel in parcels if parcel.entries))
        doubts = {place: known[place] for place in map(self.place, part.entries) if place in known}
        uncertain = {place: each._replace(digest=b"", version="") for place, each in doubts.items()}
        return replace(part, known=uncertain) if part.parcels else None


V = TypeVar("V")


REVERSE_UNICODE: Final = "ReverseUnicode"


_ESCAPE: Final = re.compile(r"_U([0-9a-fA-F]{4,5})_")

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


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
    return _REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)


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


def templated(source: Source, desired: Desired) -> Source:
    """Return the source after its template. Its own keys stay; type, labels and annotations follow the template."""
    about = SourceSecret(
        type=desired.type,
        labels={**source.about.labels, **desired.labels},
        annotations={**source.about.annotations, **desired.annotations},
    )
    return replace(source, about=about, values=desired.data)


def selections(push: PushSecret, stores: Sequence[Chosen], sources: Sequence[Source]) -> tuple[Selection, ...]:
    """Return the selection of each store from each source, in order. Raises SelectorError."""
    return tuple(selection_for(store, push.spec, source.values) for store in stores for source in sources)


def selection_for(store: Chosen, spec: PushSecretSpec, values: Mapping[str, SecretBytes]) -> Selection:
    """Return the selection of one store from one source."""
    rules = [
        (index, rule)
        for index, rule in enumerate(spec.data_to)
        if rule.store_ref is not None and targets_store(rule.store_ref, store)
    ]
    return Selection(spec.data, rules, values)


def deliveries(
    push: PushSecret,
    stores: Sequence[Chosen],
    *,
    sources: Sequence[Source],
    known: Mapping[Place, Known],
    selected: Sequence[tuple[Entry, ...]],
) -> Iterator[Delivery]:
    """Yield one delivery for each store, from the results of `selections`."""
    entries = iter(selected)
    for store in stores:
        given = [(source, next(entries)) for source in sources]
        yield Delivery(
            store=store,
            parcels=tuple(_parcels(given)),
            spec=push.spec,
            caller=caller_of(push),
            ours=spots_of(push.status.synced_push_secrets, store.key),
            known=known,
        )


def _parcels(selected: Sequence[tuple[Source, tuple[Entry, ...]]]) -> Iterator[Parcel]:
    """Yield the values of each source. If several sources have a value for one place, the last by name wins."""
    winner: dict[Spot, str] = {spot_of(entry.data): source.name for source, entries in selected for entry in entries}
    for source, entries in selected:
        won: tuple[Entry, ...] = tuple(entry for entry in entries if winner[spot_of(entry.data)] == source.name)
        if won:
            yield Parcel(source.about, won)
