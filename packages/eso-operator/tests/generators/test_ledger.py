"""The ledger of generated state: recorded before the target is written, retired only after it is."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from eso_api.externalsecret import EXTERNAL_SECRET
from eso_api.generators.generatorstate import GeneratorState
from eso_api.pushsecret import PUSH_SECRET
from eso_api.values import SecretBytes
from eso_operator.generators.ledger import (
    FINALIZER,
    IDEMPOTENCY_KEY,
    INTENT_SECONDS,
    OWNER_INDEX,
    OWNER_KEY_LABEL,
    GeneratedValues,
    RecordedStates,
    StateLedger,
    StateOwner,
    owner_key,
    owner_of,
)
from eso_operator.generators.seals import Sealed, Seals
from eso_operator.providers.gateway import Gateway
from eso_operator.stores.resolved import BoundStore
from eso_operator.wiring_controllers import Memories
from eso_testkit.operator.boundstores import bound_store
from eso_testkit.operator.externalsecrets import external_secret
from eso_testkit.operator.pushsecrets import push_secret
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, Operation
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject, Kind, ObjectKey
from kubebase.testing.clock import START, VirtualClock
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, Forbidden, NotFound
from kuberun.watch import Listed

OWNER = StateOwner(EXTERNAL_SECRET.resource(), external_secret().metadata, ("0", "1"))
PUSHER = StateOwner(PUSH_SECRET.resource(), push_secret().metadata, ("__pushsecret",))


class Unsealed(Seals):
    """Nothing here is cluster-scoped."""

    def __init__(self) -> None:
        """Read no key."""

    async def seal(self, content: Sealed) -> str:
        raise AssertionError(f"sealed: {content}")

    async def matches(self, content: Sealed, seal: str) -> bool:
        raise AssertionError(f"asked about {content}: {seal}")


@dataclass
class States:
    """GeneratorStates of a cluster, and a provider that cleans up."""

    stored: dict[str, JsonObject] = field(default_factory=dict)
    cleaned: list[bytes] = field(default_factory=list)
    refuses: ApiError | None = None
    allowed: int = 100
    cleanup_fails: bool = False

    async def create(self, kind: Kind[JsonObject], obj: JsonObject) -> JsonObject:
        del kind
        if self.refuses is not None and len(self.stored) >= self.allowed:
            raise self.refuses
        name = f"{obj['metadata']['generateName']}{len(self.stored)}"
        self.stored[name] = {**obj, "metadata": {**obj["metadata"], "name": name}}
        return self.stored[name]

    async def merge_patch(self, kind: Kind[JsonObject], key: ObjectKey, patch: JsonObject) -> JsonObject:
        del kind
        if key.name not in self.stored:
            raise NotFound(404, "NotFound", "gone")
        stored = self.stored[key.name]
        for part, fields in patch.items():
            stored[part] = _merged(stored[part], fields)
        return stored

    async def cleanup(self, bound: BoundStore, request: CleanupRequest) -> CleanupOutcome:
        del bound
        if self.cleanup_fails:
            raise ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")
        self.cleaned.append(request.state.reveal())
        return CleanupOutcome.CLEANED

    def deadlines(self) -> list[str | None]:
        return [state["spec"].get("garbageCollectionDeadline") for state in self.stored.values()]

    def ledger(self, known: Cache[GeneratorState] | None = None) -> StateLedger:
        client, gateway = cast("Client", self), cast("Gateway", self)
        memory = Memories().external_secrets
        return StateLedger(
            client, known or _states(), gateway, clock=VirtualClock(), grace=120, seals=Unsealed(), memory=memory
        )


def _merged(old: JsonObject, patch: JsonObject) -> JsonObject:
    found = {**old}
    for name, value in patch.items():
        found[name] = _merged(found.get(name) or {}, value) if isinstance(value, dict) else value
    return {name: value for name, value in found.items() if value is not None}


def _states(*known: GeneratorState) -> Cache[GeneratorState]:
    store: Cache[GeneratorState] = Cache(indexes={OWNER_INDEX: owner_of})
    store.apply(Listed(known))
    return store


def made(state: bytes | None = b'{"id": 1}', index: int = 0) -> GeneratedValues:
    return GeneratedValues(index, bound_store(), {}, None if state is None else SecretBytes(state))


def known_state(name: str, owner: StateOwner = OWNER, entry: str = "0", **spec: Any) -> GeneratorState:
    meta = owner.metadata
    key = owner_key(owner.resource.kind, meta.namespace, meta.name, entry)
    metadata: JsonObject = {
        "name": name,
        "namespace": meta.namespace,
        "labels": {OWNER_KEY_LABEL: key},
        "resourceVersion": "1",
        "ownerReferences": [{"apiVersion": "v1", "kind": owner.resource.kind, "name": meta.name, "uid": meta.uid}],
    }
    metadata["creationTimestamp"] = f"2030-01-01T00:00:0{name[-1]}Z" if name[-1].isdigit() else None
    return msgspec.convert({"metadata": metadata, "spec": {"resource": {}, "state": {}, **spec}}, GeneratorState)


async def test_a_state_is_on_record_with_its_owner_and_its_entry() -> None:
    states = States()

    kept = await states.ledger().record(OWNER, [made(index=1)])

    [stored] = states.stored.values()
    assert stored["metadata"]["generateName"] == "gen-externalsecret-db-"
    assert stored["metadata"]["labels"] == {OWNER_KEY_LABEL: owner_key("ExternalSecret", "default", "db", "1")}
    assert stored["metadata"]["ownerReferences"][0]["uid"] == OWNER.metadata.uid
    assert stored["spec"]["state"] == {"id": 1}
    assert [key.name for key in kept.new] == list(states.stored)


async def test_states_of_both_kinds_of_owner_are_held_from_the_start() -> None:
    """An owner that is deleted while no operator runs must not take them along."""
    states = States()

    await states.ledger().record(OWNER, [made()])
    await states.ledger().record(PUSHER, [made()])

    assert [stored["metadata"]["finalizers"] for stored in states.stored.values()] == [[FINALIZER], [FINALIZER]]
    pushed = list(states.stored.values())[1]["metadata"]
    assert pushed["generateName"] == "gen-pushsecret-push-"
    assert pushed["labels"] == {OWNER_KEY_LABEL: owner_key("PushSecret", "team-a", "push", "__pushsecret")}
    assert pushed["ownerReferences"][0]["kind"] == "PushSecret"


async def test_states_that_wait_for_one_place_of_many_do_not_add_up() -> None:
    """A store that was never reached may hold the oldest; of the rest only the newest may be in use."""
    names = [f"state-{number}" for number in range(8)]
    states = States(stored={name: {"spec": {}} for name in names})
    ledger = states.ledger(_states(*(known_state(name, PUSHER, "__pushsecret") for name in reversed(names))))

    kept = await ledger.record(PUSHER, [])

    assert [key.name for key in kept.older] == ["state-0", "state-4", "state-5", "state-6", "state-7"]
    deadline = "2030-01-01T00:02:00Z"
    assert states.deadlines() == [None, deadline, deadline, deadline, None, None, None, None]


async def test_values_without_state_leave_nothing() -> None:
    states = States()

    assert await states.ledger().record(OWNER, [made(None)]) == RecordedStates()
    assert states.stored == {}


async def test_older_states_get_a_deadline_once_the_target_is_written_and_not_before() -> None:
    states = States(stored={"old": {"spec": {}}, "older": {"spec": {}}})
    retired = known_state("older", garbageCollectionDeadline="2030-01-01T00:00:00Z")
    ledger = states.ledger(_states(known_state("old"), retired))

    kept = await ledger.record(OWNER, [made()])
    assert states.deadlines() == [None, None, None]
    await ledger.retire(kept)

    assert states.deadlines() == ["2030-01-01T00:02:00Z", None, None]


async def test_an_entry_that_is_no_generator_any_more_retires_its_states_too() -> None:
    states = States(stored={"old": {"spec": {}}})
    ledger = states.ledger(_states(known_state("old", entry="1")))

    await ledger.retire(await ledger.record(OWNER, []))

    assert states.deadlines() == ["2030-01-01T00:02:00Z"]


async def test_an_entry_that_is_gone_retires_its_states_too() -> None:
    """A lookup by entry would never find them again."""
    states = States({"state-1": {"metadata": {}, "spec": {}}, "state-2": {"metadata": {}, "spec": {}}})
    ledger = states.ledger(_states(known_state("state-1", entry="0"), known_state("state-2", entry="7")))

    kept = await ledger.record(OWNER, [])
    await ledger.retire(kept)

    assert states.deadlines() == [rfc3339(START + timedelta(seconds=120))] * 2


async def test_when_the_target_was_not_written_the_new_state_goes_and_the_old_one_stays() -> None:
    states = States(stored={"old": {"spec": {}}})
    ledger = states.ledger(_states(known_state("old")))

    await ledger.discard(await ledger.record(OWNER, [made()]))

    assert states.deadlines() == [None, rfc3339(START)]


async def test_values_that_cannot_be_recorded_are_cleaned_up_and_recorded_ones_are_discarded() -> None:
    states = States(refuses=Forbidden(403, "Forbidden", "no"), allowed=1)

    with pytest.raises(Forbidden):
        await states.ledger().record(OWNER, [made(b'{"id": 1}'), made(b'{"id": 2}'), made(b'{"id": 3}', 1)])

    assert states.cleaned == [b'{"id": 2}', b'{"id": 3}']
    assert states.deadlines() == [rfc3339(START)]


async def test_a_roll_back_cleans_up_at_once() -> None:
    """P25."""
    states = States()

    await states.ledger().roll_back([made(), made(None)])

    assert states.cleaned == [b'{"id": 1}']
    assert states.stored == {}


async def test_a_roll_back_that_fails_is_left_to_the_collector() -> None:
    states = States(cleanup_fails=True)

    await states.ledger().roll_back([made()])

    assert states.deadlines() == [rfc3339(START)]


async def test_a_state_that_is_gone_already_needs_no_deadline_and_no_warning() -> None:
    states = States(stored={"there": {"spec": {}}})
    older = (ObjectKey("default", "gone"), ObjectKey("default", "there"))

    with capture_logs() as logs:
        await states.ledger().retire(RecordedStates(older=older))

    assert logs == []
    assert states.stored == {"there": {"spec": {"garbageCollectionDeadline": "2030-01-01T00:02:00Z"}}}


# --- calls that are on record before they are made --------------------------------------------------------------------


def cleaning(spec: bytes = b"{}") -> BoundStore:
    return bound_store(spec=spec)


async def test_a_call_is_on_record_before_it_is_made_and_ends_by_itself() -> None:
    states = States()

    intent = await states.ledger().intend(cleaning(), 1)

    [stored] = states.stored.values()
    caller = cleaning().resolved.caller
    assert stored["metadata"]["annotations"] == {IDEMPOTENCY_KEY: intent.idempotency_key}
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    assert stored["metadata"]["labels"] == {OWNER_KEY_LABEL: owner_key(caller.kind, caller.namespace, caller.name, "1")}
    assert stored["metadata"]["ownerReferences"][0]["uid"] == caller.uid
    assert stored["spec"]["garbageCollectionDeadline"] == rfc3339(START + timedelta(seconds=INTENT_SECONDS))


async def test_a_generator_that_leaves_nothing_behind_needs_no_record() -> None:
    states = States()

    target = replace(cleaning().resolved, operations=frozenset({Operation.GENERATE}))
    intent = await states.ledger().intend(replace(cleaning(), resolved=target), 0)

    assert intent.record is None
    assert states.stored == {}


async def test_the_record_of_a_call_becomes_that_of_its_value() -> None:
    states = States()
    ledger = states.ledger()
    intent = await ledger.intend(cleaning(), 0)

    kept = await ledger.record(OWNER, [replace(made(), intent=intent)])

    [(name, stored)] = states.stored.items()
    assert [key.name for key in kept.new] == [name]
    assert stored["spec"]["state"] == {"id": 1}
    assert "garbageCollectionDeadline" not in stored["spec"]
    assert stored["metadata"]["annotations"] == {}


async def test_an_attempt_after_a_lost_answer_is_the_same_call() -> None:
    states = States()
    ledger = states.ledger()

    lost = await ledger.intend(cleaning(), 0)
    again = await ledger.intend(cleaning(), 0)
    await ledger.record(OWNER, [replace(made(), intent=again)])
    another = await ledger.intend(cleaning(), 0)

    assert again == lost
    assert another.idempotency_key != lost.idempotency_key


async def test_after_a_lost_answer_another_generator_gets_a_call_of_its_own() -> None:
    """Entries are known by their places: what the one before made must not be cleaned up as if this one had made it."""
    states = States()
    ledger = states.ledger()

    lost = await ledger.intend(cleaning(), 0)
    other = await ledger.intend(cleaning(spec=b'{"length": 40}'), 0)

    assert other.idempotency_key != lost.idempotency_key
    assert [state["spec"]["resource"]["spec"] for state in states.stored.values()] == [{}, {"length": 40}]
    assert states.deadlines() == [rfc3339(START + timedelta(seconds=INTENT_SECONDS))] * 2


@pytest.mark.parametrize("how", ["given up", "no state", "rolled back"])
async def test_a_call_that_left_nothing_behind_needs_no_clean_up(how: str) -> None:
    states = States()
    ledger = states.ledger()
    intent = await ledger.intend(cleaning(), 0)

    match how:
        case "given up":
            await ledger.give_up(intent)
        case "no state":
            await ledger.record(OWNER, [replace(made(None), intent=intent)])
        case _:
            await ledger.roll_back([replace(made(), intent=intent)])

    [stored] = states.stored.values()
    assert stored["metadata"]["annotations"] == {IDEMPOTENCY_KEY: ""}
    assert states.deadlines() == [rfc3339(START)]


async def test_a_roll_back_that_fails_leaves_the_state_under_the_record_of_its_call() -> None:
    states = States(cleanup_fails=True)
    ledger = states.ledger()
    intent = await ledger.intend(cleaning(), 0)

    await ledger.roll_back([replace(made(), intent=intent)])

    [stored] = states.stored.values()
    assert stored["spec"]["state"] == {"id": 1}
    assert stored["metadata"]["annotations"] == {}
    assert states.deadlines() == [rfc3339(START)]
