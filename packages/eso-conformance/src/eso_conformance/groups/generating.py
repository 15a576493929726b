"""Generators: new values, with state for repeatable cleanup."""

from __future__ import annotations

import uuid

from eso_conformance.cases import NotApplicable, Profile, case, expect
from eso_conformance.subject import CALL_SECONDS, Subject
from eso_wire._generated import provider_pb2 as pb


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


CASES = (makes_values, state_is_json, cleanup_is_idempotent)
