"""Reads all entries of an ExternalSecret in as few calls as possible, then shapes and merges their values.

    entries_of -> each store: resolve -> bind -> one batched read, finds in parallel -> shape -> values

Every entry is tried, so that a user sees all causes at once. If any entry fails there are no values: a target is never
written from some of its sources. The deletion policy decides whether a missing remote key is a failure. Values are
removed only if the provider promises to distinguish a missing key from every other failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, assert_never

from eso_api.externalsecret import ExternalSecret, Find, RemoteRef
from eso_api.references import StoreRef
from eso_api.values import SecretBytes
from eso_operator.changes.followers import ReadState, Topic, WatchedKey, topic_of, topic_of_search
from eso_operator.dependencies import ANY_PROVIDER, Dependency, OnLabel, OnObject, on_connection, on_object
from eso_operator.generators.ledger import GeneratedValues
from eso_operator.generators.source import GeneratorSource
from eso_operator.providers.batching import ReadBatcher
from eso_operator.providers.bytelimits import HeldBytes
from eso_operator.providers.errors import cause_of
from eso_operator.providers.gateway import Gateway
from eso_operator.sources.entries import Entry, Extract, FindMany, Generate, OneValue, Read, ReadEntry, entries_of
from eso_operator.sources.shape import Shaped, shape_all
from eso_operator.stores.resolve import Resolver
from eso_operator.stores.resolved import Bind, BoundStore, Need, Reason, ResolutionError, ResolvedStore, need_to_read
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_wire import values as wire
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.status import TransportError
from eso_wire.values import GetItem, GetResult, NotModified, ObjectRef, Operation, Shape


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why one entry has no value. The message never contains a value."""

    path: str
    reason: str
    message: str
    remote_key: str = ""
    store: str = ""
    retry: RetryClass = RetryClass.BACKOFF
    retry_after: float = 0.0
    waits: float = 0.0
    """Seconds during which it does not count as a failure, because a provider is starting; 0 if it does."""
    unreachable: bool = False
    """True if the provider was not reached: its return causes the next attempt."""


@dataclass(frozen=True, slots=True)
class MissingRemoteKey:
    """An entry whose remote key does not exist, where the deletion policy allows that."""

    path: str
    remote_key: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of all entries. A change of one of `depends_on` wakes the ExternalSecret."""

    values: dict[str, SecretBytes]
    missing: tuple[MissingRemoteKey, ...] = ()
    failures: tuple[Failure, ...] = ()
    depends_on: frozenset[Dependency] = frozenset()
    made: tuple[GeneratedValues, ...] = ()
    refresh_within: float | None = None
    """Seconds until the first source wants to be read again; None if no source says so."""
    watched_keys: tuple[WatchedKey, ...] = ()
    """The reads whose providers can announce changes."""
    read_state: ReadState = ReadState.PART
    """WHOLE if `watched_keys` covers every entry."""
    read: tuple[ReadEntry, ...] = field(default=(), repr=False)
    """The entries with their values before they were shaped."""
    remarks: tuple[str, ...] = ()
    """Notes on results that the user may not have intended."""


# --- fetching ---------------------------------------------------------------------------------------------------------


Values = Mapping[str, SecretBytes]


_NO_STORE: Final = "no store is named: set spec.secretStoreRef.name, or sourceRef.storeRef of this entry"
_NO_SINGLE_VALUE: Final = (
    "is a generator, which makes many values and not one: name it in an entry of dataFrom, as sourceRef.generatorRef"
)
_NOT_SURE: Final = (
    ". Nothing is removed for it: the provider does not promise to tell absence from other failures"
    " (NOT_FOUND_SEMANTICS), which deletionPolicy Delete and Merge need; use Retain with it"
)


class Fetcher:
    """Fetches the values of ExternalSecrets. The process has one."""

    def __init__(
        self,
        resolver: Resolver,
        bind: Bind,
        *,
        reads: ReadBatcher,
        gateway: Gateway,
        generators: GeneratorSource,
        rendering: Rendering,
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._reads = reads
        self._gateway = gateway
        self._generators = generators
        self._rendering = rendering

    async def fetch(
        self, es: ExternalSecret, *, fresh_since: float | None = None, held: HeldBytes | None = None
    ) -> Fetched:
        """Return the values and failures of all entries. Errors of stores, providers and backends become failures.

        A cached value that was read before `fresh_since` (monotonic) is stale. The bytes of values count in `held`.
        """
        pass_ = _Pass(es, entries_of(es.spec), fresh_since, held)
        await _together(
            [
                *(self._from_store(pass_, ref, entries) for ref, entries in pass_.reads.items()),
                *(self._generate(pass_, entry) for entry in pass_.entries if isinstance(entry, Generate)),
            ]
        )
        return pass_.result(await self._shape(pass_))

    async def _shape(self, pass_: _Pass) -> Shaped:
        """Shape keys and values as the entries specify. If shaping is stopped, every entry fails with that error."""
        try:
            return await self._rendering.run(partial(shape_all, pass_.read_entries), pass_.es.metadata.namespace)
        except RenderError as problem:
            return Shaped({}, {each.entry.path: str(problem) for each in pass_.read_entries})

    async def watched_keys(self, es: ExternalSecret) -> tuple[WatchedKey, ...]:
        """Return the reads whose providers can announce changes, without reading or waiting for a provider.

        Raises ResolutionError, for example while a provider has not responded yet, and the errors of binding.
        """
        pass_ = _Pass(es, entries_of(es.spec))
        for ref, entries in pass_.reads.items():
            target = self._resolver.resolve_now(ref, pass_.caller, _need(entries))
            if target.supports_watch:
                pass_.saw(await self._bind(target), [(entry, "") for entry in entries])
        return tuple(pass_.watched_keys)

    def watchable_stores(self, es: ExternalSecret) -> frozenset[OnObject]:
        """Return the stores of an ExternalSecret that can announce changes. Raises ResolutionError; binds nothing."""
        pass_ = _Pass(es, entries_of(es.spec))
        targets = (
            self._resolver.resolve_now(ref, pass_.caller, _need(entries)) for ref, entries in pass_.reads.items()
        )
        return frozenset(on_object(target.store) for target in targets if target.supports_watch)

    async def _from_store(self, pass_: _Pass, ref: StoreRef, entries: list[Read]) -> None:
        """Read all entries of one store. A failure to resolve or bind the store fails all of them."""
        if not ref.name:
            pass_.nowhere_to_read(entries)
            return
        try:
            target = await self._resolver.resolve(ref, pass_.caller, _need(entries))
            pass_.went_by(target, entries)
            bound = await self._bind(target)
            pass_.depends_on |= {on_object(source) for source in bound.sources}
        except (ResolutionError, ProviderError) as error:
            pass_.unresolved(error, entries)
            return
        finds = [entry for entry in entries if isinstance(entry, FindMany)]
        values = [entry for entry in entries if not isinstance(entry, FindMany)]
        await _together(
            [
                *([self._read(pass_, bound, values)] if values else []),
                *(self._find(pass_, bound, entry) for entry in finds),
            ]
        )

    async def _read(self, pass_: _Pass, bound: BoundStore, entries: Sequence[OneValue | Extract]) -> None:
        items = [
            GetItem(entry.path, remote_ref(entry.ref), Shape.MAP if isinstance(entry, Extract) else Shape.SINGLE)
            for entry in entries
        ]
        try:
            results = await self._reads.read(bound, items, requested_at=pass_.fresh_since, held=pass_.held)
        except ProviderError as error:
            for entry in entries:
                pass_.fail(entry, error)
            return
        for entry, result in zip(entries, results, strict=True):
            pass_.take(entry, result)
        versions = (result.metadata.provider_version for result in results)
        pass_.saw(bound, zip(entries, versions, strict=True))

    async def _find(self, pass_: _Pass, bound: BoundStore, entry: FindMany) -> None:
        try:
            found = await self._gateway.find(bound, find_query(entry.find), held=pass_.held)
        except ProviderError as error:
            pass_.fail(entry, error)
            return
        pass_.saw(bound, [(entry, "")])
        if found.missing:
            pass_.fail(entry, ProviderError(ErrorReason.SECRET_NOT_FOUND, found.missing))
        else:
            pass_.results[entry.path] = {each.key: each.value for each in found.found}
            pass_.considered[entry.path] = found.considered

    async def _generate(self, pass_: _Pass, entry: Generate) -> None:
        try:
            made = await self._generators.generate(pass_.caller, entry.index, entry.generator, pass_.held)
        except (ResolutionError, ProviderError) as error:
            pass_.unresolved(error, [entry])
            return
        pass_.made.append(made)
        pass_.depends_on |= made.depends_on
        pass_.results[entry.path] = made.values
        pass_.ends_within(made.refresh_within)


@dataclass(slots=True, eq=False)
class _Pass:
    """One fetch in progress: its entries and their results so far, by the path of the entry."""

    es: ExternalSecret
    entries: tuple[Entry, ...]
    fresh_since: float | None = None
    held: HeldBytes | None = None
    """The time (monotonic) since which a response is fresh enough; None if its age does not matter."""
    results: dict[str, SecretBytes | Values] = field(default_factory=dict)
    considered: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    """Entries whose providers may report a missing key for another failure."""
    depends_on: set[Dependency] = field(default_factory=set)
    made: list[GeneratedValues] = field(default_factory=list)
    refresh_within: float | None = None
    watched_keys: list[WatchedKey] = field(default_factory=list)
    watchable: set[str] = field(default_factory=set)

    @property
    def reads(self) -> dict[StoreRef, list[Read]]:
        """Return the entries that read from stores, by store."""
        reads: dict[StoreRef, list[Read]] = {}
        for entry in self.entries:
            if not isinstance(entry, Generate):
                reads.setdefault(entry.store, []).append(entry)
        return reads

    @property
    def caller(self) -> ObjectRef:
        meta = self.es.metadata
        return ObjectRef(
            self.es.api_version or "external-secrets.io/v1",
            "ExternalSecret",
            meta.namespace,
            meta.name,
            meta.uid,
            meta.generation,
        )

    @property
    def tolerates_absence(self) -> bool:
        return self.es.spec.target.deletion_policy != "Retain"

    def went_by(self, target: ResolvedStore, entries: Sequence[Entry]) -> None:
        self.depends_on |= {on_connection(target.connection), OnLabel(target.endpoint.label)}
        self.depends_on |= {on_object(target.config.ref), on_object(target.store)}
        if Operation.NOT_FOUND_SEMANTICS not in target.operations:
            self.unsure |= {entry.path for entry in entries}

    def unresolved(self, error: ResolutionError | ProviderError, entries: Sequence[Entry]) -> None:
        self.depends_on.add(ANY_PROVIDER)
        if isinstance(error, ResolutionError):
            self.depends_on.add(on_object(error.subject))
        for entry in entries:
            self.fail(entry, error)

    def nowhere_to_read(self, entries: Sequence[Read]) -> None:
        """Fail entries that name no store; only a change of the spec can fix them."""
        for entry in entries:
            generator = entry.generator if isinstance(entry, OneValue) else None
            problem = _NO_STORE if generator is None else f"{generator.kind} {generator.name} {_NO_SINGLE_VALUE}"
            failure = _failure(entry, "InvalidSpec", problem, retry=RetryClass.AFTER_CHANGE)
            self.failed[entry.path] = replace(failure, store="")

    def take(self, entry: Entry, result: GetResult) -> None:
        self.ends_within(result.metadata.suggested_refresh or None)
        match result.outcome:
            case ProviderError() as error:
                self.fail(entry, error)
            case NotModified():
                self.failed[entry.path] = _failure(
                    entry, "Internal", "the provider left out a value that was requested"
                )
            case outcome:
                self.results[entry.path] = outcome

    def fail(self, entry: Entry, error: ResolutionError | ProviderError) -> None:
        # A missing property or version is usually a mistake in the spec: it is a failure and deletes nothing.
        absent = isinstance(error, ProviderError) and error.reason is ErrorReason.SECRET_NOT_FOUND
        gone = absent and self.tolerates_absence
        if gone and entry.path not in self.unsure:
            self.absent.add(entry.path)
            return
        failure = _failure_of(entry, error)
        self.failed[entry.path] = replace(failure, message=failure.message + _NOT_SURE) if gone else failure

    def saw(self, bound: BoundStore, versions: Iterable[tuple[Read, str]]) -> None:
        """Record which topics were read, each with the version from the provider or an empty one."""
        if bound.resolved.supports_watch:
            seen = [(entry, topic, version) for entry, version in versions if (topic := _topic(entry)) is not None]
            self.watched_keys.append(WatchedKey(bound, {topic: version for _, topic, version in seen}))
            self.watchable |= {entry.path for entry, _, _ in seen}

    def ends_within(self, seconds: float | None) -> None:
        if seconds is not None:
            self.refresh_within = min(seconds, self.refresh_within or seconds)

    @property
    def read_entries(self) -> tuple[ReadEntry, ...]:
        """Return the entries that have a result, in the order of the spec."""
        return tuple(
            ReadEntry(entry, self.results[entry.path], self.considered.get(entry.path, 0))
            for entry in self.entries
            if entry.path in self.results
        )

    @property
    def is_watchable(self) -> bool:
        return all(entry.path in self.watchable for entry in self.entries)

    def result(self, shaped: Shaped) -> Fetched:
        """Return the result of the fetch."""
        failed = dict(self.failed)
        for entry in self.entries:
            if (problem := shaped.problems.get(entry.path)) is not None:
                failed[entry.path] = _failure(entry, "InvalidValue", problem, retry=RetryClass.AFTER_CHANGE)
        failures = tuple(failed[entry.path] for entry in self.entries if entry.path in failed)
        missing = tuple(
            MissingRemoteKey(entry.path, _remote_key(entry)) for entry in self.entries if entry.path in self.absent
        )
        return Fetched(
            values={} if failures else shaped.values,
            missing=missing,
            failures=failures,
            depends_on=frozenset(self.depends_on),
            made=tuple(self.made),
            refresh_within=self.refresh_within,
            watched_keys=tuple(self.watched_keys),
            read=self.read_entries,
            remarks=tuple(shaped.remarks),
            read_state=ReadState.WHOLE if self.is_watchable else ReadState.PART,
        )


def _need(entries: Sequence[Read]) -> Need:
    return need_to_read(*frozenset[Operation]().union(*(entry.operations for entry in entries)))


def _topic(entry: Read) -> Topic | None:
    return topic_of_search(find_query(entry.find)) if isinstance(entry, FindMany) else topic_of(remote_ref(entry.ref))


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently. A single one, the usual case, runs without a task."""
    if len(work) == 1:
        await work[0]
        return
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


def _failure_of(entry: Entry, error: ResolutionError | ProviderError) -> Failure:
    match error:
        case ResolutionError():
            failure = _failure(entry, error.reason.value, error.message, retry=_retry_of(error))
            return replace(failure, waits=error.waits)
        case ProviderError():
            failure = _failure(entry, cause_of(error), error.message, retry=error.retry, retry_after=error.retry_after)
            return replace(failure, unreachable=True) if isinstance(error, TransportError) else failure
        case _:
            assert_never(error)


def _retry_of(error: ResolutionError) -> RetryClass:
    """Return how to retry: back off for a store that is missing or not ready, never for an unmanaged store."""
    return RetryClass.BACKOFF if error.reason is not Reason.UNMANAGED else RetryClass.NEVER


def _failure(
    entry: Entry, reason: str, message: str, *, retry: RetryClass = RetryClass.BACKOFF, retry_after: float = 0.0
) -> Failure:
    store = f"{entry.generator.kind} {entry.generator.name}" if isinstance(entry, Generate) else _named(entry.store)
    return Failure(entry.path, reason, message, _remote_key(entry), store, retry, retry_after)


def _named(ref: StoreRef) -> str:
    return f"{ref.kind or 'SecretStore'} {ref.name}"


def _remote_key(entry: Entry) -> str:
    return "" if isinstance(entry, Generate) else entry.remote_key


def remote_ref(ref: RemoteRef) -> wire.RemoteRef:
    """Return the reference as a wire value."""
    policy = wire.MetadataPolicy.FETCH if ref.metadata_policy == "Fetch" else wire.MetadataPolicy.NONE
    return wire.RemoteRef(ref.key, ref.version, ref.property, policy)


def find_query(find: Find) -> wire.FindQuery:
    """Return the search as a wire value."""
    name = find.name.regexp if find.name is not None else ""
    return wire.FindQuery(path=find.path or "", name_regexp=name, tags=find.tags)
