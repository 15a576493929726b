"""Errors of whole calls survive the transport, and every gRPC code has a meaning (R117)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from eso_wire import bounds
from eso_wire.errors import NOT_FOUND_REASONS, ErrorReason, ProviderError, RetryClass, Subject, retry_of
from eso_wire.options import CLIENT_OPTIONS, SERVER_OPTIONS
from eso_wire.status import CODE_OF, DETAILS_KEY, REASON_OF, TransportError, abort_details, error_of

BROKEN_STREAM = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


def rpc_error(code: grpc.StatusCode, details: str = "", trailing: tuple[Any, ...] = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def received(error: ProviderError) -> ProviderError:
    abort = abort_details(error)
    return error_of(rpc_error(abort.code, abort.details, abort.trailing_metadata))


@pytest.mark.parametrize("reason", sorted(set(ErrorReason) - NOT_FOUND_REASONS))
def test_a_reason_arrives_with_everything_that_goes_with_it(reason: ErrorReason) -> None:
    sent = ProviderError(
        reason,
        "what, which, what to do",
        retry_after=1.5,
        backend_code="E42",
        subject=Subject("v1", "Secret", "team", "token"),
    )

    assert received(sent) == sent
    assert received(sent).retry is retry_of(reason)


def test_every_reason_has_a_code() -> None:
    assert set(CODE_OF) == set(ErrorReason)


@pytest.mark.parametrize("reason", sorted(NOT_FOUND_REASONS))
def test_not_found_is_never_believed_of_a_whole_call(reason: ErrorReason) -> None:
    """A "not found" could delete a Secret."""
    error = received(ProviderError(reason, "no such key"))

    assert error.reason is ErrorReason.BACKEND_ERROR
    assert not error.is_not_found


@pytest.mark.parametrize("code", sorted(set(grpc.StatusCode) - {grpc.StatusCode.OK}, key=str))
def test_a_code_without_detail_means_something(code: grpc.StatusCode) -> None:
    error = error_of(rpc_error(code, "some text"))

    assert isinstance(error, TransportError) is (code in BROKEN_STREAM)
    assert error.reason is REASON_OF.get(code, ErrorReason.BACKEND_UNAVAILABLE)
    assert not error.is_not_found


@pytest.mark.parametrize("code", [grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED])
def test_the_text_of_a_crashed_server_is_not_repeated(code: grpc.StatusCode) -> None:
    error = error_of(rpc_error(code, "Unexpected <class 'KeyError'>: CANARY"))

    assert "CANARY" not in f"{error} {error!r} {error.message} {getattr(error, 'cause', '')}"


def test_a_stream_that_grpc_lost_was_not_ended_by_the_server() -> None:
    assert isinstance(error_of(rpc_error(grpc.StatusCode.UNKNOWN, "Stream removed")), TransportError)


def test_a_connection_that_fails_says_what_grpc_knows() -> None:
    error = error_of(rpc_error(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses: Connection refused"))

    assert isinstance(error, TransportError)
    assert "Connection refused" in error.cause
    assert error.retry is RetryClass.BACKOFF


@pytest.mark.parametrize("direction", ["Received", "Sent"])
def test_a_message_beyond_the_limit_is_told_apart_from_throttling(direction: str) -> None:
    text = f"CLIENT: {direction} message larger than max (99 vs. 10)"

    assert error_of(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, text)).reason is ErrorReason.PAYLOAD_TOO_LARGE


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\xff\xff\xff", id="no status at all"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\x1a\x06\x0a\x01x\x12\x01\xff", id="a detail of another type"),
        pytest.param(b"\x00" * 100_000, id="huge"),
    ],
)
def test_a_detail_that_cannot_be_read_leaves_the_code(raw: bytes) -> None:
    error = error_of(rpc_error(grpc.StatusCode.PERMISSION_DENIED, "", ((DETAILS_KEY, raw),)))

    assert error.reason is ErrorReason.PERMISSION_DENIED


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_a_long_message_is_shortened_to_what_metadata_can_take(letter: str) -> None:
    error = ProviderError(ErrorReason.INTERNAL, letter * 10_000)

    ((_, raw),) = abort_details(error).trailing_metadata

    assert len(raw) < bounds.MAX_DETAIL_BYTES + 1500
    assert received(error).message.startswith(letter * 500)


class Failing(grpc.GenericRpcHandler):
    """Answers every call with one error."""

    def __init__(self, error: ProviderError) -> None:
        self._error = error

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def fail(_request: bytes, context: Any) -> bytes:
            await context.abort(*abort_details(self._error))
            return b""

        return grpc.unary_unary_rpc_method_handler(fail)


@contextlib.asynccontextmanager
async def calling(handler: grpc.GenericRpcHandler) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CLIENT_OPTIONS) as channel:
            yield channel
    finally:
        await server.stop(None)


@pytest.mark.parametrize("message", ["short", "é" * 2048, "😀" * 2048], ids=["short", "long", "four bytes each"])
async def test_an_error_survives_a_real_call(message: str) -> None:
    async with calling(Failing(ProviderError(ErrorReason.RATE_LIMITED, message, retry_after=7))) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Fail")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(b"", timeout=30)

    error = error_of(failed.value)
    assert (error.reason, error.retry_after) == (ErrorReason.RATE_LIMITED, 7)
    assert error.message[:5] == message[:5]


class Raising(grpc.GenericRpcHandler):
    """A foreign server with a defect."""

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def respond(_request: bytes, _context: Any) -> bytes:
            raise KeyError("CANARY")

        return grpc.unary_unary_rpc_method_handler(respond)


async def test_a_server_that_raised_was_reached() -> None:
    async with calling(Raising()) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Raise")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(b"", timeout=30)

    error = error_of(failed.value)
    assert not isinstance(error, TransportError)
    assert (error.reason, error.retry) == (ErrorReason.INTERNAL, RetryClass.BACKOFF)
    assert error.message == "the provider returned UNKNOWN without a reason; see its log"


async def test_a_server_that_is_not_there_is_a_transport_error() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1", options=CLIENT_OPTIONS) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Fail")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(b"", timeout=30)

    assert isinstance(error_of(failed.value), TransportError)


class Echo(grpc.GenericRpcHandler):
    """Answers with the requested number of bytes."""

    def service(self, _call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def respond(request: bytes, _context: Any) -> bytes:
            return b"x" * int(request)

        return grpc.unary_unary_rpc_method_handler(respond)


async def test_both_ends_carry_messages_up_to_the_limit_and_refuse_larger_ones() -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CLIENT_OPTIONS) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/Echo")
        largest = await call(str(bounds.MAX_MESSAGE_BYTES).encode(), timeout=30)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call(str(bounds.MAX_MESSAGE_BYTES + 1).encode(), timeout=30)
    await server.stop(None)

    assert len(largest) == bounds.MAX_MESSAGE_BYTES
    assert error_of(failed.value).reason is ErrorReason.PAYLOAD_TOO_LARGE
