"""Get, Find and Check: requests for values, and results item by item.

An item of a response that violates the contract becomes an error of that item; the other items stay valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.context import decode_context, to_context
from eso_wire.codec.errors import from_error, to_error
from eso_wire.codec.fields import (
    METADATA_POLICY,
    VALUE_SHAPE,
    Malformed,
    batch,
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
from eso_wire.errors import ProviderError
from eso_wire.values import (
    CheckResult,
    Context,
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    MetadataPolicy,
    NotModified,
    RemoteRef,
    SecretMap,
    ValueMetadata,
)

# --- get -------------------------------------------------------------------------------------------------------------


def to_get_request(context: Context, items: Iterable[GetItem]) -> pb.GetSecretsRequest:
    return pb.GetSecretsRequest(context=to_context(context), items=[_encode_item(item) for item in items])


@of_request
def from_get_request(message: pb.GetSecretsRequest) -> tuple[Context, tuple[GetItem, ...]]:
    return _decode_items_request(message)


def to_get_response(results: Iterable[GetResult]) -> pb.GetSecretsResponse:
    return pb.GetSecretsResponse(results=[_encode_result(result) for result in results])


@of_response
def from_get_response(message: pb.GetSecretsResponse) -> tuple[GetResult, ...]:
    return batch("results", message.results, _decode_result)


# --- find ------------------------------------------------------------------------------------------------------------


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
    required(message, "context")
    return part("context", message.context, decode_context), FindQuery(
        path=remote_key("path", message.path),
        name_regexp=remote_key("name_regexp", message.name_regexp),
        tags=labels("tags", message.tags),
        page_size=message.page_size,
    )


def to_find_page(page: FindPage) -> pb.FindSecretsResponse:
    found = [_encode_found(found) for found in page.found]
    return pb.FindSecretsResponse(found=found, last=page.last, considered=page.considered, missing=prose(page.missing))


@of_response
def from_find_page(message: pb.FindSecretsResponse) -> FindPage:
    found = each("found", message.found, bounds.MAX_PAGE_ITEMS, _decode_found)
    if message.missing and (found or not message.last):
        raise Malformed("missing", "is set in a page that has secrets or is not the last")
    return FindPage(found, message.last, message.considered, prose(message.missing))


# --- check -----------------------------------------------------------------------------------------------------------


def to_check_request(context: Context, items: Iterable[GetItem]) -> pb.CheckSecretsRequest:
    return pb.CheckSecretsRequest(context=to_context(context), items=[_encode_item(item) for item in items])


@of_request
def from_check_request(message: pb.CheckSecretsRequest) -> tuple[Context, tuple[GetItem, ...]]:
    return _decode_items_request(message)


def to_check_response(results: Iterable[CheckResult]) -> pb.CheckSecretsResponse:
    return pb.CheckSecretsResponse(results=[_encode_check(result) for result in results])


@of_response
def from_check_response(message: pb.CheckSecretsResponse) -> tuple[CheckResult, ...]:
    return batch("results", message.results, _decode_check)


# --- shared with writing, subscribing and generating -----------------------------------------------------------------


def encode_remote(ref: RemoteRef) -> pb.RemoteRef:
    return pb.RemoteRef(
        key=ref.key,
        version=ref.version,
        property=ref.property,
        metadata_policy=METADATA_POLICY.to(ref.metadata_policy),
    )


def decode_remote(message: pb.RemoteRef) -> RemoteRef:
    """Decode a remote ref. Without a metadata policy, NONE applies: only reads choose one."""
    return RemoteRef(
        key=remote_key("key", message.key),
        version=identifier("version", message.version),
        property=remote_key("property", message.property),
        metadata_policy=METADATA_POLICY.of(message.metadata_policy) or MetadataPolicy.NONE,
    )


def encode_metadata(metadata: ValueMetadata) -> pb.ValueMetadata:
    return pb.ValueMetadata(
        provider_version=metadata.provider_version,
        updated_at=to_timestamp(metadata.updated_at),
        expires_at=to_timestamp(metadata.expires_at),
        suggested_refresh=to_duration(metadata.suggested_refresh),
        attributes=metadata.attributes,
    )


def decode_metadata(message: pb.ValueMetadata) -> ValueMetadata:
    return ValueMetadata(
        provider_version=identifier("provider_version", message.provider_version),
        updated_at=moment_of("updated_at", message.updated_at) if message.HasField("updated_at") else None,
        expires_at=moment_of("expires_at", message.expires_at) if message.HasField("expires_at") else None,
        suggested_refresh=seconds_of(message.suggested_refresh),
        attributes=labels("attributes", message.attributes),
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _encode_item(item: GetItem) -> pb.GetItem:
    return pb.GetItem(
        item_id=item.item_id,
        ref=encode_remote(item.ref),
        shape=VALUE_SHAPE.to(item.shape),
        if_version_differs=item.if_version_differs,
    )


def _decode_item(message: pb.GetItem) -> GetItem:
    required(message, "ref")
    return GetItem(
        item_id=identifier("item_id", message.item_id),
        ref=part("ref", message.ref, decode_remote),
        shape=VALUE_SHAPE.choice("shape", message.shape),
        if_version_differs=identifier("if_version_differs", message.if_version_differs),
    )


def _decode_items_request(
    message: pb.GetSecretsRequest | pb.CheckSecretsRequest,
) -> tuple[Context, tuple[GetItem, ...]]:
    required(message, "context")
    items = batch("items", message.items, _decode_item)
    return part("context", message.context, decode_context), items


def _encode_result(result: GetResult) -> pb.GetResult:
    message = pb.GetResult(item_id=result.item_id, metadata=encode_metadata(result.metadata))
    match result.outcome:
        case SecretBytes() as value:
            message.value = value.reveal()
        case ProviderError() as error:
            message.error.CopyFrom(to_error(error))
        case NotModified():
            message.not_modified.SetInParent()
        case Mapping() as data:
            _set_map(message, data)
        case _ as never:
            assert_never(never)
    return message


def _set_map(message: pb.GetResult, data: SecretMap) -> None:
    """Set the map. If it cannot be encoded, only its item fails, not the whole response."""
    try:
        message.map.CopyFrom(pb.SecretMap(data=revealed(data)))
    except ProviderError as error:
        message.error.CopyFrom(to_error(error))


def _decode_result(message: pb.GetResult) -> GetResult:
    item_id = identifier("item_id", message.item_id)
    try:
        return GetResult(item_id, _decode_outcome(message), part("metadata", message.metadata, decode_metadata))
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


def _encode_found(found: Found) -> pb.FoundSecret:
    return pb.FoundSecret(key=found.key, value=found.value.reveal(), metadata=encode_metadata(found.metadata))


def _decode_found(message: pb.FoundSecret) -> Found:
    return Found(
        key=remote_key("key", message.key),
        value=SecretBytes(message.value),
        metadata=part("metadata", message.metadata, decode_metadata),
    )


def _encode_check(result: CheckResult) -> pb.CheckResult:
    return pb.CheckResult(
        item_id=result.item_id,
        exists=result.exists,
        provider_version=result.provider_version,
        error=None if result.error is None else to_error(result.error),
    )


def _decode_check(message: pb.CheckResult) -> CheckResult:
    return CheckResult(
        item_id=identifier("item_id", message.item_id),
        exists=message.exists,
        provider_version=identifier("provider_version", message.provider_version),
        error=from_error(message.error) if message.HasField("error") else None,
    )
