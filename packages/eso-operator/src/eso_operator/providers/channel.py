"""A gRPC channel over mTLS. Besides the API server client, it is the only part of the operator that opens connections.

The channel spreads calls over all addresses of its target. Its certificates are fixed: new ones need a new channel
(`pool.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import grpc
from grpc import aio

from eso_operator.providers.diagnosis import Address, address_of
from eso_operator.providers.errors import NoAnswerError, restated
from eso_operator.providers.transport import CallOptions, short_name
from eso_operator.stores.addresses import is_never_dialled
from eso_operator.stores.resolved import Endpoint
from eso_wire.errors import ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.status import DETAILS_KEY, TransportError, error_of
from eso_wire.tls import TlsMaterial, channel_credentials
from kubebase.clock import Clock
from kubebase.deadline import Deadline

MAX_ANSWER = 5 * 1024 * 1024
"""Larger answers are refused unread, because answers of several calls are in memory at a time. Batches are split."""

_OURS = frozenset({"grpc.enable_retries", "grpc.max_receive_message_length"})
_OPTIONS = (
    *(option for option in CLIENT_OPTIONS if option[0] not in _OURS),
    ("grpc.max_receive_message_length", MAX_ANSWER),
    # Without a retry policy, gRPC retries only calls that a closing server has certainly not seen. We need that: a call
    # can meet the regular end of a connection, and we cannot retry a push without an idempotency key.
    ("grpc.enable_retries", 1),
    # Find a provider that comes back at another address within seconds.
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
)

Resolve = Callable[[Address], Awaitable[Sequence[str]]]
"""Returns the addresses of a name; raises OSError."""


async def resolved(name: Address) -> list[str]:
    """Resolve a name with the resolver of the system."""
    found = await asyncio.get_running_loop().getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in found]


class GrpcTransport:
    """A transport over one gRPC channel."""

    def __init__(
        self, endpoint: Endpoint, material: TlsMaterial, clock: Clock, *, resolve: Resolve | None = None
    ) -> None:
        self._label = endpoint.label
        self._clock = clock
        self._resolve = resolve or resolved
        self._name = address_of(endpoint.uri) if endpoint.uri.startswith("dns:") else None
        self._channel = aio.secure_channel(
            endpoint.uri,
            channel_credentials(material),
            options=(*_OPTIONS, ("grpc.ssl_target_name_override", endpoint.server_name)),
        )
        self._unary: dict[str, aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._connecting: asyncio.Task[TransportError | None] | None = None

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes:
        await self._connected(options)
        call = self._unary.get(method)
        if call is None:
            call = self._unary[method] = self._channel.unary_unary(method)
        try:
            with _Closing():
                return await call(request, timeout=options.timeout, metadata=options.metadata)
        except aio.AioRpcError as failure:
            raise self._error(failure, method) from None

    async def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]:
        await self._connected(options)
        call: aio.UnaryStreamCall[bytes, bytes] | None = None
        start: aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(method)
        try:
            with _Closing():
                call = start(request, timeout=options.timeout, metadata=options.metadata)
                async for message in call:
                    yield message
        except aio.AioRpcError as failure:
            raise self._error(failure, method) from None
        finally:
            if call is not None:
                call.cancel()

    async def duplex(self, method: str, options: CallOptions) -> GrpcDuplex:
        await self._connected(options)
        start: aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(method)
        with _Closing():
            call = start(timeout=options.timeout, metadata=options.metadata)
        return GrpcDuplex(call, lambda failure: self._error(failure, method))

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        await self._channel.close()

    async def _connected(self, options: CallOptions) -> None:
        """Wait for the first connection, up to the connect timeout. The call itself reports a failed connection."""
        if self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        seconds = options.connect_timeout if options.timeout is None else min(options.timeout, options.connect_timeout)
        try:
            async with Deadline(self._clock, seconds):
                with _Closing():
                    refusal = await asyncio.shield(self._connecting)
        except TimeoutError:
            raise TransportError(f"no connection within {seconds:g} s") from None
        if refusal is not None:
            raise TransportError(refusal.cause)

    async def _connect(self) -> TransportError | None:
        """Connect the channel or fail. A refusal is returned, because several calls wait for this task."""
        if self._name is not None and await self._leads_to_metadata(self._name):
            return TransportError(f"{self._name.host} resolves to a link-local or metadata address: never dialled")
        waiting = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
        try:
            while (state := self._channel.get_state(try_to_connect=True)) in waiting:
                await self._channel.wait_for_state_change(state)
        except aio.UsageError:
            return None  # the channel was closed; the call reports it
        return None

    async def _leads_to_metadata(self, name: Address) -> bool:
        """Return whether a name resolves to a link-local address or a cloud's metadata server."""
        try:
            addresses = await self._resolve(name)
        except OSError:
            return False  # gRPC reports a name that does not resolve
        return any(map(is_never_dialled, addresses))

    def _error(self, failure: aio.AioRpcError, method: str) -> ProviderError:
        explained = any(key == DETAILS_KEY for key, _ in failure.trailing_metadata() or ())
        if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not explained:
            return NoAnswerError(f"provider {self._label} did not answer {short_name(method)} in time")
        return restated(error_of(failure))


class _Closing:
    """Turns the errors that gRPC raises when a channel is closed during a call into a `TransportError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, aio.UsageError):
            raise closed() from None
        # A closed channel cancels its calls; gRPC then raises CancelledError in tasks that were not cancelled.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
            raise closed() from None


def closed() -> TransportError:
    return TransportError("the channel was closed")


class GrpcDuplex:
    """One bidirectional stream."""

    def __init__(
        self, call: aio.StreamStreamCall[bytes, bytes], to_error: Callable[[aio.AioRpcError], ProviderError]
    ) -> None:
        self._call = call
        self._to_error = to_error

    async def send(self, message: bytes) -> None:
        try:
            with _Closing():
                await self._call.write(message)
        except aio.AioRpcError as failure:
            raise self._to_error(failure) from None
        except asyncio.InvalidStateError:
            raise await self._ended() from None

    async def receive(self) -> bytes | None:
        try:
            with _Closing():
                message = await self._call.read()
        except aio.AioRpcError as failure:
            raise self._to_error(failure) from None
        return message if isinstance(message, bytes) else None  # gRPC's end-of-stream marker

    def cancel(self) -> None:
        self._call.cancel()

    async def _ended(self) -> ProviderError:
        """Return the error of a stream that the provider ended before it read everything, from its status."""
        with _Closing():
            code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return TransportError("the provider ended the stream")
        failure = aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            details=await self._call.details(),
        )
        return self._to_error(failure)
