"""A proxy in front of a correct provider that violates the contract on request, to test the suite.

    async with lying(Liar("GetSecrets", response=drop_one), honest, certificates) as address: ...

Messages are changed in decoded form; the call itself, its deadline and its errors are passed on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc import aio

from eso_wire._generated import provider_pb2 as pb
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.tls import ServerCertificates, TlsMaterial, channel_credentials

_MESSAGES: Final = {
    name: (getattr(pb, f"{stem}Request"), getattr(pb, f"{stem}Response"))
    for name, stem in (
        ("Handshake", "Handshake"),
        ("Validate", "Validate"),
        ("GetSecrets", "GetSecrets"),
        ("CheckSecrets", "CheckSecrets"),
        ("FindSecrets", "FindSecrets"),
        ("PushSecrets", "PushSecrets"),
        ("DeleteSecrets", "DeleteSecrets"),
        ("Subscribe", "Subscribe"),
        ("Generate", "Generate"),
    )
}


def nothing(message: Any) -> None:
    """Leave a message unchanged."""


def same(error: Failure, request: Any) -> Failure:
    del request
    return error


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call, as a provider sends it."""

    code: grpc.StatusCode
    details: str
    trailers: tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Liar:
    """The changes to requests before the provider sees them, and to its responses."""

    method: str = ""
    request: Callable[[Any], object] = nothing
    response: Callable[[Any], object] = nothing
    failed: Callable[[Failure, Any], Failure] = same
    anybody: bool = False
    """Accept clients without a certificate."""


@asynccontextmanager
async def lying(liar: Liar, upstream: str, *, shown: TlsMaterial, own: TlsMaterial) -> AsyncIterator[str]:
    """Run a proxy and yield its address: it presents `shown` to its clients, and `own` to the provider behind it."""
    credentials = ServerCertificates(lambda: shown).credentials()
    if liar.anybody:
        pair = (shown.key.reveal(), shown.certificate)
        credentials = grpc.ssl_server_credentials([pair], shown.ca, require_client_auth=False)
    server = aio.server()
    async with aio.secure_channel(upstream, channel_credentials(own), options=CLIENT_OPTIONS) as channel:
        server.add_generic_rpc_handlers((_Proxy(channel, liar),))
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


class _Proxy(grpc.GenericRpcHandler):
    """Passes calls on to the provider, with the changes of the liar."""

    def __init__(self, upstream: aio.Channel, liar: Liar) -> None:
        self._upstream = upstream
        self._liar = liar

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        name = details.method.rpartition("/")[2]
        if name == "FindSecrets":
            return grpc.unary_stream_rpc_method_handler(self._streaming(details.method, name))
        if name == "Subscribe":
            return grpc.stream_stream_rpc_method_handler(self._subscribing(details.method, name))
        return grpc.unary_unary_rpc_method_handler(self._unary(details.method, name))

    def _unary(self, method: str, name: str) -> Any:
        async def handle(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
            call: Any = self._upstream.unary_unary(method)
            try:
                return self._responded(
                    name, await call(self._requested(name, request), timeout=context.time_remaining())
                )
            except aio.AioRpcError as error:
                await self._abort(error, name, request, context)
            raise AssertionError("abort raises")

        return handle

    def _streaming(self, method: str, name: str) -> Any:
        async def handle(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
            call: Any = self._upstream.unary_stream(method)
            try:
                async for page in call(self._requested(name, request), timeout=context.time_remaining()):
                    yield self._responded(name, page)
            except aio.AioRpcError as error:
                await self._abort(error, name, request, context)

        return handle

    def _subscribing(self, method: str, name: str) -> Any:
        async def handle(
            requests: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            call: Any = self._upstream.stream_stream(method)
            changed = (self._requested(name, request) async for request in requests)
            try:
                async for event in call(changed, timeout=context.time_remaining()):
                    yield self._responded(name, event)
            except aio.AioRpcError as error:
                await self._abort(error, name, b"", context)

        return handle

    def _requested(self, name: str, request: bytes) -> bytes:
        if name != self._liar.method or self._liar.request is nothing:
            return request
        message = _MESSAGES[name][0].FromString(request)
        self._liar.request(message)
        changed: bytes = message.SerializeToString()
        return changed

    def _responded(self, name: str, response: bytes) -> bytes:
        if name != self._liar.method:
            return response
        message = _MESSAGES[name][1].FromString(response)
        self._liar.response(message)
        changed: bytes = message.SerializeToString()
        return changed

    async def _abort(self, error: aio.AioRpcError, name: str, request: bytes, context: Any) -> None:
        trailers = tuple((key, value) for key, value in error.trailing_metadata() or ())
        failure = Failure(error.code(), error.details() or "", trailers)
        if name == self._liar.method and self._liar.failed is not same:
            failure = self._liar.failed(failure, _MESSAGES[name][0].FromString(request))
        await context.abort(failure.code, failure.details, failure.trailers)
