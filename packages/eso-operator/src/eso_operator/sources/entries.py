"""The entries of an ExternalSecret, and the stores and generators that they name. Pure.

Entries are merged in order, and later entries win. `dataFrom` comes before `data`, so that a key of `data` overrides
the same key of `dataFrom`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from eso_api.externalsecret import DataEntry, DataFromEntry, ExternalSecretSpec, Find, RemoteRef, SourceNames, SourceRef
from eso_api.references import GeneratorRef, StoreRef
from eso_api.template import Rewrite
from eso_api.values import SecretBytes
from eso_wire.kinds import Operation


@dataclass(frozen=True, slots=True)
class OneValue:
    """One key from one remote value."""

    path: str
    store: StoreRef
    key: str
    ref: RemoteRef
    generator: GeneratorRef | None = None
    """A generator that is named instead of a store. That is an error: a generator returns many values."""

    @property
    def remote_key(self) -> str:
        return self.ref.key

    @property
    def operations(self) -> frozenset[Operation]:
        return frozenset({Operation.GET}) | _metadata(self.ref)


@dataclass(frozen=True, slots=True)
class Extract:
    """All properties of one remote key."""

    path: str
    store: StoreRef
    ref: RemoteRef
    steps: tuple[Rewrite, ...]

    @property
    def remote_key(self) -> str:
        return self.ref.key

    @property
    def operations(self) -> frozenset[Operation]:
        return frozenset({Operation.GET_MAP}) | _metadata(self.ref)


@dataclass(frozen=True, slots=True)
class FindMany:
    """Many remote keys, found by name, tags or path."""

    path: str
    store: StoreRef
    find: Find
    steps: tuple[Rewrite, ...]

    @property
    def remote_key(self) -> str:
        return self.find.path or ""

    @property
    def operations(self) -> frozenset[Operation]:
        if self.find.tags:
            return frozenset({Operation.FIND_BY_TAGS})
        return frozenset({Operation.FIND_BY_NAME if self.find.name is not None else Operation.FIND_BY_PATH})


@dataclass(frozen=True, slots=True)
class Generate:
    """Values of a generator. `index` is the position of the entry in `dataFrom`; it identifies the generated state."""

    path: str
    generator: GeneratorRef
    steps: tuple[Rewrite, ...]
    index: int


Read = OneValue | Extract | FindMany
Entry = Read | Generate


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An entry of the spec with the value from its provider or generator."""

    entry: Entry
    value: SecretBytes | Mapping[str, SecretBytes] = field(repr=False)
    considered: int = 0
    """The number of keys that a search compared with its query; 0 if the provider does not report it."""


def entries_of(spec: ExternalSecretSpec) -> tuple[Entry, ...]:
    """Return every entry of the spec. An entry of `dataFrom` that names only a store is left out."""
    return (*_from_data_from(spec), *_from_data(spec))


def _from_data_from(spec: ExternalSecretSpec) -> Iterator[Entry]:
    for index, entry in enumerate(spec.data_from):
        store, steps, path = _store(spec, entry.source_ref), tuple(entry.rewrite), f"spec.dataFrom[{index}]"
        if entry.find is not None:
            yield FindMany(f"{path}.find", store, entry.find, steps)
        elif entry.extract is not None:
            yield Extract(f"{path}.extract", store, entry.extract, steps)
        elif (generator := _generator(entry)) is not None:
            yield Generate(f"{path}.sourceRef.generatorRef", generator, steps, index)


def _from_data(spec: ExternalSecretSpec) -> Iterator[Entry]:
    for index, entry in enumerate(spec.data):
        store, generator = _store(spec, entry.source_ref), _generator(entry)
        yield OneValue(f"spec.data[{index}]", store, entry.secret_key, entry.remote_ref, generator)


def _store(spec: ExternalSecretSpec, source: SourceRef | None) -> StoreRef:
    """Return the store of the entry, else the store of the spec; an empty reference if the entry names a generator."""
    if source is not None:
        return source.store_ref or StoreRef()
    return spec.secret_store_ref or StoreRef()


def _generator(entry: DataEntry | DataFromEntry) -> GeneratorRef | None:
    return entry.source_ref.generator_ref if entry.source_ref is not None else None


def _metadata(ref: RemoteRef) -> frozenset[Operation]:
    return frozenset({Operation.METADATA_FETCH} if ref.metadata_policy == "Fetch" else ())


DEFAULT_KIND: Final = "SecretStore"
_SHOWN: Final = 3


def references_of(spec: ExternalSecretSpec) -> tuple[StoreRef | GeneratorRef, ...]:
    """Return every store and generator that the object names, the default store first, each once."""
    default = spec.secret_store_ref
    found: dict[StoreRef | GeneratorRef, None] = {default: None} if default is not None and default.name else {}
    for source in (*(entry.source_ref for entry in spec.data), *(entry.source_ref for entry in spec.data_from)):
        if source is not None:
            found |= {ref: None for ref in (source.store_ref, source.generator_ref) if ref is not None}
    return tuple(found)


def source_names(spec: ExternalSecretSpec) -> SourceNames | None:
    """Return the kind and name of the sources, without the fields that `spec.secretStoreRef` has itself."""
    default = spec.secret_store_ref
    if default is not None and default.name:
        return None if default.kind else SourceNames(kind=DEFAULT_KIND)
    references = references_of(spec)
    if not references:
        return None
    return SourceNames(
        kind=_listed([ref.kind or DEFAULT_KIND for ref in references]), name=_listed([ref.name for ref in references])
    )


def _listed(names: list[str]) -> str:
    """Return the first distinct names and the number of the others, as kubectl abbreviates lists."""
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _SHOWN
    return ",".join(distinct[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")
