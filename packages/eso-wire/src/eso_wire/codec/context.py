"""The envelope of every call: caller, store, configuration and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.errors import decode_object, encode_object
from eso_wire.codec.fields import (
    Malformed,
    document,
    each,
    identifier,
    identifiers,
    labels,
    moment_of,
    of_request,
    part,
    remote_key,
    required,
    revealed,
    seconds_of,
    secret_map,
    to_duration,
    to_timestamp,
)
from eso_wire.codec.negotiation import decode_kind_id, decode_version, encode_kind_id, encode_version
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Config, Context, Credential, ObjectRef, Token


def to_context(context: Context) -> pb.RequestContext:
    return pb.RequestContext(
        request_id=context.request_id,
        protocol=encode_version(context.protocol),
        caller=encode_object(context.caller),
        store=encode_object(context.store),
        config=_encode_config(context.config),
        auth_namespace=context.auth_namespace,
        auth_namespace_pinned=context.auth_namespace_pinned,
        max_backend_retries=context.max_backend_retries,
        backend_retry_interval=to_duration(context.backend_retry_interval),
        cluster_id=context.cluster_id,
    )


def decode_context(message: pb.RequestContext) -> Context:
    for field in ("protocol", "caller", "store", "config"):
        required(message, field)
    return Context(
        request_id=identifier("request_id", message.request_id),
        protocol=decode_version(message.protocol),
        caller=part("caller", message.caller, decode_object),
        store=part("store", message.store, decode_object),
        config=part("config", message.config, _decode_config),
        auth_namespace=identifier("auth_namespace", message.auth_namespace),
        auth_namespace_pinned=message.auth_namespace_pinned,
        max_backend_retries=message.max_backend_retries,
        backend_retry_interval=seconds_of(message.backend_retry_interval),
        cluster_id=identifier("cluster_id", message.cluster_id),
    )


from_context = of_request(decode_context)


def to_close_request(config: ObjectRef) -> pb.CloseSessionsRequest:
    return pb.CloseSessionsRequest(config=encode_object(config))


@of_request
def from_close_request(message: pb.CloseSessionsRequest) -> ObjectRef:
    required(message, "config")
    return part("config", message.config, decode_object)


def _encode_config(config: Config) -> pb.ProviderConfig:
    message = pb.ProviderConfig(ref=encode_object(config.ref), kind=encode_kind_id(config.kind))
    if config.spec_json is not None:
        message.inline.CopyFrom(
            pb.InlineConfig(
                spec_json=config.spec_json.reveal(),
                resolved=[encode_credential(credential) for credential in config.credentials],
            )
        )
    elif config.credentials:
        raise ValueError("credentials travel only with the configuration that refers to them")
    return message


def _decode_config(message: pb.ProviderConfig) -> Config:
    for field in ("ref", "kind"):
        required(message, field)
    ref = part("ref", message.ref, decode_object)
    kind = part("kind", message.kind, decode_kind_id)
    if not message.HasField("inline"):
        return Config(ref=ref, kind=kind)
    spec_json, credentials = part("inline", message.inline, _decode_inline)
    return Config(ref=ref, kind=kind, spec_json=spec_json, credentials=credentials)


def _decode_inline(message: pb.InlineConfig) -> tuple[SecretBytes, tuple[Credential, ...]]:
    return (
        document("spec_json", message.spec_json, bounds.MAX_SPEC_BYTES),
        each("resolved", message.resolved, bounds.MAX_CREDENTIALS, decode_credential),
    )


def encode_credential(credential: Credential) -> pb.ResolvedValue:
    message = pb.ResolvedValue(json_pointer=credential.pointer)
    match credential.value:
        case SecretBytes() as value:
            message.secret_value = value.reveal()
        case Token() as token:
            message.service_account_token.CopyFrom(_encode_token(token))
        case Mapping() as data:
            message.whole_secret.CopyFrom(pb.SecretMap(data=revealed(data)))
        case _ as never:
            assert_never(never)
    return message


def decode_credential(message: pb.ResolvedValue) -> Credential:
    pointer = remote_key("json_pointer", message.json_pointer)
    match message.WhichOneof("value"):
        case "secret_value":
            return Credential(pointer, SecretBytes(message.secret_value))
        case "service_account_token":
            return Credential(pointer, part("service_account_token", message.service_account_token, _decode_token))
        case "whole_secret":
            return Credential(pointer, secret_map("whole_secret", message.whole_secret.data))
        case None:
            raise Malformed("value", "is not set")
        case _ as never:
            assert_never(never)


def _encode_token(token: Token) -> pb.ServiceAccountToken:
    try:
        text = token.token.reveal().decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not text:
        # Not chained: the cause would contain the token.
        raise ProviderError(ErrorReason.INVALID_REQUEST, "a service account token has to be ASCII text")
    return pb.ServiceAccountToken(
        token=text,
        expires_at=to_timestamp(token.expires_at),
        audiences=token.audiences,
        namespace=token.namespace,
        name=token.name,
        uid=token.uid,
        annotations=token.annotations,
    )


def _decode_token(message: pb.ServiceAccountToken) -> Token:
    if len(message.token) > bounds.MAX_TOKEN_CHARS or not message.token.isascii():
        raise Malformed("token", f"has to be ASCII text of at most {bounds.MAX_TOKEN_CHARS} characters")
    return Token(
        token=SecretBytes(message.token.encode("ascii")),
        expires_at=moment_of("expires_at", message.expires_at) if message.HasField("expires_at") else None,
        audiences=identifiers("audiences", message.audiences),
        namespace=identifier("namespace", message.namespace),
        name=identifier("name", message.name),
        uid=identifier("uid", message.uid),
        annotations=labels("annotations", message.annotations, bounds.MAX_ANNOTATIONS),
    )
