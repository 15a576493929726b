"""Robustness: deadlines, cancellation, batches that are too large, malformed messages."""

from __future__ import annotations

import asyncio
import random

import grpc
from grpc import aio

from eso_conformance.cases import NotApplicable, Profile, case, expect, violated
from eso_conformance.subject import CALL_SECONDS, Subject, detail_of, item, reason_name, shake_hands
from eso_wire._generated import provider_pb2 as pb

_PACKAGE = pb.DESCRIPTOR.package
_UNARY = {
    "SecretStoreProvider": ("Validate", "GetSecrets", "CheckSecrets", "PushSecrets", "DeleteSecrets"),
    "GeneratorProvider": ("ValidateGenerator", "Generate", "Cleanup"),
    "ProviderInfo": ("Handshake",),
}
_STREAMS = ("SecretStoreProvider/FindSecrets", "SecretStoreProvider/Subscribe")
_SINGLE, _STREAM = "one message each way", "a stream"
_ROUNDS = 40
_TOO_LARGE = {pb.ERROR_REASON_INVALID_REQUEST, pb.ERROR_REASON_PAYLOAD_TOO_LARGE}


@case(Profile.READ, "robustness", "refuses a batch above its own limit instead of dropping items")
async def refuses_large_batch(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    limit = subject.handshake.limits.max_batch_items
    if not 0 < limit <= 5000:
        raise NotApplicable("no limit that could be tried")
    items = [item(str(at), subject.fixture.absent) for at in range(limit + 1)]

    try:
        await subject.get(items)
    except aio.AioRpcError as error:
        detail = detail_of(error)
        expect(
            detail is not None and detail.reason in _TOO_LARGE, "a batch that is too large fails with another reason"
        )
    else:
        violated("a batch above the stated limit was accepted")


@case(Profile.READ, "robustness", "refuses two items of one id")
async def refuses_double_ids(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    try:
        await subject.get([item("same", "a"), item("same", "b")])
    except aio.AioRpcError as error:
        detail = detail_of(error)
        expect(
            detail is not None and detail.reason == pb.ERROR_REASON_INVALID_REQUEST,
            "another reason than INVALID_REQUEST",
        )
    else:
        violated("two items of one id were accepted, so their results cannot be told apart")


@case(Profile.READ, "robustness", "goes on serving after calls were cancelled and deadlines passed")
async def survives_cancellation(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    request = pb.GetSecretsRequest(context=subject.context(), items=[item("only", subject.fixture.absent)])
    for _ in range(_ROUNDS):
        call = subject.stores.GetSecrets(request, timeout=CALL_SECONDS)
        call.cancel()
    for _ in range(_ROUNDS):
        try:
            await subject.stores.GetSecrets(request, timeout=0.0001)
        except aio.AioRpcError as error:
            expect(error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, f"a passed deadline gives {error.code().name}")

    result = await subject.get_one(subject.fixture.absent)

    expect(result.WhichOneof("outcome") == "error", "it does not answer as before")


@case(Profile.READ, "robustness", "answers bytes that are no message with an error, and goes on serving")
async def survives_garbage(subject: Subject) -> None:
    seeded = random.Random(20240607)  # noqa: S311 - the same garbage each time, so that a failure can be repeated
    for service, methods in _UNARY.items():
        for method in methods:
            await asyncio.gather(
                *(_throw(subject, f"/{_PACKAGE}.{service}/{method}", seeded.randbytes(at * 7)) for at in range(8))
            )

    for method in _STREAMS:
        await asyncio.gather(
            *(_throw(subject, f"/{_PACKAGE}.{method}", seeded.randbytes(at * 7), _STREAM) for at in range(8))
        )
    await _still_there(subject)


@case(Profile.READ, "robustness", "answers messages that were damaged on the way, and goes on serving")
async def survives_damage(subject: Subject) -> None:
    """Most of these still decode, so they get further than garbage. Only calls that write nothing are tried."""
    seeded = random.Random(20240608)  # noqa: S311 - the same damage each time, so that a failure can be repeated
    context = subject.context()
    sound = {
        "SecretStoreProvider/GetSecrets": pb.GetSecretsRequest(
            context=context, items=[item("only", "key", prop="a.b")]
        ),
        "SecretStoreProvider/CheckSecrets": pb.CheckSecretsRequest(context=context, items=[item("only", "key")]),
        "SecretStoreProvider/Validate": pb.ValidateRequest(context=context),
        "GeneratorProvider/ValidateGenerator": pb.ValidateRequest(context=context),
        "ProviderInfo/Handshake": pb.HandshakeRequest(core_version="conformance", features=["a", "b"]),
    }
    for method, message in sound.items():
        raw = message.SerializeToString()
        await asyncio.gather(*(_throw(subject, f"/{_PACKAGE}.{method}", _damaged(raw, seeded)) for _ in range(_ROUNDS)))
    await _still_there(subject)


@case(Profile.READ, "robustness", "answers an empty message with an error that says what is missing")
async def refuses_empty(subject: Subject) -> None:
    subject.need(pb.OPERATION_GET)
    try:
        await subject.stores.GetSecrets(pb.GetSecretsRequest(), timeout=CALL_SECONDS)
    except aio.AioRpcError as error:
        detail = detail_of(error)
        expect(detail is not None, "no ErrorDetail")
        expect(detail is not None and detail.message, f"{reason_name(detail or pb.ErrorDetail())} without a word")
    else:
        violated("a call without a context was served")


async def _throw(subject: Subject, method: str, garbage: bytes, form: str = _SINGLE) -> None:
    try:
        if form == _SINGLE:
            call: aio.UnaryUnaryMultiCallable[bytes, bytes] = subject.channel.unary_unary(method)
            await call(garbage, timeout=CALL_SECONDS)
        else:
            stream: aio.StreamStreamMultiCallable[bytes, bytes] = subject.channel.stream_stream(method)
            async for _ in stream(iter([garbage]), timeout=CALL_SECONDS):
                break
    except aio.AioRpcError as error:
        expect(error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, f"{method} hangs on garbage")


def _damaged(raw: bytes, seeded: random.Random) -> bytes:
    """Change a few bytes, and sometimes cut off the rest."""
    changed = bytearray(raw)
    for _ in range(seeded.randint(1, 4)):
        changed[seeded.randrange(len(changed))] = seeded.randrange(256)
    return bytes(changed[: seeded.randrange(len(changed))] if seeded.random() < 0.2 else changed)


async def _still_there(subject: Subject) -> None:
    response = await shake_hands(subject.channel)

    expect(response.instance_id == subject.handshake.instance_id, "the provider restarted")


ROBUSTNESS = (
    refuses_large_batch,
    refuses_double_ids,
    survives_cancellation,
    survives_garbage,
    survives_damage,
    refuses_empty,
)
