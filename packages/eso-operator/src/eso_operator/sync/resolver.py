"""`resolve` with its helpers: kinds that nobody watches yet are watched, providers that were not asked yet are asked.

    resolve -> kind not watched -> watch it ┐
            -> provider not connected -> shake hands ┴-> resolve again, until a target or an error that stays

All rules are in `stores.resolve`; here is only what it needs from outside to go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from eso_api.references import GeneratorRef, StoreRef
from eso_operator.stores.need import Need
from eso_operator.stores.resolve import resolve
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.snapshot import Objects, Snapshot
from eso_operator.stores.target import Connection, ResolutionError, ResolvedTarget
from eso_operator.sync.resolutions import Resolutions
from eso_wire.errors import ProviderError
from eso_wire.values import Handshake, KindId, ObjectRef

_MAX_ROUNDS: Final = 64


class WatchedObjects(Objects, Protocol):
    """The cluster's objects, which can be made to include another kind."""

    async def include(self, kind: KindId) -> bool:
        """Watch that kind too; whether its objects can be had now."""
        ...


class Providers(Protocol):
    """What providers said; `ensure` asks one that has not said anything yet."""

    @property
    def handshakes(self) -> Mapping[str, Handshake | str]: ...

    async def ensure(self, connection: Connection) -> Handshake: ...


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
    def snapshot(self) -> Snapshot:
        return Snapshot(self._objects, self._providers.handshakes)

    async def resolve(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedTarget:
        """The target. Raises ResolutionError, or the ProviderError of the handshake that would have been needed."""
        tried: set[KindId | str] = set()
        failures: dict[str, ProviderError] = {}
        for _ in range(_MAX_ROUNDS):
            try:
                return self._resolved(ref, caller, need)
            except ResolutionError as error:
                if not await self._helped(error, tried, failures):
                    connection = error.connection
                    raise failures.get(connection.key if connection else "", error) from None
        raise AssertionError("each round watches a kind or asks a provider, and both are few")

    def resolve_now(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedTarget:
        """From what is known already, without asking or waiting for anybody. Raises ResolutionError."""
        return self._resolved(ref, caller, need)

    def _resolved(self, ref: StoreRef | GeneratorRef, caller: ObjectRef, need: Need) -> ResolvedTarget:
        if self._resolutions is None:
            return resolve(ref, caller, need=need, snapshot=self.snapshot, settings=self.settings)
        if (known := self._resolutions.find(ref, caller, need)) is not None:
            return known
        notes = self._resolutions.noting()
        target = resolve(ref, caller, need=need, snapshot=notes.snapshot, settings=self.settings)
        self._resolutions.keep(ref, need, target, notes)
        return target

    async def _helped(
        self, error: ResolutionError, tried: set[KindId | str], failures: dict[str, ProviderError]
    ) -> bool:
        """Whether something was done that may change the answer."""
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
