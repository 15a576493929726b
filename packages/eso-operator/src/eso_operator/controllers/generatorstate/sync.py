"""Cleans up after a generator: the stored generator is resolved and called in the same way as a live one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.values import SecretBytes
from eso_operator.dependencies import Dependency, OnLabel, on_connection, on_object
from eso_operator.generators.ledger import IDEMPOTENCY_KEY, sealed_of
from eso_operator.generators.seals import SEAL, Seals
from eso_operator.generators.stored import StoredGenerator, StoredObjects, stored_generator
from eso_operator.providers.bytelimits import ByteLimits
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.loading import check_gate, normalise
from eso_operator.stores.resolve import Providers, Resolver
from eso_operator.stores.resolved import (
    Bind,
    Gate,
    Need,
    Reason,
    ResolutionError,
    ResolvedStore,
    ResolverSettings,
    WatchedObjects,
)
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import CleanupRequest, KindId, ObjectRef, Operation
from kuberun.errors import ApiError

CLEANING: Final = Need(frozenset({Operation.CLEANUP}), Gate.POLICY)
_RESOURCE: Final = GENERATOR_STATE.resource()

RecordDependencies = Callable[[frozenset[Dependency]], None]
"""Receives the dependencies of the clean-up before any call."""


class Cleaner:
    """Cleans up. The process has one."""

    def __init__(
        self,
        objects: WatchedObjects,
        providers: Providers,
        settings: ResolverSettings,
        *,
        bind: Bind,
        gateway: Gateway,
        seals: Seals,
        byte_limits: ByteLimits,
    ) -> None:
        self._objects = objects
        self._providers = providers
        self._settings = settings
        self._bind = bind
        self._gateway = gateway
        self._seals = seals
        self._byte_limits = byte_limits

    async def clean(self, state: GeneratorState, record: RecordDependencies) -> None:
        """Clean up one state; idempotent. Raises ResolutionError or ProviderError."""
        call = state.metadata.annotations.get(IDEMPOTENCY_KEY)
        if state.spec.state is None or call == "":
            return  # there is nothing, or nothing was made
        caller = identity_of(state)
        stored = stored_generator(state.spec.resource, caller, self._objects)
        resolver = Resolver(_WatchedStored(stored, self._objects), self._providers, self._settings)
        resolved = await resolver.resolve(stored.ref, caller, CLEANING)
        record(_dependencies(resolved))
        await self._check_seal(state, resolved)
        bound = await self._bind(resolved)
        with self._byte_limits.of_object(caller.namespace) as held:
            if call is None:
                what = SecretBytes(msgspec.json.encode(state.spec.state))
                held.add(len(what))
                request = CleanupRequest(what, idempotency_key=state.metadata.uid)
            else:  # the response was lost: the values are found by the idempotency key of the call
                request = CleanupRequest(SecretBytes(b""), idempotency_key=call)
            try:
                await self._gateway.cleanup(bound, request)
            except ProviderError as error:
                if not error.is_not_found:
                    raise

    def is_off(self, state: GeneratorState) -> bool:
        """Return whether the generator of a state is of a v2 kind, and the gate is off."""
        caller = identity_of(state)
        try:
            stored = stored_generator(state.spec.resource, caller, self._objects)
            check_gate(normalise(stored.ref, caller), v2_stores=self._settings.v2_stores)
        except ResolutionError as error:
            return error.reason is Reason.FEATURE_DISABLED
        return False

    async def _check_seal(self, state: GeneratorState, resolved: ResolvedStore) -> None:
        """Check the seal of a state.

        A cluster-scoped generator cleans up with its own credentials, so the operator itself must have written the
        state.
        """
        if resolved.store.namespace:
            return
        try:
            if await self._seals.matches(
                sealed_of(state, resolved.store.uid), state.metadata.annotations.get(SEAL, "")
            ):
                return
        except ApiError as problem:
            raise ProviderError(
                ErrorReason.BACKEND_UNAVAILABLE,
                f"the key that GeneratorStates are sealed with cannot be read: {problem.reason or problem.code}",
                retry=RetryClass.BACKOFF,
            ) from None
        raise ResolutionError(
            Reason.NOT_SEALED,
            f"{resolved.store.kind} {resolved.store.name} is cluster-scoped, and the operator did not write this"
            " GeneratorState for it as it is: whatever it tells of has to be removed by hand",
            subject=identity_of(state),
        )


class _WatchedStored(StoredObjects, WatchedObjects):
    """Stored objects in front of the watched ones; further kinds can still be included."""

    def __init__(self, stored: StoredGenerator, cluster: WatchedObjects) -> None:
        super().__init__(stored, cluster)
        self._watched = cluster

    def revision(self, kind: KindId) -> int:
        return self._watched.revision(kind)

    async def include(self, kind: KindId) -> bool:
        return await self._watched.include(kind)


def identity_of(state: GeneratorState) -> ObjectRef:
    """Return the caller of the clean-up: its credentials come from its namespace."""
    meta = state.metadata
    return ObjectRef(_RESOURCE.api_version, _RESOURCE.kind, meta.namespace, meta.name, meta.uid, meta.generation)


def _dependencies(resolved: ResolvedStore) -> frozenset[Dependency]:
    of_provider: set[Dependency] = {on_connection(resolved.connection), OnLabel(resolved.endpoint.label)}
    return frozenset(of_provider | {on_object(resolved.config.ref), on_object(resolved.store)})
