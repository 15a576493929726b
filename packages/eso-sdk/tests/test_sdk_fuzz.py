"""Malicious requests (R157): any bytes get an answer of the protocol, and the next call is served."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message import Message
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eso_api.values import SecretBytes
from eso_sdk.frame import UNARY, Frame, Method
from eso_sdk.testing import InMemory, call_context
from eso_sdk.testing.memory import MemoryRpc
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted, ScriptedMaker
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason
from eso_wire.status import error_of
from eso_wire.values import (
    CleanupRequest,
    DeleteBatch,
    DeleteItem,
    FindQuery,
    GenerateRequest,
    GetItem,
    Hello,
    PushBatch,
    PushItem,
    RemoteRef,
    SubscribeOpen,
    ValidationMode,
)
from eso_wire.versions import SUPPORTED

SCRIPT = Script.new(values={"a": b"1"})
STORE = call_context(Scripted, {"script": SCRIPT.name}, {"/tokenRef": "t0ken"})
MAKER = call_context(ScriptedMaker, {"script": SCRIPT.name})
REF = RemoteRef("a")
GOOD: dict[str, Message] = {
    "Handshake": codec.to_hello(Hello("test", SUPPORTED)),
    "Validate": codec.to_validate_request(STORE, ValidationMode.FULL),
    "GetSecrets": codec.to_get_request(STORE, [GetItem("1", REF)]),
    "CheckSecrets": codec.to_check_request(STORE, [GetItem("1", REF)]),
    "PushSecrets": codec.to_push_request(STORE, PushBatch((PushItem("1", REF, SecretBytes(b"v")),))),
    "DeleteSecrets": codec.to_delete_request(STORE, DeleteBatch((DeleteItem("1", REF),))),
    "CloseSessions": codec.to_close_request(STORE.config.ref),
    "ValidateGenerator": codec.to_validate_request(MAKER, ValidationMode.STATIC),
    "Generate": codec.to_generate_request(MAKER, GenerateRequest("k")),
    "Cleanup": codec.to_cleanup_request(MAKER, CleanupRequest(SecretBytes(b"{}"))),
}
FIND = codec.to_find_request(STORE, FindQuery(name_regexp="a")).SerializeToString()
SUBSCRIBE = codec.to_subscribe_request(SubscribeOpen(STORE)).SerializeToString()

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def mutated(good: bytes) -> st.SearchStrategy[bytes]:
    """Generate noise, or a valid message with some bytes changed, cut out or doubled."""

    def mutate(at: int, length: int, noise: bytes) -> bytes:
        start = at % (len(good) + 1)
        return good[:start] + noise + good[start + length :]

    damaged = st.builds(mutate, st.integers(0, 10_000), st.integers(0, 8), st.binary(max_size=8))
    return st.one_of(st.binary(max_size=200), damaged)


async def outcome(call: Any) -> ErrorReason | None:
    """Return the reason of a failure; None for an answer. Any error outside the protocol fails the test."""
    try:
        await call
    except aio.AioRpcError as exc:
        failure = exc
    else:
        return None
    assert any(key == "grpc-status-details-bin" for key, _ in failure.trailing_metadata() or ())
    return error_of(failure).reason


async def run_unary(method: Method, raw: bytes) -> None:
    async with InMemory(SCRIPTED) as provider:
        await outcome(provider.frame.unary(method, raw, MemoryRpc(1.0)))

        await provider.handshake()


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.name)
def test_no_bytes_break_a_call(method: Method) -> None:
    @FUZZ
    @given(mutated(GOOD[method.name].SerializeToString()))
    def fuzz(raw: bytes) -> None:
        asyncio.run(run_unary(method, raw))

    fuzz()


def test_no_bytes_break_a_find() -> None:
    async def run(raw: bytes) -> None:
        async with InMemory(SCRIPTED) as provider:
            await outcome(provider.frame.find(raw, MemoryRpc(1.0)))
            await provider.handshake()

    @FUZZ
    @given(mutated(FIND))
    def fuzz(raw: bytes) -> None:
        asyncio.run(run(raw))

    fuzz()


def test_no_bytes_break_a_subscription() -> None:
    async def run(messages: list[bytes]) -> None:
        async def incoming() -> AsyncIterator[bytes]:
            for message in messages:
                yield message

        async with InMemory(SCRIPTED) as provider:
            await outcome(provider.frame.subscribe(incoming(), MemoryRpc()))
            await provider.handshake()

    @FUZZ
    @given(st.lists(mutated(SUBSCRIBE), max_size=3))
    def fuzz(messages: list[bytes]) -> None:
        asyncio.run(run(messages))

    fuzz()


@pytest.mark.parametrize("method", UNARY, ids=lambda method: method.name)
async def test_the_undamaged_message_is_answered(method: Method) -> None:
    """Proves that the damage above is damage to a working message."""
    async with InMemory(SCRIPTED) as provider:
        assert (
            await outcome(provider.frame.unary(method, GOOD[method.name].SerializeToString(), MemoryRpc(1.0))) is None
        )


def deep(levels: int) -> bytes:
    return b'{"script":' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(deep(100_000), id="nested without end"),
        pytest.param(b'{"script":"' + b"x" * 900_000 + b'"}', id="a name of a megabyte"),
        pytest.param(b'{"script":"s","more":[' + b"{}," * 100_000 + b"{}]}", id="a hundred thousand references"),
        pytest.param(b'{"script":"\\ud800"}', id="half a character"),
        pytest.param(b'{"script":1e999999}', id="a number beyond all bounds"),
    ],
)
async def test_a_hostile_configuration_is_an_error_of_its_call(spec: bytes) -> None:
    async with InMemory(SCRIPTED) as provider:
        request = codec.to_get_request(call_context(Scripted, spec), [GetItem("1", REF)])

        await outcome(provider.frame.unary(_method("GetSecrets"), request.SerializeToString(), MemoryRpc(5.0)))

        assert (await provider.handshake()).provider_name == "scripted"


async def test_a_frame_admits_no_client_without_identity() -> None:
    async with InMemory(SCRIPTED) as provider:
        frame: Frame = provider.frame
        raw = pb.HandshakeRequest().SerializeToString()

        refused = await outcome(frame.unary(_method("Handshake"), raw, MemoryRpc(identity="")))

    assert refused is ErrorReason.PERMISSION_DENIED


def _method(name: str) -> Method:
    return next(method for method in UNARY if method.name == name)
