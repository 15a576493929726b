"""Resolves a reference to a store in eleven stages. Each is a pure function of a snapshot with its own error reasons.

    reference -> form -> object -> controller class -> namespace -> configuration -> endpoint -> credentials
              -> channel -> gate -> handshake

`resolve` returns the store or raises the error of the stage that failed; `explain` returns the results of all stages.
All namespace rules are enforced here, at run time; admission checks are not relied on.

`Resolver` runs `resolve` for controllers, and fetches the inputs that it lacks:

    resolve -> kind not watched -> watch it, or provider not connected -> shake hands -> resolve again,
            until a store or a lasting error

An error because of a provider that may still be starting becomes `Reason.STARTING`, with the time to wait for it. Equal
inputs give equal results, so each result is cached with its inputs (the revisions of the kinds and the handshakes that
were read), and is valid while they are unchanged. A thousand objects of one store are resolved once. Callers of one
namespace share results. Errors are not cached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.access import check_controller, check_ready, check_use
from eso_operator.stores.authentication import Authentication, authenticate, call_token, secure
from eso_operator.stores.configuration import Configuration, agree, bind_config, configure
from eso_operator.stores.discovery import Located, limited, locate
from eso_operator.stores.loading import LoadedStore, check_gate, load_or_suggest, named, normalise, pick
from eso_operator.stores.resolved import (
    SERVICE,
    CallToken,
    ClusterObjects,
    ClusterView,
    Connection,
    Need,
    Reason,
    ResolutionError,
    ResolvedStore,
    ResolverSettings,
    Scope,
    TlsSource,
    WatchedObjects,
)
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.kinds import Handshake, KindId, ObjectRef
from kubebase.bounded import BoundedDict
from kubebase.meta import ObjectKey

T = TypeVar("T")

STAGES: Final = (
    "reference",
    "form",
    "object",
    "controller class",
    "namespace",
    "configuration",
    "endpoint",
    "credentials",
    "channel",
    "gate",
    "handshake",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage as `explain` shows it. `reason` is None if the stage passed."""

    name: str
    detail: str
    reason: Reason | None = None
    subject: ObjectRef | None = None
    """The object that the stage found, or that its error is about."""


@dataclass(frozen=True, slots=True)
class _Passed:
    """The description of a stage that passed, and the object that it found."""

    detail: str
    subject: ObjectRef | None = None


def resolve(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> ResolvedStore:
    """Return the resolved store for one reference and one caller. Raises ResolutionError."""
    return _result(_to_store(ref, caller, need, view, settings))


def explain(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    *,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> tuple[Stage, ...]:
    """Return every stage with its result, up to the one that failed."""
    passed: list[Stage] = []
    try:
        for found in _to_store(ref, caller, need, view, settings):
            passed.append(Stage(STAGES[len(passed)], found.detail, subject=found.subject))
    except ResolutionError as error:
        passed.append(Stage(STAGES[len(passed)], error.message, error.reason, error.subject))
    return tuple(passed)


@dataclass(frozen=True, slots=True)
class _SecuredChannel:
    """The results of the first nine stages."""

    store: LoadedStore
    configuration: Configuration
    located: Located
    tls: TlsSource
    authentication: Authentication
    token: CallToken | None

    @property
    def connection(self) -> Connection:
        return Connection(self.located.endpoint, self.tls)


def _to_channel(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> Generator[_Passed, None, _SecuredChannel]:
    """Run stages 1 to 9. Each yields a description after it has passed."""
    reference = normalise(ref, caller)
    yield _Passed(f"{reference.kind.kind} {reference.name} for {caller.kind} {caller.namespace}/{caller.name}")

    check_gate(reference, v2_stores=settings.v2_stores)
    picked = pick(reference, view)
    yield _Passed(f"{picked.form}, {picked.scope}")

    store = load_or_suggest(reference, picked, view)
    yield _Passed(f"{store} of {store.ref.api_version}, generation {store.ref.generation}", store.ref)

    check_controller(store, settings)
    yield _Passed(store.behaviour.controller or "any")

    check_use(store, caller, need, view)
    yield _Passed(f"{caller.namespace or 'none'} is allowed")

    configuration = configure(store, caller, view)
    config = configuration.ref
    yield _Passed(f"{configuration.wanted} in {config.kind} {config.namespace}/{config.name}", config)

    located = locate(store, caller, configuration=configuration, settings=settings, view=view)
    endpoint = located.endpoint
    yield _Passed(f"{endpoint.uri} ({endpoint.source}: {endpoint.label})", _provider_of(located))

    authentication = authenticate(store, caller, configuration, located)
    yield _Passed(f"from namespace {authentication.namespace or 'of each user'}; references: {configuration.rule}")

    tls = secure(store, located, settings)
    token = call_token(store, located, authentication.namespace)
    yield _Passed(f"{tls}, {'with' if token else 'without'} a token")

    return _SecuredChannel(store, configuration, located, tls, authentication, token)


def _to_store(
    ref: StoreRef | GeneratorRef,
    caller: ObjectRef,
    need: Need,
    view: ClusterView,
    settings: ResolverSettings,
) -> Generator[_Passed, None, ResolvedStore]:
    """Run all stages. Each yields a description after it has passed."""
    channel = yield from _to_channel(ref, caller, need, view, settings)
    store, configuration, connection = channel.store, channel.configuration, channel.connection

    check_ready(store, need, settings, connection)
    yield _Passed(f"{store.behaviour.gating}: open")

    agreement = agree(store, connection, configuration, need, view)
    config = bind_config(store, configuration, agreement.info)
    handshake = limited(agreement.handshake, channel.located.provider_class)
    yield _Passed(f"{handshake.provider_name} {handshake.provider_version}, protocol {handshake.selected}")

    return ResolvedStore(
        form=store.form,
        role=store.role,
        store=store.ref,
        caller=caller,
        endpoint=connection.endpoint,
        tls=connection.tls,
        call_token=channel.token,
        config=config,
        auth_namespace=channel.authentication.namespace,
        pinned=channel.authentication.pinned,
        policy=store.behaviour.policy,
        handshake=handshake,
        operations=agreement.info.operations,
    )


def _provider_of(located: Located) -> ObjectRef | None:
    """Return the class of a provider, else its Service; None for an address outside the cluster."""
    if located.provider_class is not None:
        return located.provider_class.ref
    service = located.endpoint.service
    return None if service is None else named(SERVICE, ObjectKey(service.namespace, service.name))


def _result(stages: Generator[_Passed, None, T]) -> T:
    while True:
        try:
            next(stages)
        except StopIteration as done:
            result: T = done.value
            return result


# --- for controllers -------------------------------------------------------------------------------------------------

MAX_CACHED: Final = 4096

Handshakes = Mapping[str, Handshake | str]
_CacheKey = tuple[StoreRef | GeneratorRef, str, Need]


class ResolutionCache:
    """The cache; bounded, the least recently used result is evicted. The process has one."""

    def __init__(self, objects: WatchedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._handshakes = handshakes
        self._cache: BoundedDict[_CacheKey, _CachedResolution] = BoundedDict(MAX_CACHED)

    def find(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore | None:
        key = (ref, caller.namespace, need)
        cached = self._cache.use(key)
        if cached is None:
            return None
        if not cached.reads.unchanged(self._objects, self._handshakes):
            del self._cache[key]
            return None
        return replace(cached.resolved, caller=caller)

    def record(self) -> RecordedReads:
        """Return a view that records every read through it. Pass it to `store` with the result."""
        return RecordedReads(self._objects, self._handshakes)

    def store(self, ref: StoreRef | GeneratorRef, need: Need, resolved: ResolvedStore, reads: RecordedReads) -> None:
        self._cache[ref, resolved.caller.namespace, need] = _CachedResolution(resolved, reads)


class RecordedReads(ClusterObjects):
    """A recording view. Revisions are recorded before objects are read."""

    def __init__(self, objects: WatchedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._kinds: dict[KindId, int] = {}
        self._handshakes = _RecordedHandshakes(handshakes)

    @property
    def view(self) -> ClusterView:
        return ClusterView(self, self._handshakes)

    def unchanged(self, objects: WatchedObjects, handshakes: Handshakes) -> bool:
        """Return whether everything that was read is unchanged."""
        return all(objects.revision(kind) == known for kind, known in self._kinds.items()) and all(
            handshakes.get(key) is known for key, known in self._handshakes.recorded.items()
        )

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        self._record(kind)
        return self._objects.get(kind, key)

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        self._record(kind)
        return self._objects.list(kind, namespace)

    def scope(self, kind: KindId) -> Scope | None:
        self._record(kind)
        return self._objects.scope(kind)

    def _record(self, kind: KindId) -> None:
        if kind not in self._kinds:
            self._kinds[kind] = self._objects.revision(kind)


class _RecordedHandshakes(Mapping[str, Handshake | str]):
    """Recorded handshakes. Iteration is not supported: the result would depend on all of them."""

    def __init__(self, live: Handshakes) -> None:
        self._live = live
        self.recorded: dict[str, Handshake | str | None] = {}

    def __getitem__(self, key: str) -> Handshake | str:
        found = self.recorded[key] = self._live.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _CachedResolution:
    resolved: ResolvedStore
    reads: RecordedReads


_MAX_ROUNDS: Final = 64


class Providers(ABC):
    """The handshakes of providers, and whether a provider can be expected to respond."""

    @property
    @abstractmethod
    def handshakes(self) -> Mapping[str, Handshake | str]:
        """Return the handshake of each connection, or the reason for none, by `Connection.key`."""

    @abstractmethod
    async def ensure(self, connection: Connection) -> Handshake:
        """Run a handshake if there was none yet. Raises ProviderError."""

    @abstractmethod
    def starting(self, connection: Connection) -> float:
        """Return for how many more seconds the provider may be starting; 0 if it is not."""

    @abstractmethod
    def unreachable(self, connection: Connection) -> ProviderError | None:
        """Return why the provider is not reached at present; None if it is."""

    @abstractmethod
    def returned(self, connection: Connection) -> float:
        """Return for how many more seconds stores may still report an outage of the provider that is over."""

    @abstractmethod
    def expecting(self, wanted: str) -> float:
        """Return for how many more seconds a provider that serves this may be started; called if there is none yet."""


class Resolver:
    """Resolves references for controllers."""

    def __init__(
        self,
        objects: WatchedObjects,
        providers: Providers,
        settings: ResolverSettings,
        cache: ResolutionCache | None = None,
    ) -> None:
        self._objects = objects
        self._providers = providers
        self._cache = cache
        self.settings = settings

    @property
    def view(self) -> ClusterView:
        return ClusterView(self._objects, self._providers.handshakes)

    async def resolve(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        """Return the store. Raises ResolutionError, or the ProviderError of a handshake that was needed."""
        tried: set[KindId | str] = set()
        failures: dict[str, ProviderError] = {}
        for _ in range(_MAX_ROUNDS):
            try:
                return self._resolved(ref, caller, need)
            except ResolutionError as error:
                if not await self._helped(error, tried, failures):
                    connection = error.connection
                    if (starting := self._starting(error)) is not None:
                        raise starting from None
                    if (outage := self._outage(error)) is not None:
                        raise outage from None
                    raise failures.get(connection.key if connection else "", error) from None
        raise AssertionError("each round watches a kind or calls a provider, and both are few")

    def resolve_now(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        """Return the store from what is known already, without requests or waiting. Raises ResolutionError."""
        return self._resolved(ref, caller, need)

    def _resolved(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        if self._cache is None:
            return resolve(ref, caller, need=need, view=self.view, settings=self.settings)
        if (known := self._cache.find(ref, caller, need)) is not None:
            return known
        reads = self._cache.record()
        resolved = resolve(ref, caller, need=need, view=reads.view, settings=self.settings)
        self._cache.store(ref, need, resolved, reads)
        return resolved

    def _starting(self, error: ResolutionError) -> ResolutionError | None:
        """Return the error about the start of a provider, if that is what the resolution waits for."""
        candidates = error.unreached if error.connection is None else (error.connection,)
        seconds_left = {connection.endpoint.label: self._providers.starting(connection) for connection in candidates}
        labels = sorted(label for label, seconds in seconds_left.items() if seconds > 0)
        if labels:
            return _starting(error, f"provider {', '.join(labels)} is starting", max(seconds_left.values()))
        if error.expected and (seconds := self._providers.expecting(error.expected)) > 0:
            return _starting(error, f"no provider for {error.expected} runs yet; an installed one is started", seconds)
        return None

    def _outage(self, error: ResolutionError) -> ProviderError | ResolutionError | None:
        """Return the outage of the provider behind a store that is not ready, if that is the reason.

        Callers then report the outage with the same message as before the store noticed it. After the provider's return
        they wait until the store is validated again.
        """
        if (connection := error.store_connection) is None:
            return None
        if (unreachable := self._providers.unreachable(connection)) is not None:
            return unreachable
        if (seconds := self._providers.returned(connection)) > 0:
            return ResolutionError(error.reason, error.message, subject=error.subject, retry=error.retry, waits=seconds)
        return None

    async def _helped(
        self, error: ResolutionError, tried: set[KindId | str], failures: dict[str, ProviderError]
    ) -> bool:
        """Watch the missing kind or shake hands with the provider. Return whether that may change the result."""
        if (kind := error.unwatched) is not None and kind not in tried:
            tried.add(kind)
            return await self._objects.include(kind)
        if (connection := error.connection) is not None and connection.key not in tried:
            tried.add(connection.key)
            try:
                await self._providers.ensure(connection)
            except ProviderError as failure:
                failures[connection.key] = failure
            return True
        return False


def _starting(error: ResolutionError, message: str, seconds: float) -> ResolutionError:
    return ResolutionError(Reason.STARTING, message, subject=error.subject, retry=RetryClass.BACKOFF, waits=seconds)
