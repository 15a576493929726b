"""Push and Delete: values to write or delete, and the result of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.context import decode_context, decode_credential, encode_credential, to_context
from eso_wire.codec.errors import from_error, to_error
from eso_wire.codec.fields import (
    PUSH_OUTCOME,
    PUSH_PRECONDITION,
    Malformed,
    batch,
    decode_struct,
    each,
    identifier,
    labels,
    of_request,
    of_response,
    part,
    required,
    response_error,
    revealed,
    secret_map,
    to_struct,
)
from eso_wire.codec.reading import decode_remote, encode_remote
from eso_wire.errors import ProviderError
from eso_wire.values import (
    Context,
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    PushBatch,
    PushItem,
    PushOutcome,
    PushResult,
    SecretMap,
    SourceSecret,
)

# --- push ------------------------------------------------------------------------------------------------------------


def to_push_request(context: Context, batch: PushBatch) -> pb.PushSecretsRequest:
    source = batch.source
    return pb.PushSecretsRequest(
        context=to_context(context),
        source=pb.SourceSecret(type=source.type, labels=source.labels, annotations=source.annotations),
        items=[_encode_push(item) for item in batch.items],
        idempotency_key=batch.idempotency_key,
    )


@of_request
def from_push_request(message: pb.PushSecretsRequest) -> tuple[Context, PushBatch]:
    required(message, "context")
    items = batch("items", message.items, _decode_push)
    return part("context", message.context, decode_context), PushBatch(
        items=items,
        source=part("source", message.source, _decode_source),
        idempotency_key=identifier("idempotency_key", message.idempotency_key),
    )


def to_push_response(results: Iterable[PushResult]) -> pb.PushSecretsResponse:
    return pb.PushSecretsResponse(results=[_encode_pushed(result) for result in results])


@of_response
def from_push_response(message: pb.PushSecretsResponse) -> tuple[PushResult, ...]:
    return batch("results", message.results, _decode_pushed)


# --- delete ----------------------------------------------------------------------------------------------------------


def to_delete_request(context: Context, batch: DeleteBatch) -> pb.DeleteSecretsRequest:
    return pb.DeleteSecretsRequest(
        context=to_context(context),
        items=[_encode_delete(item) for item in batch.items],
        idempotency_key=batch.idempotency_key,
    )


@of_request
def from_delete_request(message: pb.DeleteSecretsRequest) -> tuple[Context, DeleteBatch]:
    required(message, "context")
    items = batch("items", message.items, _decode_delete)
    return part("context", message.context, decode_context), DeleteBatch(
        items=items, idempotency_key=identifier("idempotency_key", message.idempotency_key)
    )


def to_delete_response(results: Iterable[DeleteResult]) -> pb.DeleteSecretsResponse:
    return pb.DeleteSecretsResponse(results=[_encode_deleted(result) for result in results])


@of_response
def from_delete_response(message: pb.DeleteSecretsResponse) -> tuple[DeleteResult, ...]:
    return batch("results", message.results, _decode_deleted)


# --- parts -----------------------------------------------------------------------------------------------------------


def _encode_push(item: PushItem) -> pb.PushItem:
    message = pb.PushItem(
        item_id=item.item_id,
        remote=encode_remote(item.remote),
        provider_metadata=None if item.provider_metadata is None else to_struct(item.provider_metadata),
        precondition=PUSH_PRECONDITION.to(item.precondition),
        expected_version=item.expected_version,
        owner_token=item.owner_token,
        resolved=[encode_credential(credential) for credential in item.resolved],
        secret_key=item.secret_key,
    )
    match item.payload:
        case SecretBytes() as value:
            message.value = value.reveal()
        case Mapping() as data:
            message.whole_secret.CopyFrom(pb.SecretMap(data=revealed(data)))
        case _ as never:
            assert_never(never)
    return message


def _decode_push(message: pb.PushItem) -> PushItem:
    required(message, "remote")
    return PushItem(
        item_id=identifier("item_id", message.item_id),
        remote=part("remote", message.remote, decode_remote),
        payload=_decode_payload(message),
        provider_metadata=decode_struct(message.provider_metadata) if message.HasField("provider_metadata") else None,
        precondition=PUSH_PRECONDITION.choice("precondition", message.precondition),
        expected_version=identifier("expected_version", message.expected_version),
        owner_token=identifier("owner_token", message.owner_token),
        resolved=each("resolved", message.resolved, bounds.MAX_CREDENTIALS, decode_credential),
        secret_key=identifier("secret_key", message.secret_key),
    )


def _decode_payload(message: pb.PushItem) -> SecretBytes | SecretMap:
    match message.WhichOneof("payload"):
        case "value":
            return SecretBytes(message.value)
        case "whole_secret":
            return secret_map("whole_secret", message.whole_secret.data)
        case None:
            raise Malformed("payload", "is not set")
        case _ as never:
            assert_never(never)


def _decode_source(message: pb.SourceSecret) -> SourceSecret:
    return SourceSecret(
        type=identifier("type", message.type),
        labels=labels("labels", message.labels, bounds.MAX_MAP_ENTRIES),
        annotations=labels("annotations", message.annotations, bounds.MAX_MAP_ENTRIES),
    )


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


def _encode_delete(item: DeleteItem) -> pb.DeleteItem:
    return pb.DeleteItem(
        item_id=item.item_id,
        remote=encode_remote(item.remote),
        owner_token=item.owner_token,
        provider_metadata=None if item.provider_metadata is None else to_struct(item.provider_metadata),
    )


def _decode_delete(message: pb.DeleteItem) -> DeleteItem:
    required(message, "remote")
    return DeleteItem(
        item_id=identifier("item_id", message.item_id),
        remote=part("remote", message.remote, decode_remote),
        owner_token=identifier("owner_token", message.owner_token),
        provider_metadata=decode_struct(message.provider_metadata) if message.HasField("provider_metadata") else None,
    )


def _encode_deleted(result: DeleteResult) -> pb.DeleteResult:
    return pb.DeleteResult(
        item_id=result.item_id,
        existed=result.existed,
        error=None if result.error is None else to_error(result.error),
    )


def _decode_deleted(message: pb.DeleteResult) -> DeleteResult:
    return DeleteResult(
        item_id=identifier("item_id", message.item_id),
        existed=message.existed,
        error=from_error(message.error) if message.HasField("error") else None,
    )
