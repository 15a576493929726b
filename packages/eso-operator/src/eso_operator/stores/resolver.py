"""Resolves references for controllers: runs `resolve`, and fetches the inputs that it lacks.

    resolve -> kind not watched -> watch it ┐
            -> provider not connected -> shake hands ┴-> resolve again, until a store or a lasting error

An error because of a provider that may still be starting becomes `Reason.STARTING`, with the time to wait for it.
All rules are in `resolving.resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.need import Need
from eso_operator.stores.resolutions import Resolutions
from eso_operator.stores.resolve import resolve
from eso_operator.stores.resolved import Connection, Reason, ResolutionError, ResolvedStore
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.view import ClusterView, Objects
from eso_wire.errors import ProviderError, RetryClass
from eso_wire.kinds import Handshake, KindId, ObjectRef

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
        resolutions: Resolutions | None = None,
    ) -> None:
        self._objects = objects
        self._providers = providers
        self._resolutions = resolutions
        self.settings = settings

    @property
    def snapshot(self) -> ClusterView:
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
        raise AssertionError("each round watches a kind or asks a provider, and both are few")

    def resolve_now(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        """Return the store from what is known already, without requests or waiting. Raises ResolutionError."""
        return self._resolved(ref, caller, need)

    def _resolved(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedStore:
        if self._resolutions is None:
            return resolve(ref, caller, need=need, snapshot=self.snapshot, settings=self.settings)
        if (known := self._resolutions.find(ref, caller, need)) is not None:
            return known
        notes = self._resolutions.noting()
        resolved = resolve(ref, caller, need=need, snapshot=notes.snapshot, settings=self.settings)
        self._resolutions.keep(ref, need, resolved, notes)
        return resolved

    def _starting(self, error: ResolutionError) -> ResolutionError | None:
        """Return the error about the start of a provider, if that is what the resolution waits for."""
        asked = error.unanswered if error.connection is None else (error.connection,)
        left = {connection.endpoint.label: self._providers.starting(connection) for connection in asked}
        labels = sorted(label for label, seconds in left.items() if seconds > 0)
        if labels:
            return _starting(error, f"provider {', '.join(labels)} is starting", max(left.values()))
        if error.expected and (seconds := self._providers.expecting(error.expected)) > 0:
            return _starting(error, f"no provider for {error.expected} runs yet; an installed one is started", seconds)
        return None

    def _outage(self, error: ResolutionError) -> ProviderError | ResolutionError | None:
        """Return the outage of the provider behind a store that is not ready, if that is the reason.

        Callers then report the outage with the same words as before the store noticed it. After the provider's return
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
