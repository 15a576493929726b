"""Account of what generators made and must clean up: GeneratorStates.

    intend      a call that will have to be cleaned up after, before it is made
    keep        the new state, before a value is written
    retire      the older ones of the same entries get a deadline, once it is
    discard     the new one gets a deadline of now, if it is not
    roll_back   what was made is cleaned up at once; if that fails, kept with a deadline of now

Where a value goes to several places and some of them fail again and again, states without a deadline add up. Of those
only a few stay: the oldest, which is what the places hold that were never reached since, and the newest.

A call whose answer gets lost, or an operator that dies before it has one, leaves the intent behind: a state that names
the call's idempotency key in an annotation, and has a deadline from the start. An attempt that follows in the same
process is the same call once more, under the same key, unless the generator is another one by then, or looks different.

States that passed their deadline, or lost their owner, are cleaned up by their own controller.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec
import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.pushsecret import PUSH_SECRET
from eso_operator.stores.stored import snapshot_of
from eso_operator.stores.target import BoundTarget
from eso_operator.sync.generate import Intent, Kept, Made, StateOwner
from eso_operator.sync.seals import SEAL, Sealed, Seals
from eso_operator.targets.hashes import digest
from eso_wire.errors import ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, Operation
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
IDEMPOTENCY_KEY: Final = "generators.external-secrets.io/idempotency-key"
"""Annotation of intents: that of the call; empty once it is known that it made nothing."""
INTENT_SECONDS: Final = 900.0
"""Longer than any call may take, its repetitions included."""
MAX_OPEN: Final = 10_000
"""Intents that are remembered for another attempt; one that is forgotten is cleaned up after."""
MAX_OLDER: Final = 5
"""States of one entry that may wait for a new value to be everywhere."""
PUSH_ENTRY: Final = "__pushsecret"
"""The one place of a PushSecret that values can be made for."""
_RAW: Final = raw(GENERATOR_STATE.resource())

_log = structlog.get_logger(__name__)


class Cleans(Protocol):
    """The part of the gateway that is needed here."""

    async def cleanup(self, bound: BoundTarget, request: CleanupRequest) -> CleanupOutcome: ...


def entry_name(kind: str, index: int) -> str:
    """How an owner of that kind names an entry: the existing operator's names."""
    return PUSH_ENTRY if kind == PUSH_SECRET.resource().kind else str(index)


def owner_key(kind: str, namespace: str, name: str, entry: str) -> str:
    """By which states of one entry of one object are found; the existing operator's digest."""
    return digest(f"{kind}-{namespace}-{name}-{entry}")


def owner_of(state: GeneratorState) -> list[tuple[str, str]]:
    """The index through which they are found: the entry they are for, and the object."""
    meta = state.metadata
    key = meta.labels.get(OWNER_KEY_LABEL)
    return [(meta.namespace, each) for each in (key, *(owner.uid for owner in meta.owner_references)) if each]


class StateLedger:
    """Implements `sync.generate.GeneratorLedger`."""

    def __init__(
        self,
        client: Client,
        states: Store[GeneratorState],
        gateway: Cleans,
        *,
        clock: Clock,
        grace: float,
        seals: Seals,
    ) -> None:
        self._client = client
        self._states = states
        self._gateway = gateway
        self._clock = clock
        self._grace = timedelta(seconds=grace)
        self._seals = seals
        self._open: dict[tuple[str, str], Intent] = {}

    async def intend(self, bound: BoundTarget, index: int) -> Intent:
        """For generators that clean up; the others leave nothing behind."""
        if Operation.CLEANUP not in bound.target.operations:
            return Intent(uuid.uuid4().hex)
        caller = bound.target.caller
        entry = entry_name(caller.kind, index)
        ends = rfc3339(self._clock.now() + timedelta(seconds=INTENT_SECONDS))
        left, asks = self._open.get((caller.uid, entry)), digest(_resource(bound))
        if (
            left is not None
            and left.record is not None
            and left.asks == asks
            and await self._extended(left.record, ends)
        ):
            return left
        key = uuid.uuid4().hex
        created = await self._client.create(_RAW, await self._sealed(bound, _intent(bound, entry, key, ends)))
        intent = Intent(key, meta_of(created).key, (caller.uid, entry), asks)
        self._open[intent.place] = intent
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]
        return intent

    async def give_up(self, intent: Intent) -> None:
        """The collector takes the record away, and asks nobody."""
        self._open.pop(intent.place, None)
        if intent.record is not None:
            patch = _settled(spec={"garbageCollectionDeadline": rfc3339(self._clock.now())}, key="")
            await self._noted(intent.record, patch)

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        """The new states; older ones as they are known now, those of entries that are no more among them."""
        keys = [_key(owner, entry) for entry in owner.entries]
        older = [state for key in keys for state in await self._older(owner.metadata.namespace, key)]
        older += self._strays(owner, keys)
        new: list[ObjectKey] = []
        for place, each in enumerate(made):
            try:
                if (record := await self._on_record(owner, each, keys[each.index])) is not None:
                    new.append(record)
            except ApiError:
                await self.roll_back(made[place:])
                await self.discard(Kept(tuple(new)))
                raise
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
            else:
                if each.intent is not None:
                    await self.give_up(each.intent)

    async def _on_record(self, owner: StateOwner, made: Made, key: str) -> ObjectKey | None:
        """Where its state is from now on; None if there is nothing to clean up."""
        intent = made.intent
        if made.state is None:
            if intent is not None:
                await self.give_up(intent)
            return None
        if intent is None or intent.record is None:
            document = await self._sealed(made.bound, _document(owner, made, key))
            return meta_of(await self._client.create(_RAW, document)).key
        await self._client.merge_patch(_RAW, intent.record, await self._answered(made, intent, deadline=None))
        self._open.pop(intent.place, None)
        return intent.record

    async def _extended(self, record: ObjectKey, ends: str) -> bool:
        """Whether it is still there, and stays for another call."""
        try:
            kept = await self._client.merge_patch(_RAW, record, {"spec": {"garbageCollectionDeadline": ends}})
        except NotFound:
            return False
        return meta_of(kept).deletion_timestamp is None

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

    def _strays(self, owner: StateOwner, keys: Sequence[str]) -> list[ObjectKey]:
        """States of entries that the object does not have any more."""
        of_owner = self._states.find(OWNER_INDEX, (owner.metadata.namespace, owner.metadata.uid))
        return [
            state.metadata.key
            for state in of_owner
            if state.metadata.labels.get(OWNER_KEY_LABEL) not in keys and state.spec.garbage_collection_deadline is None
        ]

    async def _leave(self, made: Made) -> None:
        """To the collector."""
        intent = made.intent
        try:
            if intent is not None and intent.record is not None:
                self._open.pop(intent.place, None)
                patch = await self._answered(made, intent, deadline=rfc3339(self._clock.now()))
                await self._noted(intent.record, patch)
            else:
                await self._client.create(_RAW, await self._sealed(made.bound, self._due_now(made)))
        except ApiError as problem:
            _log.error("generated state is lost", generator=made.bound.target.store.name, why=problem.reason)

    async def _answered(self, made: Made, intent: Intent, *, deadline: str | None) -> JsonObject:
        """Changes an intent into the state that its call left, with a seal of its own."""
        patch = _settled(spec={"state": _json(made), "garbageCollectionDeadline": deadline})
        whole = _intent(made.bound, intent.place[1], "", "")
        whole["metadata"]["annotations"], whole["spec"] = {}, {**whole["spec"], **patch["spec"]}
        patch["metadata"]["annotations"] |= (await self._sealed(made.bound, whole))["metadata"]["annotations"]
        return patch

    async def _sealed(self, bound: BoundTarget, document: JsonObject) -> JsonObject:
        """The state with a seal, if its generator is cluster-scoped."""
        target = bound.target
        if target.store.namespace:
            return document
        state = msgspec.convert(document, GeneratorState)
        seal = await self._seals.seal(sealed_of(state, target.store.uid))
        metadata = document["metadata"]
        return {**document, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), SEAL: seal}}}

    async def _noted(self, record: ObjectKey, patch: JsonObject) -> None:
        """If it cannot be, the intent ends at its own deadline."""
        try:
            await self._client.merge_patch(_RAW, record, patch)
        except ApiError as problem:
            _log.warning("call of a generator stays on record", state=str(record), why=problem.reason)

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
        caller, now = made.bound.target.caller, self._clock.now()
        return {
            "metadata": {
                "generateName": _prefix(caller.kind, caller.name),
                "namespace": caller.namespace,
                "finalizers": [FINALIZER],
            },
            "spec": {
                "resource": _resource(made.bound),
                "state": _json(made),
                "garbageCollectionDeadline": rfc3339(now),
            },
        }


class NoLedger:
    """Keeps no account: what generators make is never cleaned up. For those who switch generator state off."""

    async def intend(self, bound: BoundTarget, index: int) -> Intent:
        del bound, index
        return Intent(uuid.uuid4().hex)

    async def give_up(self, intent: Intent) -> None:
        """Nothing was kept."""

    async def keep(self, owner: StateOwner, made: Sequence[Made]) -> Kept:
        del owner, made
        return Kept()

    async def retire(self, kept: Kept) -> None:
        """Nothing was kept."""

    async def discard(self, kept: Kept) -> None:
        """Nothing was kept."""

    async def roll_back(self, made: Sequence[Made]) -> None:
        """Nothing is cleaned up."""


def sealed_of(state: GeneratorState, generator: str) -> Sealed:
    """What a seal has to vouch for, so that this state is believed; `generator` is the uid of the one that made it."""
    meta, resource = state.metadata, state.spec.resource
    said: JsonObject = resource if isinstance(resource, dict) else {}
    metadata = said.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    return Sealed(
        namespace=meta.namespace,
        owner=meta.owner_references[0].uid if meta.owner_references else "",
        generator=generator,
        resource=(str(said.get("apiVersion")), str(said.get("kind")), str(name)),
        call=meta.annotations.get(IDEMPOTENCY_KEY, ""),
        state=state.spec.state,
    )


def _resource(bound: BoundTarget) -> JsonObject:
    """The generator as it is: what is needed to clean up after it has changed or gone."""
    spec = bound.config.spec_json
    return snapshot_of(bound.target, None if spec is None else msgspec.json.decode(spec.reveal()))


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
        "spec": {"resource": _resource(made.bound), "state": _json(made)},
    }


def _intent(bound: BoundTarget, entry: str, key: str, ends: str) -> JsonObject:
    caller = bound.target.caller
    owner = {"apiVersion": caller.api_version, "kind": caller.kind, "name": caller.name, "uid": caller.uid}
    return {
        "metadata": {
            "generateName": _prefix(caller.kind, caller.name),
            "namespace": caller.namespace,
            "labels": {OWNER_KEY_LABEL: owner_key(caller.kind, caller.namespace, caller.name, entry)},
            "annotations": {IDEMPOTENCY_KEY: key},
            "ownerReferences": [owner],
            "finalizers": [FINALIZER],
        },
        "spec": {"resource": _resource(bound), "state": {}, "garbageCollectionDeadline": ends},
    }


def _settled(*, spec: JsonObject, key: str | None = None) -> JsonObject:
    """Changes an intent into what is known of its call by now. Without a key it is a state like any other."""
    return {"metadata": {"annotations": {IDEMPOTENCY_KEY: key}}, "spec": spec}


def _key(owner: StateOwner, entry: str) -> str:
    meta = owner.metadata
    return owner_key(owner.resource.kind, meta.namespace, meta.name, entry)


def _prefix(kind: str, name: str) -> str:
    return f"gen-{kind.lower()}-{name}-"[:200]


def _json(made: Made) -> Any:
    return msgspec.json.decode(made.state.reveal()) if made.state is not None else None
