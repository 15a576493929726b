"""Validate: a provider's verdict on a configuration."""

from __future__ import annotations

from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.context import decode_context, to_context
from eso_wire.codec.errors import decode_object, encode_object, from_error, to_error
from eso_wire.codec.fields import OPERATION, VALIDATION_STATE, each, of_request, of_response, part, prose, required
from eso_wire.values import ConditionReport, Context, Validation, ValidationMode


def to_validate_request(context: Context, mode: ValidationMode) -> pb.ValidateRequest:
    return pb.ValidateRequest(context=to_context(context), static_only=mode is ValidationMode.STATIC)


@of_request
def from_validate_request(message: pb.ValidateRequest) -> tuple[Context, ValidationMode]:
    required(message, "context")
    mode = ValidationMode.STATIC if message.static_only else ValidationMode.FULL
    return part("context", message.context, decode_context), mode


def to_validate_response(validation: Validation) -> pb.ValidateResponse:
    operations = [] if validation.operations is None else OPERATION.numbers(validation.operations)
    if validation.operations is not None and not operations:
        # An empty list means "all"; a single UNSPECIFIED entry means "none".
        operations = [pb.OPERATION_UNSPECIFIED]
    return pb.ValidateResponse(
        state=VALIDATION_STATE.to(validation.state),
        warnings=validation.warnings,
        error=None if validation.error is None else to_error(validation.error),
        operations=operations,
        conditions=[encode_condition(condition) for condition in validation.conditions],
        dependencies=[encode_object(ref) for ref in validation.dependencies],
    )


@of_response
def from_validate_response(message: pb.ValidateResponse) -> Validation:
    """Decode a validation. Warnings and conditions are for people: surplus ones are dropped."""
    return Validation(
        state=VALIDATION_STATE.choice("state", message.state),
        warnings=tuple(prose(warning) for warning in message.warnings[: bounds.MAX_SHORT_LIST]),
        error=from_error(message.error) if message.HasField("error") else None,
        operations=OPERATION.known(message.operations) if message.operations else None,
        conditions=tuple(decode_condition(condition) for condition in message.conditions[: bounds.MAX_SHORT_LIST]),
        dependencies=each("dependencies", message.dependencies, bounds.MAX_SHORT_LIST, decode_object),
    )


def encode_condition(condition: ConditionReport) -> pb.ConditionReport:
    return pb.ConditionReport(
        type=condition.type, status=condition.status, reason=condition.reason, message=prose(condition.message)
    )


def decode_condition(message: pb.ConditionReport) -> ConditionReport:
    limit = bounds.MAX_NAME_CHARS
    return ConditionReport(
        type=prose(message.type, limit),
        status=prose(message.status, limit),
        reason=prose(message.reason, limit),
        message=prose(message.message),
    )
