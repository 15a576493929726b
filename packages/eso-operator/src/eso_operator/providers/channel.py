"""A gRPC channel over mTLS: the only place of the operator, besides the API server's client, that opens connections.

The channel spreads calls over all addresses its target resolves to. It is told its certificates once and keeps them:
new ones need a new channel (`pool.py`).
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
from eso_operator.stores.target import Endpoint
from eso_wire.errors import ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.status import DETAILS_KEY, TransportError, error_of
from eso_wire.tls import TlsMaterial, channel_credentials
from kuberun.clock import Clock
from kuberun.deadline import Deadline

_MAX_ANSWER = 5 * 1024 * 1024
"""A larger answer is refused before it is read: values of several calls are in memory at a time. Batches are split."""

_OURS = frozenset({"grpc.enable_retries", "grpc.max_receive_message_length"})
_OPTIONS = (
    *(option for option in CLIENT_OPTIONS if option[0] not in _OURS),
    ("grpc.max_receive_message_length", _MAX_ANSWER),
    # Without a retry policy this repeats only what a closing server has certainly not seen. Otherwise a call that meets
    # the regular end of a connection fails, and a push without an idempotency key cannot be repeated by us.
    ("grpc.enable_retries", 1),
    # A provider that comes back elsewhere is found within seconds.
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
)

Resolve = Callable[[Address], Awaitable[Sequence[str]]]
"""The addresses of a name; raises OSError."""


async def resolved(name: Address) -> list[str]:
    """As the system resolves it."""
    found = await asyncio.get_running_loop().getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    return [str(address[0]).partition("%")[0] for *_, address in found]


class GrpcTransport:
    """Calls over one channel."""

    def __init__(
        self, endpoint: Endpoint, material: TlsMaterial, clock: Clock, *, resolve: Resolve | None = None
    ) -> None:
        self._label = endpoint.label
        self._clock = clock
        self._resolve = resolve or resolved
        self._name = address_of(endpoint.target) if endpoint.target.startswith("dns:") else None
        self._channel = aio.secure_channel(
            endpoint.target,
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
        """Wait for the first connection, but not for long; a failed one is reported by the call itself."""
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
        """Ends when the channel is connected or has failed to. An error is returned, for all who wait."""
        if self._name is not None and await self._leads_to_metadata(self._name):
            return TransportError(f"{self._name.host} resolves to a link-local or metadata address: never dialled")
        waiting = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
        try:
            while (state := self._channel.get_state(try_to_connect=True)) in waiting:
                await self._channel.wait_for_state_change(state)
        except aio.UsageError:
            return None  # closed meanwhile; the call will say so
        return None

    async def _leads_to_metadata(self, name: Address) -> bool:
        """A name must not lead where clouds hand out the credentials of a machine."""
        try:
            addresses = await self._resolve(name)
        except OSError:
            return False  # gRPC will say that it does not resolve
        return any(map(is_never_dialled, addresses))

    def _error(self, failure: aio.AioRpcError, method: str) -> ProviderError:
        explained = any(key == DETAILS_KEY for key, _ in failure.trailing_metadata() or ())
        if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not explained:
            return NoAnswerError(f"provider {self._label} did not answer {short_name(method)} in time")
        return restated(error_of(failure))


class _Closing:
    """Turns the ways in which gRPC says that the channel was closed under a call into the error it is."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, aio.UsageError):
            raise closed() from None
        # A closed channel cancels its calls, and gRPC raises that into tasks that nobody has cancelled.
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
        return message if isinstance(message, bytes) else None  # the other thing gRPC gives is its mark of the end

    def cancel(self) -> None:
        self._call.cancel()

    async def _ended(self) -> ProviderError:
        """The other side ended the stream before it read everything: its status says why."""
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
