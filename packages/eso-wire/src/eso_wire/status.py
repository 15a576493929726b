"""Errors of whole calls: ProviderError <-> gRPC status.

    provider:  abort_details(error) -> code, text, trailing metadata (google.rpc.Status with an ErrorDetail inside)
    operator:  error_of(rpc_error)  -> ProviderError; without an ErrorDetail the gRPC code decides

The text of a status without an ErrorDetail is not repeated: it may be the text of a server's unhandled exception, with
any values that the exception quotes.
"""

from __future__ import annotations

from typing import NamedTuple

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # the wheel carries no type information

from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import NOT_FOUND_REASONS, ErrorReason, ProviderError
from eso_wire.fields import from_error, prose, to_error

DETAILS_KEY = "grpc-status-details-bin"

_MAX_STATUS_BYTES = 64 * 1024
_MAX_TEXT_CHARS = 256
_STREAM_LOST = "Stream removed"
"""gRPC's local message when a connection ends during a call; every other UNKNOWN was sent by a server."""

CODE_OF: dict[ErrorReason, grpc.StatusCode] = {
    ErrorReason.UNSPECIFIED: grpc.StatusCode.UNKNOWN,
    ErrorReason.SECRET_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.PROPERTY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.VERSION_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorReason.CONFIG_NOT_FOUND: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.CONFIG_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorReason.CREDENTIALS_NOT_FOUND: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.CREDENTIALS_REJECTED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorReason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorReason.NAMESPACE_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorReason.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorReason.OWNERSHIP_CONFLICT: grpc.StatusCode.ABORTED,
    ErrorReason.PRECONDITION_FAILED: grpc.StatusCode.ABORTED,
    ErrorReason.UNSUPPORTED_OPERATION: grpc.StatusCode.UNIMPLEMENTED,
    ErrorReason.UNSUPPORTED_KIND: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.PROTOCOL_INCOMPATIBLE: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorReason.RATE_LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorReason.BACKEND_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorReason.BACKEND_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorReason.BACKEND_ERROR: grpc.StatusCode.INTERNAL,
    ErrorReason.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorReason.PAYLOAD_TOO_LARGE: grpc.StatusCode.OUT_OF_RANGE,
    ErrorReason.INTERNAL: grpc.StatusCode.INTERNAL,
}

REASON_OF: dict[grpc.StatusCode, ErrorReason] = {
    grpc.StatusCode.UNKNOWN: ErrorReason.INTERNAL,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorReason.INVALID_REQUEST,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorReason.BACKEND_TIMEOUT,
    # Never a "not found" reason: that may delete a Secret, so it must be stated explicitly for one item.
    grpc.StatusCode.NOT_FOUND: ErrorReason.BACKEND_ERROR,
    grpc.StatusCode.ALREADY_EXISTS: ErrorReason.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED: ErrorReason.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED: ErrorReason.CREDENTIALS_REJECTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorReason.RATE_LIMITED,
    grpc.StatusCode.FAILED_PRECONDITION: ErrorReason.CONFIG_INVALID,
    grpc.StatusCode.ABORTED: ErrorReason.PRECONDITION_FAILED,
    grpc.StatusCode.OUT_OF_RANGE: ErrorReason.PAYLOAD_TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: ErrorReason.UNSUPPORTED_OPERATION,
    grpc.StatusCode.INTERNAL: ErrorReason.INTERNAL,
    grpc.StatusCode.DATA_LOSS: ErrorReason.BACKEND_ERROR,
}
"""The reason for a code without ErrorDetail. The missing codes mean that the stream broke: TransportError."""


class TransportError(ProviderError):
    """The provider process was not reached, or the stream to it broke. `cause` is gRPC's message."""

    def __init__(self, cause: str) -> None:
        super().__init__(ErrorReason.BACKEND_UNAVAILABLE, f"the provider was not reached: {cause}")
        self.cause = cause


class Abort(NamedTuple):
    """The arguments of a servicer's `context.abort`."""

    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def abort_details(error: ProviderError) -> Abort:
    """Return the status of a call that fails as a whole."""
    code = CODE_OF[error.reason]
    text = prose(error.message, _MAX_TEXT_CHARS)
    status = Status(code=code.value[0], message=text)
    detail = AnyMessage()
    detail.Pack(_fitting(to_error(error)))
    status.details.append(detail)
    return Abort(code, text, ((DETAILS_KEY, status.SerializeToString()),))


def error_of(rpc_error: grpc.aio.AioRpcError) -> ProviderError:
    """Turn a failed call into a ProviderError."""
    detail = _detail_of(rpc_error)
    if detail is None:
        return _unexplained(rpc_error)
    error = from_error(detail)
    if error.reason in NOT_FOUND_REASONS:
        message = f"a reason for one item only, sent for a whole call: {error.message or error.reason}"
        return ProviderError(ErrorReason.BACKEND_ERROR, prose(message), backend_code=error.backend_code)
    return error


def _fitting(detail: pb.ErrorDetail) -> pb.ErrorDetail:
    """Shorten the message so that the detail fits into trailing metadata."""
    surplus = detail.ByteSize() - bounds.MAX_DETAIL_BYTES
    if surplus > 0:
        raw = detail.message.encode()
        detail.message = raw[: max(len(raw) - surplus - 8, 0)].decode(errors="ignore") + "…"
    return detail


def _detail_of(rpc_error: grpc.aio.AioRpcError) -> pb.ErrorDetail | None:
    for key, raw in rpc_error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(raw, bytes) and len(raw) <= _MAX_STATUS_BYTES:
            return _unpacked(raw)
    return None


def _unpacked(raw: bytes) -> pb.ErrorDetail | None:
    detail = pb.ErrorDetail()
    try:
        for packed in Status.FromString(raw).details:
            if packed.Is(pb.ErrorDetail.DESCRIPTOR) and packed.Unpack(detail):
                return detail
    except DecodeError:
        return None
    return None


def _unexplained(rpc_error: grpc.aio.AioRpcError) -> ProviderError:
    code, details = rpc_error.code(), rpc_error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE:
        # Written by gRPC on this side: the address and the system's message.
        return TransportError(prose(details, _MAX_TEXT_CHARS) or "unavailable")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return ProviderError(
            ErrorReason.PAYLOAD_TOO_LARGE,
            f"a message to or from the provider is larger than {bounds.MAX_MESSAGE_BYTES} bytes",
        )
    reason = REASON_OF.get(code)
    if reason is None or (code is grpc.StatusCode.UNKNOWN and details == _STREAM_LOST):
        return TransportError(f"the call ended with {code.name}")
    return ProviderError(reason, f"the provider returned {code.name} without a reason; see its log")
