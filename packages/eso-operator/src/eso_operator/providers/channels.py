"""Connections to providers: gRPC over mTLS, and the pool that shares them.

    ChannelPool.lease -> Lease(Transport) -> GrpcTransport -> one gRPC channel to all addresses of its target

    open --new certificates, too old, idle, too many--> draining --last call ends--> closed

Besides the API server client, this is the only part of the operator that opens connections. A channel's certificates
are fixed and checked only when a connection is made: new ones need a new channel, and every channel is replaced after
`max_age`. New calls go to open channels. A draining channel finishes its running calls, which have deadlines.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import grpc
from grpc import aio

from eso_operator.providers.errors import NoResponseError, restated
from eso_operator.providers.metrics import ProviderMetrics
from eso_operator.providers.reachability import Address, address_of
from eso_operator.providers.settings import PoolSettings
from eso_operator.stores.addresses import is_never_dialled
from eso_operator.stores.resolved import Endpoint
from eso_wire.errors import ProviderError
from eso_wire.options import CLIENT_OPTIONS
from eso_wire.paths import short_name
from eso_wire.status import DETAILS_KEY, TransportError, error_of
from eso_wire.tls import TlsMaterial, channel_credentials
from kubebase.backoff import Random, system_random
from kubebase.clock import Clock
from kubebase.deadline import Deadline


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of one try. Times in seconds; `timeout` is None for streams, which detect silence by heartbeats."""

    timeout: float | None
    connect_timeout: float
    metadata: tuple[tuple[str, str], ...] = field(default=(), repr=False)


class Transport(Protocol):
    """One connection, or several to replicas: bytes out, bytes back. Methods raise ProviderError only.

    Messages are bytes, because gRPC's own decoding would log messages that it cannot decode.
    """

    async def unary(self, method: str, request: bytes, options: CallOptions) -> bytes: ...

    def stream(self, method: str, request: bytes, options: CallOptions) -> AsyncGenerator[bytes, None]: ...

    async def duplex(self, method: str, options: CallOptions) -> Duplex: ...

    async def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Lease:
    """The right to use a transport for one call. A stream must end soon after `draining` is set."""

    transport: Transport
    draining: asyncio.Event


# --- gRPC -----------------------------------------------------------------------------------------------------------

MAX_RESPONSE: Final = 5 * 1024 * 1024
"""Larger responses are refused unread, because those of several calls are in memory at a time. Batches are split."""

_OVERRIDDEN = frozenset({"grpc.enable_retries", "grpc.max_receive_message_length"})
_OPTIONS = (
    *(option for option in CLIENT_OPTIONS if option[0] not in _OVERRIDDEN),
    ("grpc.max_receive_message_length", MAX_RESPONSE),
    # Without a retry policy, gRPC retries only calls that a closing server has certainly not received. We need that: a
    # call can meet the regular end of a connection, and we cannot retry a push without an idempotency key.
    ("grpc.enable_retries", 1),
    # Find a provider that comes back at another address within seconds.
    ("grpc.min_reconnect_backoff_ms", 250),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
)

Resolve = Callable[[Address], Awaitable[Sequence[str]]]
"""Returns the addresses of a name; raises OSError."""


async def system_resolver(name: Address) -> list[str]:
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
        self._resolve = resolve or system_resolver
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

    async def duplex(self, method: str, options: CallOptions) -> Duplex:
        await self._connected(options)
        start: aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(method)
        with _Closing():
            call = start(timeout=options.timeout, metadata=options.metadata)
        return Duplex(call, lambda failure: self._error(failure, method))

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
        if self._name is not None and await self._resolves_to_metadata(self._name):
            return TransportError(f"{self._name.host} resolves to a link-local or metadata address: never dialled")
        waiting = (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING)
        try:
            while (state := self._channel.get_state(try_to_connect=True)) in waiting:
                await self._channel.wait_for_state_change(state)
        except aio.UsageError:
            return None  # the channel was closed; the call reports it
        return None

    async def _resolves_to_metadata(self, name: Address) -> bool:
        """Return whether a name resolves to a link-local address or a cloud's metadata server."""
        try:
            addresses = await self._resolve(name)
        except OSError:
            return False  # gRPC reports a name that does not resolve
        return any(map(is_never_dialled, addresses))

    def _error(self, failure: aio.AioRpcError, method: str) -> ProviderError:
        explained = any(key == DETAILS_KEY for key, _ in failure.trailing_metadata() or ())
        if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not explained:
            return NoResponseError(f"provider {self._label} did not answer {short_name(method)} in time")
        return restated(error_of(failure))


class _Closing:
    """Turns the errors that gRPC raises when a channel is closed during a call into a `TransportError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, aio.UsageError):
            raise _closed() from None
        # A closed channel cancels its calls; gRPC then raises CancelledError in tasks that were not cancelled.
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
            raise _closed() from None


def _closed() -> TransportError:
    return TransportError("the channel was closed")


class Duplex:
    """A bidirectional stream."""

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
            raise await self._end_error() from None

    async def receive(self) -> bytes | None:
        """Return the next message; None if the provider ended the stream."""
        try:
            with _Closing():
                message = await self._call.read()
        except aio.AioRpcError as failure:
            raise self._to_error(failure) from None
        return message if isinstance(message, bytes) else None  # gRPC's end-of-stream marker

    def cancel(self) -> None:
        self._call.cancel()

    async def _end_error(self) -> ProviderError:
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


# --- the pool -------------------------------------------------------------------------------------------------------

Dial = Callable[[Endpoint, TlsMaterial], Transport]
"""Makes a transport, which connects at its first use."""


class ChannelKey(NamedTuple):
    resolved: str
    server_name: str
    fingerprint: str


@dataclass(slots=True, eq=False)
class _Channel:
    key: ChannelKey
    transport: Transport
    owner: str
    expires_at: float
    used_at: float
    in_flight: int = 0
    draining: asyncio.Event = field(default_factory=asyncio.Event)


class ChannelPool:
    """All channels of the process."""

    def __init__(
        self,
        dial: Dial,
        clock: Clock,
        *,
        settings: PoolSettings,
        metrics: ProviderMetrics,
        draw: Random = system_random,
    ) -> None:
        self._dial = dial
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._draw = draw
        self._open: dict[ChannelKey, _Channel] = {}
        self._draining: set[_Channel] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def draining(self) -> int:
        return len(self._draining)

    @asynccontextmanager
    async def lease(self, endpoint: Endpoint, material: TlsMaterial, owner: str = "") -> AsyncIterator[Lease]:
        """Lease a transport for one call. `owner` is the namespace whose share the channel counts against."""
        channel = self._channel(endpoint, material, owner)
        channel.in_flight += 1
        try:
            yield Lease(channel.transport, channel.draining)
        finally:
            channel.in_flight -= 1
            channel.used_at = self._clock.monotonic()
            self._close_if_drained(channel)

    async def run(self) -> None:
        """Retire expired and idle channels until cancelled. `lease` also replaces an expired channel."""
        while True:
            await self._clock.sleep(self._settings.sweep_interval)
            self.sweep()

    def sweep(self) -> None:
        now = self._clock.monotonic()
        for channel in list(self._open.values()):
            idle = channel.in_flight == 0 and now - channel.used_at >= self._settings.idle_after
            if idle or now >= channel.expires_at:
                self._retire(channel)

    async def close(self) -> None:
        """Close all channels, including running calls."""
        for channel in list(self._open.values()):
            self._retire(channel)
        for channel in list(self._draining):
            self._close(channel)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    def _channel(self, endpoint: Endpoint, material: TlsMaterial, owner: str) -> _Channel:
        key = ChannelKey(endpoint.uri, endpoint.server_name, material.fingerprint)
        channel = self._open.get(key)
        if channel is not None and self._clock.monotonic() >= channel.expires_at:
            self._retire(channel)
            channel = None
        return channel or self._open_channel(key, endpoint, material, owner)

    def _open_channel(self, key: ChannelKey, endpoint: Endpoint, material: TlsMaterial, owner: str) -> _Channel:
        while len(self._open) >= self._settings.max_channels:
            self._retire(self._to_evict())
        now = self._clock.monotonic()
        age = self._settings.max_age * (1 - self._settings.age_jitter * self._draw())
        channel = _Channel(key, self._dial(endpoint, material), owner, expires_at=now + age, used_at=now)
        self._open[key] = channel
        self._report()
        return channel

    def _to_evict(self) -> _Channel:
        """Return the channel to evict: of the owner with most channels, the least recently used; idle ones first."""
        most, _ = Counter(each.owner for each in self._open.values()).most_common(1)[0]
        theirs = (each for each in self._open.values() if each.owner == most)
        return min(theirs, key=lambda each: (each.in_flight > 0, each.used_at))

    def retire(self, endpoint: Endpoint, fingerprint: str) -> None:
        """Drain the channel with these certificates; its running calls finish."""
        if channel := self._open.get(ChannelKey(endpoint.uri, endpoint.server_name, fingerprint)):
            self._retire(channel)

    def _retire(self, channel: _Channel) -> None:
        if self._open.get(channel.key) is channel:
            del self._open[channel.key]
        self._draining.add(channel)
        channel.draining.set()
        self._close_if_drained(channel)
        self._report()

    def _close_if_drained(self, channel: _Channel) -> None:
        if channel in self._draining and channel.in_flight == 0:
            self._close(channel)

    def _close(self, channel: _Channel) -> None:
        self._draining.discard(channel)
        task = asyncio.get_running_loop().create_task(channel.transport.close())
        self._closing.add(task)
        task.add_done_callback(self._closed)
        self._report()

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve it: a channel that fails to close needs no further handling

    def _report(self) -> None:
        self._metrics.pool(len(self._open), len(self._draining))
