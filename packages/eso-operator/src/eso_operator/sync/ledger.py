"""Account of what generators made and must clean up: GeneratorStates.

    keep        the new state, before a value is written
    retire      the older ones of the same entries get a deadline, once it is
    discard     the new one gets a deadline of now, if it is not
    roll_back   what was made is cleaned up at once; if that fails, kept with a deadline of now

Where a value goes to several places and some of them fail again and again, states without a deadline add up. Of those
only a few stay: the oldest, which is what the places hold that were never reached since, and the newest.

States that passed their deadline, or lost their owner, are cleaned up by their own controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec
import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_operator.stores.stored import snapshot_of
from eso_operator.stores.target import BoundTarget
from eso_operator.sync.generate import Kept, Made, StateOwner
from eso_operator.targets.hashes import digest
from eso_wire.errors import ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, ObjectRef
from kuberun.cache import Store
from kuberun.client import Client
from kuberun.clock import Clock, rfc3339
from kuberun.errors import ApiError, NotFound
from kuberun.meta import JsonObject, ObjectKey, meta_of, raw
from kuberun.ownership import owner_reference

OWNER_KEY_LABEL: Final = "generators.external-secrets.io/owner-key"
OWNER_INDEX: Final = "owner"
FINALIZER: Final = "generatorstate.externalsecrets.io/finalizer"
"""There from the start: a state whose owner is deleted while no operator runs must not go without a clean-up."""
MAX_OLDER: Final = 5
"""States of one entry that may wait for a new value to be everywhere."""
_RAW: Final = raw(GENERATOR_STATE.resource())

_log = structlog.get_logger(__name__)


class Cleans(Protocol):
    """The part of the gateway that is needed here."""

    async def cleanup(self, bound: BoundTarget, request: CleanupRequest) -> CleanupOutcome: ...


def owner_key(kind: str, namespace: str, name: str, entry: str) -> str:
    """By which states of one entry of one object are found; the existing operator's digest."""
    return digest(f"{kind}-{namespace}-{name}-{entry}")


def owner_of(state: GeneratorState) -> list[tuple[str, str]]:
    """The index through which they are found."""
    key = state.metadata.labels.get(OWNER_KEY_LABEL)
    return [(state.metadata.namespace, key)] if key else []


class StateLedger:
    """Implements `sync.generate.GeneratorLedger`."""

    def __init__(
        self, client: Client, states: Store[GeneratorState], gateway: Cleans, *, clock: Clock, grace: float
    ) -> None:
        self._client = client
        self._states = states
        self._gateway = gateway
        self._clock = clock
        self._grace = timedelta(seconds=grace)

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        """The new states; older ones as they are known now. A state that is lost cannot be cleaned up."""
        keys = [_key(owner, entry) for entry in owner.entries]
        older = [state for key in keys for state in await self._older(owner.metadata.namespace, key)]
        new: list[ObjectKey] = []
        for place, each in enumerate(made):
            if each.state is None:
                continue
            try:
                created = await self._client.create(_RAW, _document(owner, each, keys[each.index]))
            except ApiError:
                await self.roll_back(made[place:])
                await self.discard(Kept(tuple(new)))
                raise
            new.append(meta_of(created).key)
        return Kept(tuple(new), tuple(older))

    async def retire(self, kept: Kept) -> None:
        """What they stand for lives on for the grace period, so that users of the old value can catch up."""
        await self._give_deadline(kept.older, self._clock.now() + self._grace)

    async def discard(self, kept: Kept) -> None:
        await self._give_deadline(kept.new, self._clock.now())

    async def roll_back(self, made: Sequence[Made]) -> None:
        for each in made:
            if each.state is None:
                continue
            try:
                await self._gateway.cleanup(each.bound, CleanupRequest(each.state))
            except ProviderError as error:
                _log.warning("generated state not cleaned up", generator=each.bound.target.store.name, why=error.reason)
                await self._leave(each)

    async def _older(self, namespace: str, key: str) -> list[ObjectKey]:
        """States of one entry that have no deadline; of too many, those between the oldest and the newest get one."""
        known = [
            state
            for state in self._states.find(OWNER_INDEX, (namespace, key))
            if state.spec.garbage_collection_deadline is None
        ]
        known.sort(key=lambda state: state.metadata.creation_timestamp or "")
        found = [state.metadata.key for state in known]
        between = found[1 : 1 - MAX_OLDER]
        await self._give_deadline(between, self._clock.now() + self._grace)
        return [state for state in found if state not in between]

    async def _leave(self, made: Made) -> None:
        """To the collector."""
        try:
            await self._client.create(_RAW, self._due_now(made))
        except ApiError as problem:
            _log.error("generated state is lost", generator=made.bound.target.store.name, why=problem.reason)

    async def _give_deadline(self, states: Sequence[ObjectKey], deadline: datetime) -> None:
        """One that fails is tried again after the next refresh."""
        for key in states:
            try:
                await self._client.merge_patch(_RAW, key, {"spec": {"garbageCollectionDeadline": rfc3339(deadline)}})
            except NotFound:
                continue
            except ApiError as problem:
                _log.warning("generated state not retired", state=str(key), why=problem.reason)

    def _due_now(self, made: Made) -> JsonObject:
        caller: ObjectRef = made.bound.target.caller
        now: datetime = self._clock.now()
        return {
            "metadata": {
                "generateName": _prefix(caller.kind, caller.name),
                "namespace": caller.namespace,
                "finalizers": [FINALIZER],
            },
            "spec": {
                "resource": resource_of(made),
                "state": _json(made),
                "garbageCollectionDeadline": rfc3339(now),
            },
        }


class NoLedger:
    """Keeps no account: what generators make is never cleaned up. For those who switch generator state off."""

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        del owner, made
        return Kept()

    async def retire(self, kept: Kept) -> None:
        """Nothing was kept."""

    async def discard(self, kept: Kept) -> None:
        """Nothing was kept."""

    async def roll_back(self, made: Sequence[Made]) -> None:
        """Nothing is cleaned up."""


def resource_of(made: Made) -> JsonObject:
    """The generator as it was: what is needed to clean up after it has changed or gone."""
    spec = made.bound.config.spec_json
    return snapshot_of(made.bound.target, None if spec is None else msgspec.json.decode(spec.reveal()))


def _document(owner: StateOwner, made: Made, key: str) -> JsonObject:
    meta = owner.metadata
    return {
        "metadata": {
            "generateName": _prefix(owner.resource.kind, meta.name),
            "namespace": meta.namespace,
            "labels": {OWNER_KEY_LABEL: key},
            "ownerReferences": [msgspec.to_builtins(owner_reference(owner.resource, meta))],
            "finalizers": [FINALIZER],
        },
        "spec": {"resource": resource_of(made), "state": _json(made)},
    }


def _key(owner: StateOwner, entry: str) -> str:
    meta = owner.metadata
    return owner_key(owner.resource.kind, meta.namespace, meta.name, entry)


def _prefix(kind: str, name: str) -> str:
    return f"gen-{kind.lower()}-{name}-"[:200]


def _json(made: Made) -> Any:
    return msgspec.json.decode(made.state.reveal()) if made.state is not None else None
