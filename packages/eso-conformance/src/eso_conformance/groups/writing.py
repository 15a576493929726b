"""Writing: pushes with preconditions, ownership, deletions; each is idempotent."""

from __future__ import annotations

import asyncio
import uuid

from eso_conformance.cases import NotApplicable, Profile, case, expect
from eso_conformance.subject import CALL_SECONDS, Subject
from eso_wire._generated import provider_pb2 as pb

_WRITTEN = {pb.PUSH_OUTCOME_CREATED, pb.PUSH_OUTCOME_UPDATED, pb.PUSH_OUTCOME_UNCHANGED}
_RACERS = 10
_OWNER, _ANOTHER = "conformance-one", "conformance-two"
_OWNED = b"value of the first owner"


@case(Profile.WRITE, "push", "stores a value byte for byte, also when it is no text")
async def stores_bytes(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_GET)
    for value in (b"plain", b"", bytes(range(256))):
        key = subject.fresh_key()
        pushed = await subject.push(key, value)
        if pushed.HasField("error") and pushed.error.reason == pb.ERROR_REASON_INVALID_REQUEST:
            if not value:  # a backend without empty values that says so
                continue
            raise NotApplicable("this backend stores text only, and says so")
        expect(not pushed.HasField("error"), f"the push failed: {subject.describe_error(pushed.error)}")

        read = await subject.get_one(key)

        expect(read.WhichOneof("outcome") == "value" and read.value == value, "another value was read than was pushed")


@case(Profile.WRITE, "push", "says whether it wrote a value, and never that it created one that was there")
async def reports_outcome(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH)
    key = subject.fresh_key()

    outcomes = [(await subject.push(key, value)).outcome for value in (b"one", b"two", b"two")]

    expect(outcomes[0] in (pb.PUSH_OUTCOME_CREATED, pb.PUSH_OUTCOME_UPDATED), "the first push wrote nothing")
    expect(outcomes[1] == pb.PUSH_OUTCOME_UPDATED, "a push of another value did not say UPDATED")
    expect(outcomes[2] in (pb.PUSH_OUTCOME_UPDATED, pb.PUSH_OUTCOME_UNCHANGED), "a push of the same value created it")


@case(Profile.WRITE, "push", "leaves an existing value alone with IF_ABSENT, and says SKIPPED_EXISTS")
async def if_absent(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_PUSH_IF_ABSENT, pb.OPERATION_GET)
    key = subject.fresh_key()
    await subject.push(key, b"first")

    second = await subject.push(key, b"second", precondition=pb.PUSH_PRECONDITION_IF_ABSENT)

    expect(second.outcome == pb.PUSH_OUTCOME_SKIPPED_EXISTS, "the outcome is not SKIPPED_EXISTS")
    read = await subject.get_one(key)
    expect(read.value == b"first", "IF_ABSENT overwrote a value")


@case(Profile.WRITE, "push", "lets exactly one of many simultaneous IF_ABSENT pushes win")
async def if_absent_is_atomic(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_PUSH_IF_ABSENT, pb.OPERATION_GET)
    key = subject.fresh_key()

    results = await asyncio.gather(
        *(
            subject.push(key, f"racer-{at}".encode(), precondition=pb.PUSH_PRECONDITION_IF_ABSENT)
            for at in range(_RACERS)
        )
    )

    winners = [at for at, result in enumerate(results) if result.outcome == pb.PUSH_OUTCOME_CREATED]
    expect(len(winners) == 1, f"{len(winners)} of {_RACERS} racers created the value")
    read = await subject.get_one(key)
    expect(read.value == f"racer-{winners[0]}".encode(), "the value is not the winner's")


@case(Profile.WRITE, "push", "refuses a precondition it does not offer instead of ignoring it")
async def unoffered_precondition(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH)
    if subject.offers(pb.OPERATION_PUSH_IF_ABSENT):
        raise NotApplicable("it offers IF_ABSENT")
    result = await subject.push(subject.fresh_key(), b"value", precondition=pb.PUSH_PRECONDITION_IF_ABSENT)

    expect(result.error.reason == pb.ERROR_REASON_UNSUPPORTED_OPERATION, "IF_ABSENT is ignored")


@case(Profile.WRITE, "push", "gives the same result when a push is repeated under its idempotency key")
async def push_is_idempotent(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_GET)
    key = subject.fresh_key()
    place = subject.written(key)
    entry = pb.PushItem(item_id="only", remote=place, value=b"once", precondition=pb.PUSH_PRECONDITION_NONE)
    request = pb.PushSecretsRequest(context=subject.context(), items=[entry], idempotency_key=str(uuid.uuid4()))

    for _ in range(2):
        response = await subject.stores.PushSecrets(request, timeout=CALL_SECONDS)

        expect(response.results[0].outcome in _WRITTEN, "a repeated push fails")
    read = await subject.get_one(key)
    expect(read.value == b"once", "a repeated push changed the value")


@case(Profile.WRITE, "delete", "removes what was pushed")
async def removes(subject: Subject) -> None:
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_DELETE, pb.OPERATION_GET)
    key = subject.fresh_key()
    await subject.push(key, b"value")

    result = await subject.delete(key)

    expect(not result.HasField("error"), f"the deletion failed: {subject.describe_error(result.error)}")
    expect(result.existed, "a value that was there is said not to have existed")
    read = await subject.get_one(key)
    expect(read.WhichOneof("outcome") == "error", "a deleted value can still be read")


@case(Profile.WRITE, "delete", "succeeds for what is not there, with existed=false")
async def absent_is_deleted(subject: Subject) -> None:
    subject.need(pb.OPERATION_DELETE)

    result = await subject.delete(subject.fresh_key())

    expect(not result.HasField("error"), f"deleting nothing failed: {subject.describe_error(result.error)}")
    expect(not result.existed, "what was never there is said to have existed")


@case(Profile.WRITE, "ownership", "deletes nothing that another owner pushed")
async def refuses_foreign_deletion(subject: Subject) -> None:
    key = await _owned_key(subject)
    subject.need(pb.OPERATION_DELETE)

    result = await subject.delete(key, owner_token=_ANOTHER)

    read = await subject.get_one(key)
    expect(read.value == _OWNED, "a deletion removed the value of another owner")
    expect(result.HasField("error") or not result.existed, "a deletion that did not happen is reported as one")


@case(Profile.WRITE, "ownership", "overwrites nothing that another owner pushed, and says OWNERSHIP_CONFLICT")
async def refuses_foreign_overwrite(subject: Subject) -> None:
    key = await _owned_key(subject)

    result = await subject.push(key, b"overwritten", owner_token=_ANOTHER)

    read = await subject.get_one(key)
    expect(read.value == _OWNED, "a push replaced the value of another owner")
    expect(result.HasField("error"), "a push that did not happen is reported as one")
    expect(
        result.error.reason == pb.ERROR_REASON_OWNERSHIP_CONFLICT,
        f"the reason is not OWNERSHIP_CONFLICT but {subject.describe_error(result.error)}",
    )


async def _owned_key(subject: Subject) -> str:
    """Push a new key with the value of one owner and return the key."""
    subject.need(pb.OPERATION_PUSH, pb.OPERATION_GET)
    if not subject.fixture.ownership:
        raise NotApplicable("the fixture says that this backend has no place for marks of ownership")
    key = subject.fresh_key()
    pushed = await subject.push(key, _OWNED, owner_token=_OWNER)
    expect(not pushed.HasField("error"), f"the push failed: {subject.describe_error(pushed.error)}")
    return key


WRITING = (
    stores_bytes,
    reports_outcome,
    if_absent,
    if_absent_is_atomic,
    unoffered_precondition,
    push_is_idempotent,
    removes,
    absent_is_deleted,
    refuses_foreign_deletion,
    refuses_foreign_overwrite,
)


# --- Generators: new values, with state for repeatable cleanup -------------------------------------------------------


@case(Profile.GENERATOR, "generate", "makes values")
async def makes_values(subject: Subject) -> None:
    made = await _generate(subject)

    expect(made.data, "no value was made")
    expect(all(made.data), "a value has no name")


@case(Profile.GENERATOR, "generate", "gives state as JSON, if it gives any")
async def state_is_json(subject: Subject) -> None:
    made = await _generate(subject)
    if not made.state_json:
        raise NotApplicable("this generator has no state")

    expect(made.state_json.lstrip()[:1] == b"{", "the state is no JSON object")


@case(Profile.GENERATOR, "cleanup", "succeeds, and succeeds again when everything is gone already")
async def cleanup_is_idempotent(subject: Subject) -> None:
    subject.need(pb.OPERATION_CLEANUP)
    made = await _generate(subject)
    request = pb.CleanupRequest(
        context=subject.context(), state_json=made.state_json, idempotency_key=str(uuid.uuid4())
    )

    await subject.generators.Cleanup(request, timeout=CALL_SECONDS)
    await subject.generators.Cleanup(request, timeout=CALL_SECONDS)


async def _generate(subject: Subject) -> pb.GenerateResponse:
    subject.need(pb.OPERATION_GENERATE)
    request = pb.GenerateRequest(context=subject.context(), idempotency_key=str(uuid.uuid4()))
    made: pb.GenerateResponse = await subject.generators.Generate(request, timeout=CALL_SECONDS)
    return made


GENERATING = (makes_values, state_is_json, cleanup_is_idempotent)
