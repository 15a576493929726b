"""Reads all entries of an ExternalSecret in as few calls as possible, then shapes and merges their values.

    wants_of -> each store: resolve -> bind -> one planned read, finds in parallel -> shape -> values

Every entry is tried, so that a user sees all causes at once. If any entry fails there are no values: a target is never
written from some of its sources. The deletion policy decides whether a missing remote key is a failure. Values are
removed only if the provider promises to distinguish a missing key from every other failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol, assert_never

from eso_api.externalsecret import ExternalSecret
from eso_api.references import StoreRef
from eso_api.values import SecretBytes
from eso_operator.changes.sights import Reading, Sight, Topic, topic_of, topic_of_search
from eso_operator.dependencies.dependencies import ANY_PROVIDER, Dependency, OnLabel, OnObject, on_connection, on_object
from eso_operator.generators.values import Generators, Made
from eso_operator.providers.errors import cause_of
from eso_operator.sources.fetched import Failure, Fetched, Missing
from eso_operator.sources.requests import find_query, remote_ref
from eso_operator.sources.shape import Shaped, shape_all
from eso_operator.sources.wants import Answered, Extract, FindMany, Generate, OneValue, Read, Want, wants_of
from eso_operator.stores.need import Need, reading
from eso_operator.stores.resolved import Bind, BoundStore, Reason, ResolutionError, ResolvedStore
from eso_operator.stores.resolver import Resolver
from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.status import TransportError
from eso_wire.values import FindPage, FindQuery, GetItem, GetResult, NotModified, ObjectRef, Operation, Shape
from kuberun.controller import REQUESTED_AT

Values = Mapping[str, SecretBytes]


_NO_STORE: Final = "no store is named: set spec.secretStoreRef.name, or sourceRef.storeRef of this entry"
_NO_SINGLE_VALUE: Final = (
    "is a generator, which makes many values and not one: name it in an entry of dataFrom, as sourceRef.generatorRef"
)
_NOT_SURE: Final = (
    ". Nothing is removed for it: the provider does not promise to tell absence from other failures"
    " (NOT_FOUND_SEMANTICS), which deletionPolicy Delete and Merge need; use Retain with it"
)


class PlansReads(Protocol):
    async def read(
        self, bound: BoundStore, items: Sequence[GetItem], *, asked_at: float | None = None
    ) -> list[GetResult]: ...


class Finds(Protocol):
    async def find(self, bound: BoundStore, query: FindQuery) -> FindPage: ...


class Fetcher:
    """Fetches the values of ExternalSecrets. The process has one."""

    def __init__(
        self,
        resolver: Resolver,
        bind: Bind,
        *,
        planner: PlansReads,
        finds: Finds,
        generators: Generators,
        rendering: Rendering,
    ) -> None:
        self._resolver = resolver
        self._bind = bind
        self._planner = planner
        self._finds = finds
        self._generators = generators
        self._rendering = rendering

    async def fetch(self, es: ExternalSecret, *, told_at: float | None = None) -> Fetched:
        """Return the values and failures of all entries. Errors of stores, providers and backends become failures.

        `told_at` (monotonic) is when a change was announced: values cached before then are stale.
        """
        pass_ = _Pass(es, wants_of(es.spec), told_at)
        await _together(
            [
                *(self._from_store(pass_, ref, wanted) for ref, wanted in pass_.reads.items()),
                *(self._generate(pass_, want) for want in pass_.wants if isinstance(want, Generate)),
            ]
        )
        return pass_.result(await self._shape(pass_))

    async def _shape(self, pass_: _Pass) -> Shaped:
        """Shape keys and values as the entries specify. If shaping is stopped, every entry fails with that error."""
        try:
            return await self._rendering.run(partial(shape_all, pass_.answered), pass_.es.metadata.namespace)
        except RenderError as problem:
            return Shaped({}, {answered.want.path: str(problem) for answered in pass_.answered})

    async def sights(self, es: ExternalSecret) -> tuple[Sight, ...]:
        """Return the reads whose providers can announce changes, without reading or waiting for a provider.

        Raises ResolutionError, for example while a provider has not answered yet, and the errors of binding.
        """
        pass_ = _Pass(es, wants_of(es.spec))
        for ref, wanted in pass_.reads.items():
            target = self._resolver.resolve_now(ref, pass_.caller, _need(wanted))
            if target.tells_changes:
                pass_.saw(await self._bind(target), [(want, "") for want in wanted])
        return tuple(pass_.sights)

    def telling(self, es: ExternalSecret) -> frozenset[OnObject]:
        """Return the stores of an ExternalSecret that can announce changes. Raises ResolutionError; binds nothing."""
        pass_ = _Pass(es, wants_of(es.spec))
        targets = (self._resolver.resolve_now(ref, pass_.caller, _need(wanted)) for ref, wanted in pass_.reads.items())
        return frozenset(on_object(target.store) for target in targets if target.tells_changes)

    async def _from_store(self, pass_: _Pass, ref: StoreRef, wanted: list[Read]) -> None:
        """Read all entries of one store. A failure to resolve or bind the store fails all of them."""
        if not ref.name:
            pass_.nowhere_to_read(wanted)
            return
        try:
            target = await self._resolver.resolve(ref, pass_.caller, _need(wanted))
            pass_.went_by(target, wanted)
            bound = await self._bind(target)
            pass_.depends_on |= {on_object(source) for source in bound.sources}
        except (ResolutionError, ProviderError) as error:
            pass_.unresolved(error, wanted)
            return
        finds = [want for want in wanted if isinstance(want, FindMany)]
        values = [want for want in wanted if not isinstance(want, FindMany)]
        await _together(
            [
                *([self._read(pass_, bound, values)] if values else []),
                *(self._find(pass_, bound, want) for want in finds),
            ]
        )

    async def _read(self, pass_: _Pass, bound: BoundStore, wanted: Sequence[OneValue | Extract]) -> None:
        items = [
            GetItem(want.path, remote_ref(want.ref), Shape.MAP if isinstance(want, Extract) else Shape.SINGLE)
            for want in wanted
        ]
        try:
            results = await self._planner.read(bound, items, asked_at=pass_.asked_at)
        except ProviderError as error:
            for want in wanted:
                pass_.fail(want, error)
            return
        for want, result in zip(wanted, results, strict=True):
            pass_.take(want, result)
        versions = (result.metadata.provider_version for result in results)
        pass_.saw(bound, zip(wanted, versions, strict=True))

    async def _find(self, pass_: _Pass, bound: BoundStore, want: FindMany) -> None:
        try:
            found = await self._finds.find(bound, find_query(want.find))
        except ProviderError as error:
            pass_.fail(want, error)
            return
        pass_.saw(bound, [(want, "")])
        if found.missing:
            pass_.fail(want, ProviderError(ErrorReason.SECRET_NOT_FOUND, found.missing))
        else:
            pass_.answers[want.path] = {each.key: each.value for each in found.found}
            pass_.considered[want.path] = found.considered

    async def _generate(self, pass_: _Pass, want: Generate) -> None:
        try:
            made = await self._generators.generate(pass_.caller, want.index, want.generator)
        except (ResolutionError, ProviderError) as error:
            pass_.unresolved(error, [want])
            return
        pass_.made.append(made)
        pass_.depends_on |= made.depends_on
        pass_.answers[want.path] = made.values
        pass_.ends_within(made.refresh_within)


@dataclass(slots=True, eq=False)
class _Pass:
    """One fetch in progress: its entries and their results so far, by the path of the entry."""

    es: ExternalSecret
    wants: tuple[Want, ...]
    told_at: float | None = None
    answers: dict[str, SecretBytes | Values] = field(default_factory=dict)
    considered: dict[str, int] = field(default_factory=dict)
    failed: dict[str, Failure] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    """Entries whose providers may report a missing key for another failure."""
    depends_on: set[Dependency] = field(default_factory=set)
    made: list[Made] = field(default_factory=list)
    refresh_within: float | None = None
    sights: list[Sight] = field(default_factory=list)
    watchable: set[str] = field(default_factory=set)

    @property
    def reads(self) -> dict[StoreRef, list[Read]]:
        """Return the entries that read from stores, by store."""
        reads: dict[StoreRef, list[Read]] = {}
        for want in self.wants:
            if not isinstance(want, Generate):
                reads.setdefault(want.store, []).append(want)
        return reads

    @property
    def asked_at(self) -> float | None:
        """Return the time (monotonic) since which an answer is fresh enough; None outside of a reconcile."""
        asked_at = REQUESTED_AT.get(None)
        return asked_at if asked_at is None or self.told_at is None else max(asked_at, self.told_at)

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

    def went_by(self, target: ResolvedStore, wanted: Sequence[Want]) -> None:
        self.depends_on |= {on_connection(target.connection), OnLabel(target.endpoint.label)}
        self.depends_on |= {on_object(target.config.ref), on_object(target.store)}
        if Operation.NOT_FOUND_SEMANTICS not in target.operations:
            self.unsure |= {want.path for want in wanted}

    def unresolved(self, error: ResolutionError | ProviderError, wanted: Sequence[Want]) -> None:
        self.depends_on.add(ANY_PROVIDER)
        if isinstance(error, ResolutionError):
            self.depends_on.add(on_object(error.subject))
        for want in wanted:
            self.fail(want, error)

    def nowhere_to_read(self, wanted: Sequence[Read]) -> None:
        """Fail entries that name no store; only a change of the spec can fix them."""
        for want in wanted:
            generator = want.generator if isinstance(want, OneValue) else None
            problem = _NO_STORE if generator is None else f"{generator.kind} {generator.name} {_NO_SINGLE_VALUE}"
            failure = _failure(want, "InvalidSpec", problem, retry=RetryClass.AFTER_CHANGE)
            self.failed[want.path] = replace(failure, store="")

    def take(self, want: Want, result: GetResult) -> None:
        self.ends_within(result.metadata.suggested_refresh or None)
        match result.outcome:
            case ProviderError() as error:
                self.fail(want, error)
            case NotModified():
                self.failed[want.path] = _failure(want, "Internal", "the provider left out a value that was asked for")
            case outcome:
                self.answers[want.path] = outcome

    def fail(self, want: Want, error: ResolutionError | ProviderError) -> None:
        # A missing property or version is usually a mistake in the spec: it is a failure and deletes nothing.
        absent = isinstance(error, ProviderError) and error.reason is ErrorReason.SECRET_NOT_FOUND
        gone = absent and self.tolerates_absence
        if gone and want.path not in self.unsure:
            self.absent.add(want.path)
            return
        failure = _failure_of(want, error)
        self.failed[want.path] = replace(failure, message=failure.message + _NOT_SURE) if gone else failure

    def saw(self, bound: BoundStore, versions: Iterable[tuple[Read, str]]) -> None:
        """Record which topics were read, each with the version from the provider or an empty one."""
        if bound.resolved.tells_changes:
            seen = [(want, topic, version) for want, version in versions if (topic := _topic(want)) is not None]
            self.sights.append(Sight(bound, {topic: version for _, topic, version in seen}))
            self.watchable |= {want.path for want, _, _ in seen}

    def ends_within(self, seconds: float | None) -> None:
        if seconds is not None:
            self.refresh_within = min(seconds, self.refresh_within or seconds)

    @property
    def answered(self) -> tuple[Answered, ...]:
        """Return the entries that have an answer, in the order of the spec."""
        return tuple(
            Answered(want, self.answers[want.path], self.considered.get(want.path, 0))
            for want in self.wants
            if want.path in self.answers
        )

    def result(self, shaped: Shaped) -> Fetched:
        """Return the result of the fetch."""
        failed = dict(self.failed)
        for want in self.wants:
            if (problem := shaped.problems.get(want.path)) is not None:
                failed[want.path] = _failure(want, "InvalidValue", problem, retry=RetryClass.AFTER_CHANGE)
        failures = tuple(failed[want.path] for want in self.wants if want.path in failed)
        missing = tuple(Missing(want.path, _remote_key(want)) for want in self.wants if want.path in self.absent)
        return Fetched(
            values={} if failures else shaped.values,
            missing=missing,
            failures=failures,
            depends_on=frozenset(self.depends_on),
            made=tuple(self.made),
            refresh_within=self.refresh_within,
            sights=tuple(self.sights),
            read=self.answered,
            remarks=tuple(shaped.remarks),
            reading=Reading.WHOLE if all(want.path in self.watchable for want in self.wants) else Reading.PART,
        )


def _need(wanted: Sequence[Read]) -> Need:
    return reading(*frozenset[Operation]().union(*(want.operations for want in wanted)))


def _topic(want: Read) -> Topic | None:
    return topic_of_search(find_query(want.find)) if isinstance(want, FindMany) else topic_of(remote_ref(want.ref))


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines concurrently. A single one, the usual case, runs without a task."""
    if len(work) == 1:
        await work[0]
        return
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)


def _failure_of(want: Want, error: ResolutionError | ProviderError) -> Failure:
    match error:
        case ResolutionError():
            failure = _failure(want, error.reason.value, error.message, retry=_retry_of(error))
            return replace(failure, waits=error.waits)
        case ProviderError():
            failure = _failure(want, cause_of(error), error.message, retry=error.retry, retry_after=error.retry_after)
            return replace(failure, unreachable=True) if isinstance(error, TransportError) else failure
        case _:
            assert_never(error)


def _retry_of(error: ResolutionError) -> RetryClass:
    """Return how to retry: back off for a store that is missing or not ready, never for an unmanaged store."""
    return RetryClass.BACKOFF if error.reason is not Reason.UNMANAGED else RetryClass.NEVER


def _failure(
    want: Want, reason: str, message: str, *, retry: RetryClass = RetryClass.BACKOFF, retry_after: float = 0.0
) -> Failure:
    store = f"{want.generator.kind} {want.generator.name}" if isinstance(want, Generate) else _named(want.store)
    return Failure(want.path, reason, message, _remote_key(want), store, retry, retry_after)


def _named(ref: StoreRef) -> str:
    return f"{ref.kind or 'SecretStore'} {ref.name}"


def _remote_key(want: Want) -> str:
    return "" if isinstance(want, Generate) else want.remote_key
