"""A real server in this event loop: sockets, mutual TLS with throwaway certificates, and clients for it.

async with ProviderServer(PROVIDER) as server:
    result = await server.client.get_one(call_context(Notes, {...}), "greeting")
"""

from __future__ import annotations

import ipaddress
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from cryptography import x509
from google.protobuf.message import Message
from grpc import aio

from eso_api.values import SecretBytes
from eso_sdk.errors import MissingPathError
from eso_sdk.frame import FIND_PATH, GENERATORS, INFO, STORES, SUBSCRIBE_PATH
from eso_sdk.provider import Provider
from eso_sdk.push import API_VERSION, KIND
from eso_sdk.server import ServeOptions, Server
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ProviderError
from eso_wire.options import AUTHORIZATION_KEY, CLIENT_OPTIONS
from eso_wire.status import error_of
from eso_wire.tls import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsMaterial, channel_credentials, client_id, service_id
from eso_wire.values import (
    ChangeEvent,
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    FindPage,
    FindQuery,
    Found,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Heartbeat,
    Hello,
    KindRole,
    ObjectRef,
    PushBatch,
    PushItem,
    PushResult,
    RemoteRef,
    Shape,
    SubscribeMessage,
    Validation,
    ValidationMode,
)
from eso_wire.versions import SUPPORTED
from kubebase.clock import Clock
from kubebase.testing.signer import UNTIL, Signer

# --- Throwaway certificates for tests of real servers: an authority, and leaves with SPIFFE names --------------------


SERVER_NAME = "provider.test"


class Authority(Signer):
    """An authority that one test trusts."""

    __slots__ = ()

    def leaf(self, spiffe_id: str, *, until: datetime = UNTIL) -> TlsMaterial:
        """Return a certificate for either end that trusts this authority."""
        names = [
            x509.DNSName(SERVER_NAME),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.UniformResourceIdentifier(spiffe_id),
        ]
        signed = self.sign("leaf", names, until=until)
        return TlsMaterial(self.pem, signed.certificate, SecretBytes(signed.key))


def write_material(folder: Path, material: TlsMaterial) -> None:
    """Write the three files of a mounted Secret."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CA_FILE).write_bytes(material.ca)
    (folder / CERTIFICATE_FILE).write_bytes(material.certificate)
    (folder / KEY_FILE).write_bytes(material.key.reveal())


# --- Typed calls to a provider, for tests: values in, values or `ProviderError` out, over any transport --------------


TIMEOUT = 60.0


class Transport(Protocol):
    """Carries the bytes of one call. Raises `ProviderError`."""

    async def unary(self, path: str, raw: bytes, timeout: float | None) -> bytes: ...  # noqa: ASYNC109 - gRPC's own
    def stream(self, path: str, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]: ...


class Client:
    """All calls of the protocol."""

    def __init__(self, transport: Transport, deadline: float | None = TIMEOUT) -> None:
        self._transport = transport
        self._deadline = deadline

    async def handshake(self, hello: Hello | None = None) -> Handshake:
        greeting = hello or Hello("test", SUPPORTED)
        return codec.from_handshake(await self._call(INFO, "Handshake", codec.to_hello(greeting), pb.HandshakeResponse))

    async def validate(
        self, context: Context, mode: ValidationMode = ValidationMode.FULL, role: KindRole = KindRole.STORE
    ) -> Validation:
        service, name = (STORES, "Validate") if role is KindRole.STORE else (GENERATORS, "ValidateGenerator")
        request = codec.to_validate_request(context, mode)
        return codec.from_validate_response(await self._call(service, name, request, pb.ValidateResponse))

    async def get(self, context: Context, items: Sequence[GetItem]) -> tuple[GetResult, ...]:
        request = codec.to_get_request(context, items)
        return codec.from_get_response(await self._call(STORES, "GetSecrets", request, pb.GetSecretsResponse))

    async def get_one(self, context: Context, key: str, *, shape: Shape = Shape.SINGLE, **ref: Any) -> GetResult:
        """Read one item and return its result."""
        return (await self.get(context, [GetItem("only", RemoteRef(key, **ref), shape)]))[0]

    async def check(self, context: Context, items: Sequence[GetItem]) -> tuple[CheckResult, ...]:
        request = codec.to_check_request(context, items)
        return codec.from_check_response(await self._call(STORES, "CheckSecrets", request, pb.CheckSecretsResponse))

    async def pages(self, context: Context, query: FindQuery) -> AsyncGenerator[FindPage, None]:
        """Yield the pages of a find as they arrive."""
        requests = _one(codec.to_find_request(context, query).SerializeToString())
        async with aclosing(self._transport.stream(FIND_PATH, requests)) as answers:
            async for raw in answers:
                yield codec.from_find_page(pb.FindSecretsResponse.FromString(raw))

    async def find(self, context: Context, query: FindQuery) -> tuple[Found, ...]:
        """Return all results of a find, from all pages. A missing root of the search is a `MissingPathError`."""
        found: list[Found] = []
        async for page in self.pages(context, query):
            if page.missing:
                raise MissingPathError(page.missing)
            found += page.found
        return tuple(found)

    async def close_sessions(self, config: ObjectRef) -> None:
        """Report that the object of a configuration is gone."""
        await self._call(STORES, "CloseSessions", codec.to_close_request(config), pb.CloseSessionsResponse)

    async def push(self, context: Context, batch: PushBatch) -> tuple[PushResult, ...]:
        request = codec.to_push_request(context, batch)
        return codec.from_push_response(await self._call(STORES, "PushSecrets", request, pb.PushSecretsResponse))

    async def delete(self, context: Context, batch: DeleteBatch) -> tuple[DeleteResult, ...]:
        request = codec.to_delete_request(context, batch)
        return codec.from_delete_response(await self._call(STORES, "DeleteSecrets", request, pb.DeleteSecretsResponse))

    async def subscribe(
        self, messages: AsyncIterator[SubscribeMessage]
    ) -> AsyncGenerator[ChangeEvent | Heartbeat, None]:
        """Yield events until the stream ends; the first message opens it."""

        async def requests() -> AsyncIterator[bytes]:
            async for message in messages:
                yield codec.to_subscribe_request(message).SerializeToString()

        async with aclosing(self._transport.stream(SUBSCRIBE_PATH, requests())) as answers:
            async for raw in answers:
                yield codec.from_subscribe_response(pb.SubscribeResponse.FromString(raw))

    async def generate(self, context: Context, request: GenerateRequest | None = None) -> Generated:
        message = codec.to_generate_request(context, request or GenerateRequest())
        return codec.from_generate_response(await self._call(GENERATORS, "Generate", message, pb.GenerateResponse))

    async def cleanup(self, context: Context, request: CleanupRequest) -> CleanupOutcome:
        message = codec.to_cleanup_request(context, request)
        return codec.from_cleanup_response(await self._call(GENERATORS, "Cleanup", message, pb.CleanupResponse))

    async def _call(self, service: str, name: str, request: Message, response: type[Message]) -> Any:
        raw = await self._transport.unary(f"/{service}/{name}", request.SerializeToString(), self._deadline)
        return response.FromString(raw)


async def _one(raw: bytes) -> AsyncIterator[bytes]:
    yield raw


# ---------------------------------------------------------------------------------------------------------------------
# Reads, pushes and deletions for tests of stores: plain values in, plain values or `ProviderError`s out.


OWNER = "external-secrets"


async def read(provider: Client, call: Context, *refs: RemoteRef | str) -> list[bytes | ProviderError]:
    """Return one value or error for each reference; a string is a key."""
    items = [GetItem(str(number), ref_of(ref)) for number, ref in enumerate(refs)]
    return [_plain(result.outcome) for result in await provider.get(call, items)]


async def failure(provider: Client, call: Context, ref: RemoteRef | str) -> ProviderError:
    """Return the error of a read that must fail, of the item or of the whole call."""
    try:
        (result,) = await read(provider, call, ref)
    except ProviderError as failed:
        return failed
    assert isinstance(result, ProviderError), "it was read"  # noqa: S101 - for tests
    return result


async def read_map(provider: Client, call: Context, ref: RemoteRef | str) -> dict[str, bytes] | ProviderError:
    (result,) = await provider.get(call, [GetItem("0", ref_of(ref), Shape.MAP)])
    return _plain(result.outcome)  # type: ignore[no-any-return] # the outcome of a map


async def found(provider: Client, call: Context, query: FindQuery) -> dict[str, bytes]:
    """Return the values of all matching keys."""
    return {each.key: each.value.reveal() for each in await provider.find(call, query)}


async def exists(provider: Client, call: Context, ref: RemoteRef | str) -> bool | ProviderError:
    (result,) = await provider.check(call, [GetItem("0", ref_of(ref))])
    return result.error or result.exists


async def push(provider: Client, call: Context, *items: tuple[str, str, Any], **more: Any) -> list[Any]:
    """Push items, each a key, a property and a value (a mapping is a whole Secret); return outcomes and errors."""
    batch = [
        PushItem(str(number), RemoteRef(key, property=name), _payload(value), owner_token=OWNER, **more)
        for number, (key, name, value) in enumerate(items)
    ]
    return [result.outcome for result in await provider.push(call, PushBatch(tuple(batch)))]


async def delete(provider: Client, call: Context, *items: tuple[str, str]) -> list[bool | ProviderError]:
    """Delete items, each a key and a property; return whether they existed, or errors."""
    batch = [
        DeleteItem(str(number), RemoteRef(key, property=name), owner_token=OWNER)
        for number, (key, name) in enumerate(items)
    ]
    return [result.error or result.existed for result in await provider.delete(call, DeleteBatch(tuple(batch)))]


def item(key: str, value: Any, property_: str = "", **changes: Any) -> PushItem:
    """Return a push of one value or of a whole Secret."""
    changes = {"owner_token": OWNER} | changes
    return PushItem(f"{key}/{property_}", RemoteRef(key, property=property_), _payload(value), **changes)


def envelope(**spec: Any) -> dict[str, Any]:
    """Return the metadata of an entry."""
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


async def push_items(provider: Client, call: Context, *items: PushItem, once: str = "") -> list[PushResult]:
    """Push several items in one call; `once` is its idempotency key."""
    return list(await provider.push(call, PushBatch(items, idempotency_key=once or uuid.uuid4().hex)))


async def delete_parts(provider: Client, call: Context, key: str, *properties: str, owner: str = OWNER) -> list[bool]:
    """Delete properties, or the whole key; return for each whether it existed."""
    items = tuple(DeleteItem(name, RemoteRef(key, property=name), owner_token=owner) for name in properties or ("",))
    results = await provider.delete(call, DeleteBatch(items, idempotency_key=uuid.uuid4().hex))
    for result in results:
        assert result.error is None, result.error.message  # noqa: S101 - for tests
    return [result.existed for result in results]


def ref_of(ref: RemoteRef | str) -> RemoteRef:
    return RemoteRef(ref) if isinstance(ref, str) else ref


def _payload(value: Any) -> Any:
    match value:
        case str():
            return SecretBytes(value.encode())
        case bytes():
            return SecretBytes(value)
        case _:
            return {name: _payload(each) for name, each in value.items()}


def _plain(outcome: Any) -> Any:
    match outcome:
        case SecretBytes():
            return outcome.reveal()
        case Mapping():
            return {name: value.reveal() for name, value in outcome.items()}
        case _:
            return outcome


# --- A real server in this event loop --------------------------------------------------------------------------------


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
