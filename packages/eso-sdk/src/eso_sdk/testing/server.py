"""A real server in this event loop: sockets, mutual TLS with throwaway certificates, and clients for it.

async with ProviderServer(PROVIDER) as server:
    result = await server.client.get_one(call_context(Notes, {...}), "greeting")
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpc import aio

from eso_sdk.provider import Provider
from eso_sdk.server import ServeOptions, Server
from eso_sdk.testing.certificates import SERVER_NAME, Authority, write_material
from eso_sdk.testing.client import Client
from eso_wire.options import AUTHORIZATION_KEY, CLIENT_OPTIONS
from eso_wire.status import error_of
from eso_wire.tls import TlsMaterial, channel_credentials, client_id, service_id
from kubebase.clock import Clock

CLIENT_ID = client_id("cluster.local", "external-secrets", "external-secrets")
SERVER_ID = service_id("cluster.local", "external-secrets", "provider")

Metadata = tuple[tuple[str, str], ...]


class ChannelTransport:
    """Carries the bytes of calls over a gRPC channel."""

    def __init__(self, channel: aio.Channel, metadata: Metadata = ()) -> None:
        self.channel: Any = channel  # its stubs know only calls with serializers
        self.metadata = metadata

    async def unary(self, path: str, raw: bytes, timeout: float | None) -> bytes:  # noqa: ASYNC109 - gRPC's own
        try:
            answer: bytes = await self.channel.unary_unary(path)(raw, timeout=timeout, metadata=self.metadata)
        except aio.AioRpcError as exc:
            raise error_of(exc) from exc
        return answer

    async def stream(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        call = self.channel.stream_stream(path)(requests, metadata=self.metadata)
        try:
            async for message in call:
                yield message
        except aio.AioRpcError as exc:
            raise error_of(exc) from exc
        finally:
            call.cancel()


class ProviderServer:
    """One provider behind a real socket. `authority` signs both ends; `folder` holds the server's certificates."""

    def __init__(self, provider: Provider, clock: Clock | None = None, **options: Any) -> None:
        self.authority = Authority.make()
        self._provider = provider
        self._clock = clock
        self._options = options
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        write_material(self.folder, self.authority.leaf(SERVER_ID))
        options = replace(ServeOptions(self.folder, (CLIENT_ID,), drain_seconds=1.0), **self._options)
        self.server = Server(self._provider, options, self._clock)
        await self.server.start()
        self._stack.push_async_callback(self.server.drain)
        self.client = await self.connect(self.authority.leaf(CLIENT_ID))
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def address(self) -> str:
        return self.server.address

    async def channel(self, material: TlsMaterial) -> aio.Channel:
        """Return a separate connection with these certificates; it is closed with the server."""
        options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", SERVER_NAME)]
        channel = aio.secure_channel(self.address, channel_credentials(material), options=options)
        self._stack.push_async_callback(channel.close)
        return channel

    async def connect(self, material: TlsMaterial, metadata: Metadata = ()) -> Client:
        """Return a client with these certificates, which sends that metadata with every call."""
        return Client(ChannelTransport(await self.channel(material), metadata))

    async def connect_as(self, token: str) -> Client:
        """Return a client that acts as the operator, with the token of a service account."""
        metadata = ((AUTHORIZATION_KEY, f"Bearer {token}"),)
        return await self.connect(self.authority.leaf(CLIENT_ID), metadata)
