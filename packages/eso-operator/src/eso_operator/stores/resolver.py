"""Resolves references for controllers: runs `resolve`, and fetches the inputs that it lacks.

    resolve -> kind not watched -> watch it ┐
            -> provider not connected -> shake hands ┴-> resolve again, until a store or a lasting error

An error because of a provider that may still be starting becomes `Reason.STARTING`, with the time to wait for it.
All rules are in `resolve.py`, which is pure: equal inputs give equal results. So each result is cached with its inputs
(the revisions of the kinds and the handshakes that were read), and it is valid while they are unchanged. A thousand
objects of one store are resolved once. Callers of one namespace share results. Errors are not cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.inputs import ClusterView, Need, Objects, ResolverSettings, Scope
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Connection, Reason, ResolutionError, ResolvedStore
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.kinds import Handshake, KindId, ObjectRef
from kubebase.bounded import BoundedDict
from kubebase.meta import ObjectKey

MAX_CACHED: Final = 4096

Handshakes = Mapping[str, Handshake | str]
_CacheKey = tuple[StoreRef | GeneratorRef, str, Need]


class RevisedObjects(Objects, Protocol):
    def revision(self, kind: KindId) -> int:
        """Return a number that changes with every change of an object of the kind; -1 if it is not watched."""
        ...


class ResolutionCache:
    """The cache; bounded, the least recently used result is evicted. The process has one."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._handshakes = handshakes
        self._cache: BoundedDict[_CacheKey, _Cached] = BoundedDict(MAX_CACHED)

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
        self._cache[ref, resolved.caller.namespace, need] = _Cached(resolved, reads)


class RecordedReads:
    """A recording view. Implements `Objects`. Revisions are recorded before objects are read."""

    def __init__(self, objects: RevisedObjects, handshakes: Handshakes) -> None:
        self._objects = objects
        self._kinds: dict[KindId, int] = {}
        self._handshakes = _RecordedHandshakes(handshakes)

    @property
    def view(self) -> ClusterView:
        return ClusterView(self, self._handshakes)

    def unchanged(self, objects: RevisedObjects, handshakes: Handshakes) -> bool:
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
class _Cached:
    resolved: ResolvedStore
    reads: RecordedReads


_MAX_ROUNDS: Final = 64


class WatchedObjects(Objects, Protocol):
    """The objects of the cluster; further kinds can be included."""

    async def include(self, kind: KindId) -> bool:
        """Watch a kind. Return whether its objects are available now."""
        ...


class Providers(Protocol):
    """The handshakes of providers. `ensure` runs a handshake if there was none yet."""

    @property
    def handshakes(self) -> Mapping[str, Handshake | str]: ...

    async def ensure(self, connection: Connection) -> Handshake: ...

    def starting(self, connection: Connection) -> float:
        """Return for how many more seconds the provider may be starting; 0 if it is not."""
        ...

    def unreachable(self, connection: Connection) -> ProviderError | None:
        """Return why the provider is not reached at present; None if it is."""
        ...

    def returned(self, connection: Connection) -> float:
        """Return for how many more seconds stores may still report an outage of the provider that is over."""
        ...

    def expecting(self, wanted: str) -> float:
        """Return for how many more seconds a provider that serves this may be started; called if there is none yet."""
        ...


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
