"""The calls of the protocol, one row each: how to decode the message, which method answers, how to encode the response.

    bytes -> message -> (Context, request) -> Service -> answer -> message -> bytes

Streams have rows too; `frame.py` runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from eso_sdk.errors import invalid_request
from eso_sdk.service import GENERATOR, STORE, Service
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.values import Context

_PACKAGE: Final = pb.DESCRIPTOR.package
INFO: Final = f"{_PACKAGE}.ProviderInfo"
STORES: Final = f"{_PACKAGE}.SecretStoreProvider"
GENERATORS: Final = f"{_PACKAGE}.GeneratorProvider"


@dataclass(frozen=True, slots=True)
class Method:
    """A call with one request. `decode` returns the envelope (None if the message has none) and the request itself."""

    service: str
    name: str
    message: type[Message]
    decode: Callable[[Any], tuple[Context | None, Any]]
    call: Callable[[Service, Any, Any], Awaitable[Any]]
    encode: Callable[[Any], Message]

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    def decoded(self, raw: bytes) -> tuple[Context | None, Any]:
        return self.decode(parsed(self.message, raw))


async def _handshake(service: Service, _: None, hello: Any) -> Any:
    return service.handshake(hello)


UNARY: Final = (
    Method(
        INFO,
        "Handshake",
        pb.HandshakeRequest,
        lambda message: (None, codec.from_hello(message)),
        _handshake,
        codec.to_handshake,
    ),
    Method(
        STORES,
        "Validate",
        pb.ValidateRequest,
        codec.from_validate_request,
        lambda service, context, mode: service.validate(context, mode, STORE),
        codec.to_validate_response,
    ),
    Method(STORES, "GetSecrets", pb.GetSecretsRequest, codec.from_get_request, Service.get, codec.to_get_response),
    Method(
        STORES,
        "CheckSecrets",
        pb.CheckSecretsRequest,
        codec.from_check_request,
        Service.check,
        codec.to_check_response,
    ),
    Method(STORES, "PushSecrets", pb.PushSecretsRequest, codec.from_push_request, Service.push, codec.to_push_response),
    Method(
        STORES,
        "DeleteSecrets",
        pb.DeleteSecretsRequest,
        codec.from_delete_request,
        Service.delete,
        codec.to_delete_response,
    ),
    Method(
        STORES,
        "CloseSessions",
        pb.CloseSessionsRequest,
        lambda message: (None, codec.from_close_request(message)),
        lambda service, _, holder: service.close_sessions(holder),
        lambda _: pb.CloseSessionsResponse(),
    ),
    Method(
        GENERATORS,
        "ValidateGenerator",
        pb.ValidateRequest,
        codec.from_validate_request,
        lambda service, context, mode: service.validate(context, mode, GENERATOR),
        codec.to_validate_response,
    ),
    Method(
        GENERATORS,
        "Generate",
        pb.GenerateRequest,
        codec.from_generate_request,
        Service.generate,
        codec.to_generate_response,
    ),
    Method(
        GENERATORS,
        "Cleanup",
        pb.CleanupRequest,
        codec.from_cleanup_request,
        Service.cleanup,
        codec.to_cleanup_response,
    ),
)

FIND_PATH: Final = f"/{STORES}/FindSecrets"
SUBSCRIBE_PATH: Final = f"/{STORES}/Subscribe"


def parsed(message: type[Message], raw: bytes) -> Any:
    """Parse the message. Malformed bytes are the caller's error; the parser's own message would quote them."""
    try:
        return message.FromString(raw)
    except (DecodeError, ValueError):
        raise invalid_request(f"the request is not a {message.DESCRIPTOR.name}") from None
