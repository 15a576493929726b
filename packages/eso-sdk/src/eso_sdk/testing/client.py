"""Typed calls to a provider, for tests: values in, values or `ProviderError` out, over any transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from google.protobuf.message import Message

from eso_sdk.errors import MissingPathError
from eso_sdk.methods import FIND_PATH, GENERATORS, INFO, STORES, SUBSCRIBE_PATH
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.values import (
    ChangeEvent,
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Context,
    DeleteBatch,
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
    PushResult,
    RemoteRef,
    Shape,
    SubscribeMessage,
    Validation,
    ValidationMode,
)
from eso_wire.versions import SUPPORTED

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
