"""Generated values, and the ledger of what must be cleaned up after them: GeneratorStates.

    intend      record a call that may need a clean-up, before it is generated
    record      record the new state, before a value is written
    retire      give older states of the same entries a deadline, after the values were written
    retire_all_but    the same, if an earlier run wrote the values and was interrupted
    discard     give the new state a deadline of now, if they were not written
    roll_back   clean up at once, because another entry failed; if that fails, keep the state with a deadline of now

ExternalSecrets write the values to their target, PushSecrets to their stores. A push that reached only some of its
stores neither retires nor discards, because the other stores still hold values of an older state. If some stores keep
failing, states without a deadline accumulate. Only the oldest of them, which the failing stores may still hold, and the
newest ones stay without a deadline.

If a response gets lost, or the operator dies before it arrives, the intent stays: a state with a deadline and with the
idempotency key of the call in an annotation. The owner's record remembers the intent: a retry in the same process
repeats the call under the same key, unless the generator changed in the meantime. An intent that is not remembered is
cleaned up after its deadline.

The controller of GeneratorStates cleans up states that passed their deadline or lost their owner.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec
import structlog

from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.pushsecret import PUSH_SECRET
from eso_api.values import SecretBytes
from eso_operator.dependencies import Dependency
from eso_operator.generators.seals import SEAL, Sealed, Seals
from eso_operator.generators.stored import view_of
from eso_operator.memory import Memory
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.resolved import BoundStore
from eso_operator.targets.metadata import digest
from eso_wire.errors import ProviderError
from eso_wire.values import CleanupRequest, Operation
from kubebase.clock import Clock, rfc3339
from kubebase.meta import JsonObject, ObjectKey, ObjectMeta, Resource, meta_of, raw
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.ownership import owner_reference


@dataclass(frozen=True, slots=True)
class Intent:
    """A planned call of a generator. `record` is None if the call needs no clean-up."""

    idempotency_key: str
    record: ObjectKey | None = None
    owner: ObjectKey | None = None
    entry: str = ""
    """The name of the owner's entry."""
    generator_digest: str = ""
    """A digest of the generator, so that a changed generator never takes over the intent of the former one."""


@dataclass(frozen=True, slots=True)
class GeneratedValues:
    """The values and state that a generator returned for one entry of its owner."""

    index: int
    bound: BoundStore
    values: dict[str, SecretBytes]
    state: SecretBytes | None = None
    depends_on: frozenset[Dependency] = frozenset()
    refresh_within: float | None = None
    intent: Intent | None = None
    """The call that returned it."""


@dataclass(frozen=True, slots=True)
class StateOwner:
    """The owner of generated values. `entries` are the names of its entries, by `GeneratedValues.index`."""

    resource: Resource
    metadata: ObjectMeta
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedStates:
    """The recorded states: new ones of this reconcile, and older ones."""

    new: tuple[ObjectKey, ...] = ()
    older: tuple[ObjectKey, ...] = ()


class HasIntents(Protocol):
    """The fields of the owner's record that are used here."""

    uid: str
    intents: Mapping[str, Intent]
    """By entry: calls whose response got lost. A retry repeats such a call under the same idempotency key."""


NO_INTENTS: Final[Mapping[str, Intent]] = MappingProxyType({})


OWNER_KEY_LABEL: Final = "generators.external-secrets.io/owner-key"
OWNER_INDEX: Final = "owner"
FINALIZER: Final = "generatorstate.externalsecrets.io/finalizer"
"""Set at creation, so that no state is deleted without a clean-up while the operator is down."""
IDEMPOTENCY_KEY: Final = "generators.external-secrets.io/idempotency-key"
"""The annotation of intents with the idempotency key of the call; empty if the call certainly generated nothing."""
INTENT_SECONDS: Final = 900.0
"""The life of an intent: longer than any call with its retries."""
MAX_OLDER: Final = 5
"""The most states of one entry without a deadline."""
PUSH_ENTRY: Final = "__pushsecret"
"""The name of the only entry of a PushSecret that can have generated values."""
_RAW: Final = raw(GENERATOR_STATE.resource())

_log = structlog.get_logger(__name__)


def entry_name(kind: str, index: int) -> str:
    """Return the name of an entry of an owner of this kind, as in the existing operator."""
    return PUSH_ENTRY if kind == PUSH_SECRET.resource().kind else str(index)


def owner_key(kind: str, namespace: str, name: str, entry: str) -> str:
    """Return the label value that identifies the states of one entry; the digest of the existing operator."""
    return digest(f"{kind}-{namespace}-{name}-{entry}")


def owner_of(state: GeneratorState) -> list[tuple[str, str]]:
    """Index states by their entry and by the uids of their owners."""
    meta = state.metadata
    key = meta.labels.get(OWNER_KEY_LABEL)
    return [(meta.namespace, each) for each in (key, *(owner.uid for owner in meta.owner_references)) if each]


class GeneratorLedger:
    """A ledger that records nothing, for `--enable-generator-state=false`: nothing is cleaned up."""

    async def intend(self, bound: BoundStore, index: int) -> Intent:
        """Record the call for entry `index`. Raises ApiError if that fails; then the call must not be generated."""
        del bound, index
        return Intent(uuid.uuid4().hex)

    async def give_up(self, intent: Intent) -> None:
        """Record that the call generated nothing. Never raises."""

    async def record(self, owner: StateOwner, generated: Sequence[GeneratedValues]) -> RecordedStates:
        """Record the states. If that fails, discard or clean up the new states and raise ApiError."""
        del owner, generated
        return RecordedStates()

    async def retire(self, states: RecordedStates) -> None:
        """Give older states a deadline, after the new values were written. Never raises."""

    async def retire_all_but(self, owner: StateOwner, in_use: Collection[str]) -> None:
        """Give every state of the owner a deadline, except these, after an interrupted run. Never raises."""

    async def discard(self, states: RecordedStates) -> None:
        """Give new states a deadline of now, because their values were not written. Never raises."""

    async def roll_back(self, generated: Sequence[GeneratedValues]) -> None:
        """Clean up new states at once, or leave them to the collector if that fails. Never raises."""


class StateLedger(GeneratorLedger):
    """The ledger in GeneratorStates."""

    def __init__(
        self,
        client: Client,
        states: Cache[GeneratorState],
        gateway: Gateway,
        *,
        clock: Clock,
        grace: float,
        seals: Seals,
        memory: Memory[HasIntents],
    ) -> None:
        self._client = client
        self._states = states
        self._gateway = gateway
        self._clock = clock
        self._grace = timedelta(seconds=grace)
        self._seals = seals
        self._memory = memory

    async def intend(self, bound: BoundStore, index: int) -> Intent:
        """Record a call, or reuse the intent of a former attempt. Generators without clean-up need no record."""
        if Operation.CLEANUP not in bound.resolved.operations:
            return Intent(uuid.uuid4().hex)
        caller = bound.resolved.caller
        entry = entry_name(caller.kind, index)
        ends = rfc3339(self._clock.now() + timedelta(seconds=INTENT_SECONDS))
        owner, generator_digest = ObjectKey(caller.namespace, caller.name), digest(_resource(bound))
        known = self._memory.known(owner, caller.uid)
        left = None if known is None else known.intents.get(entry)
        if (
            left is not None
            and left.record is not None
            and left.generator_digest == generator_digest
            and await self._extend(left.record, ends)
        ):
            return left
        key = uuid.uuid4().hex
        created = await self._client.create(_RAW, await self._with_seal(bound, _intent(bound, entry, key, ends)))
        intent = Intent(key, meta_of(created).key, owner, entry, generator_digest)
        record = self._memory.of(owner, caller.uid)
        record.intents = {**record.intents, entry: intent}
        return intent

    async def give_up(self, intent: Intent) -> None:
        """Mark the intent as empty and due, so that the collector deletes it without calling the generator."""
        self._close(intent)
        if intent.record is not None:
            patch = _closing_patch(spec={"garbageCollectionDeadline": rfc3339(self._clock.now())}, key="")
            await self._patch_intent(intent.record, patch)

    async def record(self, owner: StateOwner, generated: Sequence[GeneratedValues]) -> RecordedStates:
        """Record the new states; return them with the older ones, including those of obsolete entries."""
        keys = [_key(owner, entry) for entry in owner.entries]
        older = [state for key in keys for state in await self._older(owner.metadata.namespace, key)]
        older += self._obsolete(owner, keys)
        new: list[ObjectKey] = []
        for position, each in enumerate(generated):
            try:
                if (record := await self._record_one(owner, each, keys[each.index])) is not None:
                    new.append(record)
            except ApiError:
                await self.roll_back(generated[position:])
                await self.discard(RecordedStates(tuple(new)))
                raise
        return RecordedStates(tuple(new), tuple(older))

    async def retire(self, states: RecordedStates) -> None:
        """Give older states a deadline after the grace period, in which users of the old values can switch."""
        await self._give_deadline(states.older, self._clock.now() + self._grace)

    async def retire_all_but(self, owner: StateOwner, in_use: Collection[str]) -> None:
        """Give all states of the owner a deadline, except those of the values in use, which are named."""
        of_owner = self._states.find(OWNER_INDEX, (owner.metadata.namespace, owner.metadata.uid))
        older = [
            state.metadata.key
            for state in of_owner
            if state.spec.garbage_collection_deadline is None and state.metadata.name not in in_use
        ]
        await self._give_deadline(older, self._clock.now() + self._grace)

    async def discard(self, states: RecordedStates) -> None:
        await self._give_deadline(states.new, self._clock.now())

    async def roll_back(self, generated: Sequence[GeneratedValues]) -> None:
        for each in generated:
            if each.state is None:
                continue
            try:
                await self._gateway.cleanup(each.bound, CleanupRequest(each.state))
            except ProviderError as error:
                _log.warning(
                    "generated state not cleaned up", generator=each.bound.resolved.store.name, why=error.reason
                )
                await self._leave_to_collector(each)
            else:
                if each.intent is not None:
                    await self.give_up(each.intent)

    async def _record_one(self, owner: StateOwner, generated: GeneratedValues, key: str) -> ObjectKey | None:
        """Record the state and return its key; None if there is nothing to clean up."""
        intent = generated.intent
        if generated.state is None:
            if intent is not None:
                await self.give_up(intent)
            return None
        if intent is None or intent.record is None:
            document = await self._with_seal(generated.bound, _document(owner, generated, key))
            return meta_of(await self._client.create(_RAW, document)).key
        await self._client.merge_patch(_RAW, intent.record, await self._state_patch(generated, intent, deadline=None))
        self._close(intent)
        return intent.record

    def _close(self, intent: Intent) -> None:
        """Drop an intent that is settled, so that the next call gets its own."""
        record = None if intent.owner is None else self._memory.find(intent.owner)
        if record is not None and record.intents.get(intent.entry) == intent:
            record.intents = {entry: left for entry, left in record.intents.items() if entry != intent.entry}

    async def _extend(self, record: ObjectKey, ends: str) -> bool:
        """Extend the deadline of an intent. Return whether the intent still exists and is not being deleted."""
        try:
            states = await self._client.merge_patch(_RAW, record, {"spec": {"garbageCollectionDeadline": ends}})
        except NotFound:
            return False
        return meta_of(states).deletion_timestamp is None

    async def _older(self, namespace: str, key: str) -> list[ObjectKey]:
        """Return the states of one entry without a deadline. Of too many, those in the middle get a deadline."""
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

    def _obsolete(self, owner: StateOwner, keys: Sequence[str]) -> list[ObjectKey]:
        """Return the states without a deadline of entries that the owner no longer has."""
        of_owner = self._states.find(OWNER_INDEX, (owner.metadata.namespace, owner.metadata.uid))
        return [
            state.metadata.key
            for state in of_owner
            if state.metadata.labels.get(OWNER_KEY_LABEL) not in keys and state.spec.garbage_collection_deadline is None
        ]

    async def _leave_to_collector(self, generated: GeneratedValues) -> None:
        """Leave the state to the collector, due now."""
        intent = generated.intent
        try:
            if intent is not None and intent.record is not None:
                self._close(intent)
                patch = await self._state_patch(generated, intent, deadline=rfc3339(self._clock.now()))
                await self._patch_intent(intent.record, patch)
            else:
                await self._client.create(_RAW, await self._with_seal(generated.bound, self._due_now(generated)))
        except ApiError as problem:
            _log.error("generated state is lost", generator=generated.bound.resolved.store.name, why=problem.reason)

    async def _state_patch(self, generated: GeneratedValues, intent: Intent, *, deadline: str | None) -> JsonObject:
        """Return the patch that turns an intent into the state that its call returned, with a new seal."""
        patch = _closing_patch(spec={"state": _json(generated), "garbageCollectionDeadline": deadline})
        whole = _intent(generated.bound, intent.entry, "", "")
        whole["metadata"]["annotations"], whole["spec"] = {}, {**whole["spec"], **patch["spec"]}
        patch["metadata"]["annotations"] |= (await self._with_seal(generated.bound, whole))["metadata"]["annotations"]
        return patch

    async def _with_seal(self, bound: BoundStore, document: JsonObject) -> JsonObject:
        """Return the document with a seal if its generator is cluster-scoped, else unchanged."""
        resolved = bound.resolved
        if resolved.store.namespace:
            return document
        state = msgspec.convert(document, GeneratorState)
        seal = await self._seals.seal(sealed_of(state, resolved.store.uid))
        metadata = document["metadata"]
        return {**document, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), SEAL: seal}}}

    async def _patch_intent(self, record: ObjectKey, patch: JsonObject) -> None:
        """Patch an intent; if that fails, the intent expires at its own deadline."""
        try:
            await self._client.merge_patch(_RAW, record, patch)
        except ApiError as problem:
            _log.warning("intent not closed: it expires at its deadline", state=str(record), why=problem.reason)

    async def _give_deadline(self, states: Sequence[ObjectKey], deadline: datetime) -> None:
        """Set the deadline of the states. A failed write is logged, and retried at a later reconcile."""
        for key in states:
            try:
                await self._client.merge_patch(_RAW, key, {"spec": {"garbageCollectionDeadline": rfc3339(deadline)}})
            except NotFound:
                continue
            except ApiError as problem:
                _log.warning("generated state not retired", state=str(key), why=problem.reason)

    def _due_now(self, generated: GeneratedValues) -> JsonObject:
        caller, now = generated.bound.resolved.caller, self._clock.now()
        return {
            "metadata": {
                "generateName": _prefix(caller.kind, caller.name),
                "namespace": caller.namespace,
                "finalizers": [FINALIZER],
            },
            "spec": {
                "resource": _resource(generated.bound),
                "state": _json(generated),
                "garbageCollectionDeadline": rfc3339(now),
            },
        }


def sealed_of(state: GeneratorState, uid: str) -> Sealed:
    """Return the content of a state that its seal must cover. `uid` is that of its generator."""
    meta, resource = state.metadata, state.spec.resource
    generator: JsonObject = resource if isinstance(resource, dict) else {}
    metadata = generator.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    return Sealed(
        namespace=meta.namespace,
        owner=meta.owner_references[0].uid if meta.owner_references else "",
        generator=uid,
        resource=(str(generator.get("apiVersion")), str(generator.get("kind")), str(name)),
        call=meta.annotations.get(IDEMPOTENCY_KEY, ""),
        state=state.spec.state,
    )


def _resource(bound: BoundStore) -> JsonObject:
    """Return a snapshot of the generator, for a clean-up after it was changed or deleted."""
    spec = bound.config.spec_json
    return view_of(bound.resolved, None if spec is None else msgspec.json.decode(spec.reveal()))


def _document(owner: StateOwner, generated: GeneratedValues, key: str) -> JsonObject:
    meta = owner.metadata
    return {
        "metadata": {
            "generateName": _prefix(owner.resource.kind, meta.name),
            "namespace": meta.namespace,
            "labels": {OWNER_KEY_LABEL: key},
            "ownerReferences": [msgspec.to_builtins(owner_reference(owner.resource, meta))],
            "finalizers": [FINALIZER],
        },
        "spec": {"resource": _resource(generated.bound), "state": _json(generated)},
    }


def _intent(bound: BoundStore, entry: str, key: str, ends: str) -> JsonObject:
    caller = bound.resolved.caller
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


def _closing_patch(*, spec: JsonObject, key: str | None = None) -> JsonObject:
    """Return a patch of an intent. `key` None removes the annotation, which makes it an ordinary state."""
    return {"metadata": {"annotations": {IDEMPOTENCY_KEY: key}}, "spec": spec}


def _key(owner: StateOwner, entry: str) -> str:
    meta = owner.metadata
    return owner_key(owner.resource.kind, meta.namespace, meta.name, entry)


def _prefix(kind: str, name: str) -> str:
    return f"gen-{kind.lower()}-{name}-"[:200]


def _json(generated: GeneratedValues) -> Any:
    return msgspec.json.decode(generated.state.reveal()) if generated.state is not None else None
