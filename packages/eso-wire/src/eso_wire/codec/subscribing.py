"""Subscribe: both directions of the stream that reports changes to the operator. It never carries values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.context import decode_context, to_context
from eso_wire.codec.fields import (
    CHANGE_TYPE,
    Malformed,
    distinct,
    each,
    identifier,
    identifiers,
    labels,
    moment_of,
    of_request,
    of_response,
    part,
    remote_key,
    required,
    to_timestamp,
)
from eso_wire.codec.reading import decode_remote, encode_remote
from eso_wire.codec.validating import decode_condition, encode_condition
from eso_wire.values import (
    ChangeEvent,
    Heartbeat,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)


def to_subscribe_request(message: SubscribeMessage) -> pb.SubscribeRequest:
    match message:
        case SubscribeOpen(context=context, items=items, resume_token=resume_token):
            watches = [_encode_watch(item) for item in items]
            return pb.SubscribeRequest(
                open=pb.SubscribeOpen(context=to_context(context), resume_token=resume_token, items=watches)
            )
        case SubscribeUpdate(add=add, remove=remove):
            return pb.SubscribeRequest(
                update=pb.SubscribeUpdate(add=[_encode_watch(item) for item in add], remove=remove)
            )
        case SubscribeAck(resume_token=resume_token):
            return pb.SubscribeRequest(ack=pb.SubscribeAck(resume_token=resume_token))
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


def to_subscribe_response(event: ChangeEvent | Heartbeat) -> pb.SubscribeResponse:
    match event:
        case ChangeEvent():
            return pb.SubscribeResponse(change=_encode_change(event), resume_token=event.resume_token)
        case Heartbeat():
            return pb.SubscribeResponse(heartbeat=to_timestamp(event.at), resume_token=event.resume_token)
        case _ as never:
            assert_never(never)


@of_response
def from_subscribe_response(message: pb.SubscribeResponse) -> ChangeEvent | Heartbeat:
    resume_token = _resume_token(message.resume_token)
    match message.WhichOneof("message"):
        case "change":
            return part("change", message.change, lambda change: _decode_change(change, resume_token))
        case "heartbeat":
            return Heartbeat(moment_of("heartbeat", message.heartbeat), resume_token)
        case None:
            raise Malformed("message", "is not set")
        case _ as never:
            assert_never(never)


def _decode_open(message: pb.SubscribeOpen) -> SubscribeOpen:
    required(message, "context")
    return SubscribeOpen(
        context=part("context", message.context, decode_context),
        items=_decode_watches("items", message.items),
        resume_token=_resume_token(message.resume_token),
    )


def _decode_update(message: pb.SubscribeUpdate) -> SubscribeUpdate:
    return SubscribeUpdate(
        add=_decode_watches("add", message.add),
        remove=identifiers("remove", message.remove, bounds.MAX_WATCHES),
    )


def _encode_watch(item: WatchItem) -> pb.WatchItem:
    return pb.WatchItem(
        watch_id=item.watch_id,
        ref=None if item.ref is None else encode_remote(item.ref),
        name_regexp=item.name_regexp,
        tags=item.tags,
        known_version=item.known_version,
    )


def _decode_watches(field: str, messages: Sequence[pb.WatchItem]) -> tuple[WatchItem, ...]:
    items = each(field, messages, bounds.MAX_WATCHES, _decode_watch)
    distinct(field, (item.watch_id for item in items))
    return items


def _decode_watch(message: pb.WatchItem) -> WatchItem:
    return WatchItem(
        watch_id=identifier("watch_id", message.watch_id),
        ref=part("ref", message.ref, decode_remote) if message.HasField("ref") else None,
        name_regexp=remote_key("name_regexp", message.name_regexp),
        tags=labels("tags", message.tags),
        known_version=identifier("known_version", message.known_version),
    )


def _encode_change(event: ChangeEvent) -> pb.ChangeEvent:
    return pb.ChangeEvent(
        type=CHANGE_TYPE.to(event.type),
        watch_ids=event.watch_ids,
        provider_version=event.provider_version,
        observed_at=to_timestamp(event.observed_at),
        condition=None if event.condition is None else encode_condition(event.condition),
    )


def _decode_change(message: pb.ChangeEvent, resume_token: str) -> ChangeEvent:
    return ChangeEvent(
        type=CHANGE_TYPE.choice("type", message.type),
        watch_ids=identifiers("watch_ids", message.watch_ids, bounds.MAX_WATCHES),
        provider_version=identifier("provider_version", message.provider_version),
        observed_at=moment_of("observed_at", message.observed_at) if message.HasField("observed_at") else None,
        condition=decode_condition(message.condition) if message.HasField("condition") else None,
        resume_token=resume_token,
    )


def _resume_token(token: str) -> str:
    return identifier("resume_token", token, bounds.MAX_TOKEN_CHARS)
