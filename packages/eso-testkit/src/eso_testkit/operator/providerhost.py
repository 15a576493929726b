"""A scripted provider behind a real gRPC server with mutual TLS, and throw-away certificates for both ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import grpc
from grpc import aio

from eso_operator.certificates.authority import issue_authority, issue_client, issue_server
from eso_operator.certificates.client import ClientCertificates
from eso_operator.certificates.state import Credential, ServerNames, Window
from eso_operator.stores.resolved import TlsSource
from eso_testkit.operator.scriptedprovider import ScriptedProvider
from eso_wire import paths
from eso_wire.errors import ProviderError
from eso_wire.options import SERVER_OPTIONS, Options
from eso_wire.status import abort_details
from eso_wire.tls import ServerCertificates, TlsMaterial

SERVER_NAME = "provider.test.svc"
_STORE = "SecretStoreProvider"
_UNARY = ("Validate", "GetSecrets", "CheckSecrets", "PushSecrets", "DeleteSecrets", "CloseSessions")


class TestAuthority:
    """Certificates of one authority, for a server and a client that trust each other."""

    __test__ = False

    def __init__(self, now: datetime) -> None:
        self._valid = Window(now - timedelta(days=1), now + timedelta(days=1))
        self._now = now
        self.credential = issue_authority("test authority", self._valid)

    def server(self, trust: bytes = b"", *, name: str = SERVER_NAME, valid: Window | None = None) -> TlsMaterial:
        names = ServerNames((name,), f"spiffe://test/ns/eso/svc/{name}")
        return self._material(issue_server(self.credential, names, valid or self._valid), trust)

    def client(self, trust: bytes = b"") -> TlsMaterial:
        return self._material(issue_client(self.credential, "spiffe://test/ns/eso/sa/core", self._valid), trust)

    def _material(self, leaf: Credential, trust: bytes) -> TlsMaterial:
        return TlsMaterial(ca=trust or self.credential.certificate, certificate=leaf.certificate, key=leaf.key)


@dataclass(slots=True)
class GivenCertificates(ClientCertificates):
    """Client certificates that a test swaps."""

    current: TlsMaterial

    async def of(self, tls: TlsSource) -> TlsMaterial:
        del tls
        return self.current


@dataclass(slots=True)
class ProviderHost:
    """A running server. Setting `material` rotates its certificates for the connections to come."""

    provider: ScriptedProvider
    material: TlsMaterial
    port: int = 0
    server: aio.Server | None = None
    options: Options = SERVER_OPTIONS
    socket: str = ""
    """The path of a Unix socket, instead of a port."""
    interceptors: tuple[aio.ServerInterceptor, ...] = ()

    @property
    def target(self) -> str:
        return f"ipv4:127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start; after a stop, on the same port."""
        self.server = aio.server(options=self.options, interceptors=self.interceptors)
        self.server.add_generic_rpc_handlers(_handlers(self.provider))
        credentials = ServerCertificates(lambda: self.material).credentials()
        place = f"unix:{self.socket}" if self.socket else f"127.0.0.1:{self.port}"
        self.port = self.server.add_secure_port(place, credentials)
        await self.server.start()

    async def stop(self, grace: float | None = None) -> None:
        """Stop. Without grace, running calls break off, as when the process is killed."""
        if self.server is not None:
            await self.server.stop(grace)
            self.server = None


@asynccontextmanager
async def hosted(provider: ScriptedProvider, material: TlsMaterial) -> AsyncIterator[ProviderHost]:
    host = ProviderHost(provider, material)
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


def renewed(material: TlsMaterial, *, trust: bytes) -> TlsMaterial:
    """Return the same certificate with other trusted authorities."""
    return replace(material, ca=trust)


def _handlers(provider: ScriptedProvider) -> tuple[grpc.GenericRpcHandler, ...]:
    services = {
        "ProviderInfo": {"Handshake": _unary(provider, paths.HANDSHAKE)},
        _STORE: {
            **{name: _unary(provider, f"/{paths.PACKAGE}.{_STORE}/{name}") for name in _UNARY},
            "FindSecrets": grpc.unary_stream_rpc_method_handler(_finding(provider)),
            "Subscribe": grpc.stream_stream_rpc_method_handler(_subscribing(provider)),
        },
        "GeneratorProvider": {
            name: _unary(provider, f"/{paths.PACKAGE}.GeneratorProvider/{name}")
            for name in ("ValidateGenerator", "Generate", "Cleanup")
        },
    }
    return tuple(
        grpc.method_handlers_generic_handler(f"{paths.PACKAGE}.{name}", handlers) for name, handlers in services.items()
    )


def _unary(provider: ScriptedProvider, method: str) -> Any:
    async def handle(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return await provider.unary(method, request)
        except ProviderError as error:
            await context.abort(*abort_details(error))
        raise AssertionError("abort raises")

    return grpc.unary_unary_rpc_method_handler(handle)


def _finding(provider: ScriptedProvider) -> Any:
    async def handle(request: bytes, context: aio.ServicerContext[bytes, bytes]) -> AsyncGenerator[bytes, None]:
        try:
            async for page in provider.stream(paths.FIND, request):
                yield page
        except ProviderError as error:
            await context.abort(*abort_details(error))

    return handle


def _subscribing(provider: ScriptedProvider) -> Any:
    async def handle(
        requests: AsyncIterator[bytes], context: aio.ServicerContext[bytes, bytes]
    ) -> AsyncGenerator[bytes, None]:
        try:
            await provider.opened(await anext(requests))
        except ProviderError as error:
            await context.abort(*abort_details(error))
        number = len(provider.openings)
        hearing = asyncio.ensure_future(_receive(provider, requests))
        try:
            while (message := await provider.next_event()) is not None:
                yield message
        finally:
            hearing.cancel()
            if number == len(provider.openings):
                provider.watches.clear()

    return handle


async def _receive(provider: ScriptedProvider, requests: AsyncIterator[bytes]) -> None:
    async for message in requests:
        provider.amended(message)
