"""Values to protobuf messages and back.

    to_*     value -> message, before sending
    from_*   message -> value; raises a ProviderError that names the field, never its content

Pure functions. Plain messages are encoded and decoded by `_generated/codec.py`, which `make gen` writes from the values
and the contract; here are the envelope, the requests and responses, and what has rules of its own. A message must never
be printed (protobuf shows its content), so it exists only between these functions and the stub.

An item of a response that violates the contract becomes an error of that item; the other items stay valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NoReturn, assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds, fields
from eso_wire._generated import codec as plain
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ProviderError
from eso_wire.fields import (
    OPERATION,
    PUSH_OUTCOME,
    VALIDATION_STATE,
    Malformed,
    batch,
    distinct,
    document,
    each,
    identifier,
    labels,
    moment_of,
    of_request,
    of_response,
    part,
    prose,
    remote_key,
    required,
    response_error,
    revealed,
    seconds_of,
    secret_map,
    to_duration,
    to_timestamp,
)
from eso_wire.values import (
    ChangeEvent,
    CheckResult,
    CleanupOutcome,
    CleanupRequest,
    Config,
    Context,
    Credential,
    DeleteBatch,
    DeleteResult,
    FindPage,
    FindQuery,
    Generated,
    GenerateRequest,
    GetItem,
    GetResult,
    Handshake,
    Heartbeat,
    Hello,
    NotModified,
    ObjectRef,
    PushBatch,
    PushOutcome,
    PushResult,
    SecretMap,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    Validation,
    ValidationMode,
)

to_error = fields.to_error
from_error = fields.from_error

# --- the envelope of every call ---------------------------------------------------------------------------------------


def to_context(context: Context) -> pb.RequestContext:
    return pb.RequestContext(
        request_id=context.request_id,
        protocol=plain.encode_protocol_version(context.protocol),
        caller=plain.encode_subject(context.caller),
        store=plain.encode_subject(context.store),
        config=_encode_config(context.config),
        auth_namespace=context.auth_namespace,
        auth_namespace_pinned=context.auth_namespace_pinned,
        max_backend_retries=context.max_backend_retries,
        backend_retry_interval=to_duration(context.backend_retry_interval),
        cluster_id=context.cluster_id,
    )


def _decode_context(message: pb.RequestContext) -> Context:
    for field in ("protocol", "caller", "store", "config"):
        required(message, field)
    return Context(
        request_id=identifier("request_id", message.request_id),
        protocol=plain.decode_protocol_version(message.protocol),
        caller=part("caller", message.caller, plain.decode_subject),
        store=part("store", message.store, plain.decode_subject),
        config=part("config", message.config, _decode_config),
        auth_namespace=identifier("auth_namespace", message.auth_namespace),
        auth_namespace_pinned=message.auth_namespace_pinned,
        max_backend_retries=message.max_backend_retries,
        backend_retry_interval=seconds_of(message.backend_retry_interval),
        cluster_id=identifier("cluster_id", message.cluster_id),
    )


from_context = of_request(_decode_context)


def _context_of(
    message: pb.ValidateRequest
    | pb.GetSecretsRequest
    | pb.CheckSecretsRequest
    | pb.FindSecretsRequest
    | pb.PushSecretsRequest
    | pb.DeleteSecretsRequest
    | pb.GenerateRequest
    | pb.CleanupRequest
    | pb.SubscribeOpen,
) -> Context:
    required(message, "context")
    return part("context", message.context, _decode_context)


def _encode_config(config: Config) -> pb.ProviderConfig:
    message = pb.ProviderConfig(ref=plain.encode_subject(config.ref), kind=plain.encode_kind_id(config.kind))
    if config.spec_json is not None:
        resolved = [plain.encode_credential(credential) for credential in config.credentials]
        message.inline.CopyFrom(pb.InlineConfig(spec_json=config.spec_json.reveal(), resolved=resolved))
    elif config.credentials:
        raise ValueError("credentials travel only with the configuration that refers to them")
    return message


def _decode_config(message: pb.ProviderConfig) -> Config:
    for field in ("ref", "kind"):
        required(message, field)
    ref = part("ref", message.ref, plain.decode_subject)
    kind = part("kind", message.kind, plain.decode_kind_id)
    if not message.HasField("inline"):
        return Config(ref=ref, kind=kind)
    spec_json, credentials = part("inline", message.inline, _decode_inline)
    return Config(ref=ref, kind=kind, spec_json=spec_json, credentials=credentials)


def _decode_inline(message: pb.InlineConfig) -> tuple[SecretBytes, tuple[Credential, ...]]:
    return (
        document("spec_json", message.spec_json, bounds.MAX_SPEC_BYTES),
        each("resolved", message.resolved, bounds.MAX_CREDENTIALS, plain.decode_credential),
    )


# --- handshake, validation, closing of sessions -----------------------------------------------------------------------


def to_hello(hello: Hello) -> pb.HandshakeRequest:
    return plain.encode_hello(hello)


def to_handshake(handshake: Handshake) -> pb.HandshakeResponse:
    return plain.encode_handshake(handshake)


from_hello = of_request(plain.decode_hello)
from_handshake = of_response(plain.decode_handshake)


def to_validate_request(context: Context, mode: ValidationMode) -> pb.ValidateRequest:
    return pb.ValidateRequest(context=to_context(context), static_only=mode is ValidationMode.STATIC)


@of_request
def from_validate_request(message: pb.ValidateRequest) -> tuple[Context, ValidationMode]:
    return _context_of(message), ValidationMode.STATIC if message.static_only else ValidationMode.FULL


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
        conditions=[plain.encode_condition_report(condition) for condition in validation.conditions],
        dependencies=[plain.encode_subject(ref) for ref in validation.dependencies],
    )


@of_response
def from_validate_response(message: pb.ValidateResponse) -> Validation:
    """Decode a validation. Warnings and conditions are for people: surplus ones are dropped."""
    limit = bounds.MAX_SHORT_LIST
    return Validation(
        state=VALIDATION_STATE.choice("state", message.state),
        warnings=tuple(prose(warning) for warning in message.warnings[:limit]),
        error=from_error(message.error) if message.HasField("error") else None,
        operations=OPERATION.known(message.operations) if message.operations else None,
        conditions=tuple(plain.decode_condition_report(condition) for condition in message.conditions[:limit]),
        dependencies=each("dependencies", message.dependencies, limit, plain.decode_subject),
    )


def to_close_request(config: ObjectRef) -> pb.CloseSessionsRequest:
    return pb.CloseSessionsRequest(config=plain.encode_subject(config))


@of_request
def from_close_request(message: pb.CloseSessionsRequest) -> ObjectRef:
    required(message, "config")
    return part("config", message.config, plain.decode_subject)


# --- get, check and find ----------------------------------------------------------------------------------------------


def to_get_request(context: Context, items: Iterable[GetItem]) -> pb.GetSecretsRequest:
    return pb.GetSecretsRequest(context=to_context(context), items=[plain.encode_get_item(item) for item in items])


@of_request
def from_get_request(message: pb.GetSecretsRequest) -> tuple[Context, tuple[GetItem, ...]]:
    return _context_of(message), batch("items", message.items, plain.decode_get_item)


def to_get_response(results: Iterable[GetResult]) -> pb.GetSecretsResponse:
    return pb.GetSecretsResponse(results=[_encode_result(result) for result in results])


@of_response
def from_get_response(message: pb.GetSecretsResponse) -> tuple[GetResult, ...]:
    return batch("results", message.results, _decode_result)


def _encode_result(result: GetResult) -> pb.GetResult:
    message = pb.GetResult(item_id=result.item_id, metadata=plain.encode_value_metadata(result.metadata))
    match result.outcome:
        case SecretBytes() as value:
            message.value = value.reveal()
        case ProviderError() as error:
            message.error.CopyFrom(to_error(error))
        case NotModified():
            message.not_modified.SetInParent()
        case Mapping() as data:
            try:
                message.map.CopyFrom(pb.SecretMap(data=revealed(data)))
            except ProviderError as error:  # only this item fails, not the whole response
                message.error.CopyFrom(to_error(error))
        case _ as never:
            assert_never(never)
    return message


def _decode_result(message: pb.GetResult) -> GetResult:
    item_id = identifier("item_id", message.item_id)
    try:
        metadata = part("metadata", message.metadata, plain.decode_value_metadata)
        return GetResult(item_id, _decode_outcome(message), metadata)
    except Malformed as problem:
        return GetResult(item_id, response_error(problem))


def _decode_outcome(message: pb.GetResult) -> SecretBytes | SecretMap | NotModified | ProviderError:
    match message.WhichOneof("outcome"):
        case "value":
            return SecretBytes(message.value)
        case "map":
            return secret_map("map", message.map.data)
        case "not_modified":
            return NotModified()
        case "error":
            return from_error(message.error)
        case None:
            raise Malformed("outcome", "is not set")
        case _ as never:
            assert_never(never)


def to_check_request(context: Context, items: Iterable[GetItem]) -> pb.CheckSecretsRequest:
    return pb.CheckSecretsRequest(context=to_context(context), items=[plain.encode_get_item(item) for item in items])


@of_request
def from_check_request(message: pb.CheckSecretsRequest) -> tuple[Context, tuple[GetItem, ...]]:
    return _context_of(message), batch("items", message.items, plain.decode_get_item)


def to_check_response(results: Iterable[CheckResult]) -> pb.CheckSecretsResponse:
    return pb.CheckSecretsResponse(results=[plain.encode_check_result(result) for result in results])


@of_response
def from_check_response(message: pb.CheckSecretsResponse) -> tuple[CheckResult, ...]:
    return batch("results", message.results, plain.decode_check_result)


def to_find_request(context: Context, query: FindQuery) -> pb.FindSecretsRequest:
    return pb.FindSecretsRequest(
        context=to_context(context),
        path=query.path,
        name_regexp=query.name_regexp,
        tags=query.tags,
        page_size=query.page_size,
    )


@of_request
def from_find_request(message: pb.FindSecretsRequest) -> tuple[Context, FindQuery]:
    return _context_of(message), FindQuery(
        path=remote_key("path", message.path),
        name_regexp=remote_key("name_regexp", message.name_regexp),
        tags=labels("tags", message.tags),
        page_size=message.page_size,
    )


def to_find_page(page: FindPage) -> pb.FindSecretsResponse:
    found = [plain.encode_found(found) for found in page.found]
    return pb.FindSecretsResponse(found=found, last=page.last, considered=page.considered, missing=prose(page.missing))


@of_response
def from_find_page(message: pb.FindSecretsResponse) -> FindPage:
    found = each("found", message.found, bounds.MAX_PAGE_ITEMS, plain.decode_found)
    if message.missing and (found or not message.last):
        raise Malformed("missing", "is set in a page that has secrets or is not the last")
    return FindPage(found, message.last, message.considered, prose(message.missing))


# --- push and delete --------------------------------------------------------------------------------------------------


def to_push_request(context: Context, batch: PushBatch) -> pb.PushSecretsRequest:
    return pb.PushSecretsRequest(
        context=to_context(context),
        source=plain.encode_source_secret(batch.source),
        items=[plain.encode_push_item(item) for item in batch.items],
        idempotency_key=batch.idempotency_key,
    )


@of_request
def from_push_request(message: pb.PushSecretsRequest) -> tuple[Context, PushBatch]:
    return _context_of(message), PushBatch(
        items=batch("items", message.items, plain.decode_push_item),
        source=part("source", message.source, plain.decode_source_secret),
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
    )


def to_push_response(results: Iterable[PushResult]) -> pb.PushSecretsResponse:
    return pb.PushSecretsResponse(results=[_encode_pushed(result) for result in results])


@of_response
def from_push_response(message: pb.PushSecretsResponse) -> tuple[PushResult, ...]:
    return batch("results", message.results, _decode_pushed)


def _encode_pushed(result: PushResult) -> pb.PushResult:
    message = pb.PushResult(item_id=result.item_id, provider_version=result.provider_version)
    match result.outcome:
        case PushOutcome() as outcome:
            message.outcome = PUSH_OUTCOME.to(outcome)
        case ProviderError() as error:
            message.error.CopyFrom(to_error(error))
        case _ as never:
            assert_never(never)
    return message


def _decode_pushed(message: pb.PushResult) -> PushResult:
    """Decode the result of a push. An error wins over an outcome: the value may not have been written."""
    item_id = identifier("item_id", message.item_id)
    version = identifier("provider_version", message.provider_version)
    if message.HasField("error"):
        return PushResult(item_id, from_error(message.error), version)
    try:
        return PushResult(item_id, PUSH_OUTCOME.choice("outcome", message.outcome), version)
    except Malformed as problem:
        return PushResult(item_id, response_error(problem), version)


def to_delete_request(context: Context, batch: DeleteBatch) -> pb.DeleteSecretsRequest:
    return pb.DeleteSecretsRequest(
        context=to_context(context),
        items=[plain.encode_delete_item(item) for item in batch.items],
        idempotency_key=batch.idempotency_key,
    )


@of_request
def from_delete_request(message: pb.DeleteSecretsRequest) -> tuple[Context, DeleteBatch]:
    return _context_of(message), DeleteBatch(
        items=batch("items", message.items, plain.decode_delete_item),
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
    )


def to_delete_response(results: Iterable[DeleteResult]) -> pb.DeleteSecretsResponse:
    return pb.DeleteSecretsResponse(results=[plain.encode_delete_result(result) for result in results])


@of_response
def from_delete_response(message: pb.DeleteSecretsResponse) -> tuple[DeleteResult, ...]:
    return batch("results", message.results, plain.decode_delete_result)


# --- generate and clean up --------------------------------------------------------------------------------------------


def to_generate_request(context: Context, request: GenerateRequest) -> pb.GenerateRequest:
    previous = request.previous_state
    return pb.GenerateRequest(
        context=to_context(context),
        idempotency_key=request.idempotency_key,
        previous_state_json=b"" if previous is None else previous.reveal(),
    )


@of_request
def from_generate_request(message: pb.GenerateRequest) -> tuple[Context, GenerateRequest]:
    previous = document("previous_state_json", message.previous_state_json, bounds.MAX_STATE_BYTES)
    return _context_of(message), GenerateRequest(
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
        previous_state=previous or None,
    )


def to_generate_response(generated: Generated) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        data=revealed(generated.data),
        state_json=b"" if generated.state is None else generated.state.reveal(),
        metadata=plain.encode_value_metadata(generated.metadata),
    )


@of_response
def from_generate_response(message: pb.GenerateResponse) -> Generated:
    return Generated(
        data=secret_map("data", message.data),
        state=_state(message.state_json),
        metadata=part("metadata", message.metadata, plain.decode_value_metadata),
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
    return _context_of(message), CleanupRequest(
        state=document("state_json", message.state_json, bounds.MAX_STATE_BYTES),
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
    )


def to_cleanup_response(outcome: CleanupOutcome) -> pb.CleanupResponse:
    return pb.CleanupResponse(already_gone=outcome is CleanupOutcome.ALREADY_GONE)


def from_cleanup_response(message: pb.CleanupResponse) -> CleanupOutcome:
    return CleanupOutcome.ALREADY_GONE if message.already_gone else CleanupOutcome.CLEANED


# --- subscribe: both directions of the stream. It never carries values ------------------------------------------------


def to_subscribe_request(message: SubscribeMessage) -> pb.SubscribeRequest:
    match message:
        case SubscribeOpen(context=context, items=items, resume_token=token):
            watches = [plain.encode_watch_item(item) for item in items]
            opening = pb.SubscribeOpen(context=to_context(context), resume_token=token, items=watches)
            return pb.SubscribeRequest(open=opening)
        case SubscribeUpdate():
            return pb.SubscribeRequest(update=plain.encode_subscribe_update(message))
        case SubscribeAck(resume_token=token):
            return pb.SubscribeRequest(ack=pb.SubscribeAck(resume_token=token))
        case _ as never:
            assert_never(never)


@of_request
def from_subscribe_request(message: pb.SubscribeRequest) -> SubscribeMessage:
    match message.WhichOneof("message"):
        case "open":
            return part("open", message.open, _decode_open)
        case "update":
            return part("update", message.update, _decode_update)
        case "ack":
            return SubscribeAck(_resume_token(message.ack.resume_token))
        case None:
            raise Malformed("message", "is not set")
        case _ as never:
            assert_never(never)


def _decode_open(message: pb.SubscribeOpen) -> SubscribeOpen:
    items = each("items", message.items, bounds.MAX_WATCHES, plain.decode_watch_item)
    distinct("items", (item.watch_id for item in items))
    return SubscribeOpen(_context_of(message), items, _resume_token(message.resume_token))


def _decode_update(message: pb.SubscribeUpdate) -> SubscribeUpdate:
    update = plain.decode_subscribe_update(message)
    distinct("add", (item.watch_id for item in update.add))
    return update


def to_subscribe_response(event: ChangeEvent | Heartbeat) -> pb.SubscribeResponse:
    match event:
        case ChangeEvent():
            return pb.SubscribeResponse(change=plain.encode_change_event(event), resume_token=event.resume_token)
        case Heartbeat():
            return pb.SubscribeResponse(heartbeat=to_timestamp(event.at), resume_token=event.resume_token)
        case _ as never:
            assert_never(never)


@of_response
def from_subscribe_response(message: pb.SubscribeResponse) -> ChangeEvent | Heartbeat:
    token = _resume_token(message.resume_token)
    match message.WhichOneof("message"):
        case "change":
            return replace(part("change", message.change, plain.decode_change_event), resume_token=token)
        case "heartbeat":
            return Heartbeat(moment_of("heartbeat", message.heartbeat), token)
        case None:
            raise Malformed("message", "is not set")
        case _ as never:
            assert_never(never)


def _resume_token(token: str) -> str:
    return identifier("resume_token", token, bounds.MAX_TOKEN_CHARS)
