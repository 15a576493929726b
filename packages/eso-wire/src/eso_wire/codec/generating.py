"""Generate and Cleanup: values that a provider creates, and the state to remove them again."""

from __future__ import annotations

import json
from typing import NoReturn

from eso_api.values import SecretBytes
from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.context import decode_context, to_context
from eso_wire.codec.fields import (
    Malformed,
    document,
    identifier,
    of_request,
    of_response,
    part,
    required,
    revealed,
    secret_map,
)
from eso_wire.codec.reading import decode_metadata, encode_metadata
from eso_wire.values import CleanupOutcome, CleanupRequest, Context, Generated, GenerateRequest


def to_generate_request(context: Context, request: GenerateRequest) -> pb.GenerateRequest:
    previous = request.previous_state
    return pb.GenerateRequest(
        context=to_context(context),
        idempotency_key=request.idempotency_key,
        previous_state_json=b"" if previous is None else previous.reveal(),
    )


@of_request
def from_generate_request(message: pb.GenerateRequest) -> tuple[Context, GenerateRequest]:
    required(message, "context")
    previous = document("previous_state_json", message.previous_state_json, bounds.MAX_STATE_BYTES)
    return part("context", message.context, decode_context), GenerateRequest(
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
        previous_state=previous or None,
    )


def to_generate_response(generated: Generated) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        data=revealed(generated.data),
        state_json=b"" if generated.state is None else generated.state.reveal(),
        metadata=encode_metadata(generated.metadata),
    )


@of_response
def from_generate_response(message: pb.GenerateResponse) -> Generated:
    return Generated(
        data=secret_map("data", message.data),
        state=_state(message.state_json),
        metadata=part("metadata", message.metadata, decode_metadata),
    )


def _state(value: bytes) -> SecretBytes | None:
    """Check the state. It is stored as JSON before the values are used, so invalid state must be refused here."""
    state = document("state_json", value, bounds.MAX_STATE_BYTES)
    if not value:
        return None
    try:
        json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Malformed("state_json", "is not JSON") from None
    return state


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and infinities: valid for Python, invalid JSON for other programs


def to_cleanup_request(context: Context, request: CleanupRequest) -> pb.CleanupRequest:
    return pb.CleanupRequest(
        context=to_context(context), state_json=request.state.reveal(), idempotency_key=request.idempotency_key
    )


@of_request
def from_cleanup_request(message: pb.CleanupRequest) -> tuple[Context, CleanupRequest]:
    required(message, "context")
    return part("context", message.context, decode_context), CleanupRequest(
        state=document("state_json", message.state_json, bounds.MAX_STATE_BYTES),
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
    )


def to_cleanup_response(outcome: CleanupOutcome) -> pb.CleanupResponse:
    return pb.CleanupResponse(already_gone=outcome is CleanupOutcome.ALREADY_GONE)


def from_cleanup_response(message: pb.CleanupResponse) -> CleanupOutcome:
    return CleanupOutcome.ALREADY_GONE if message.already_gone else CleanupOutcome.CLEANED
