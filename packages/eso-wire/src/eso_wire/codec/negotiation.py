"""The handshake: each side describes itself before any other call.

Unknown values: an operation, delivery or credential kind of a newer provider is ignored. A kind with an unknown role is
ignored as a whole, because no call can use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from eso_wire import bounds
from eso_wire._generated import provider_pb2 as pb
from eso_wire.codec.fields import (
    AUDIENCE_SOURCE,
    CONFIG_DELIVERY,
    CREDENTIAL_KIND,
    KIND_ROLE,
    OPERATION,
    each,
    identifier,
    identifiers,
    of_request,
    of_response,
    part,
    remote_key,
    seconds_of,
    to_duration,
)
from eso_wire.values import (
    AudienceRule,
    CallerDependence,
    CredentialPath,
    Handshake,
    Hello,
    KindId,
    KindInfo,
    Limits,
    SpecCondition,
)
from eso_wire.versions import ProtocolVersion


def to_hello(hello: Hello) -> pb.HandshakeRequest:
    return pb.HandshakeRequest(
        core_version=hello.core_version,
        supported=[encode_version(version) for version in hello.supported],
        features=hello.features,
        cluster_id=hello.cluster_id,
    )


@of_request
def from_hello(message: pb.HandshakeRequest) -> Hello:
    return Hello(
        core_version=identifier("core_version", message.core_version),
        supported=each("supported", message.supported, bounds.MAX_SHORT_LIST, decode_version),
        features=identifiers("features", message.features),
        cluster_id=identifier("cluster_id", message.cluster_id),
    )


def to_handshake(handshake: Handshake) -> pb.HandshakeResponse:
    return pb.HandshakeResponse(
        selected=None if handshake.selected is None else encode_version(handshake.selected),
        supported=[encode_version(version) for version in handshake.supported],
        provider_name=handshake.provider_name,
        provider_version=handshake.provider_version,
        instance_id=handshake.instance_id,
        kinds=[_encode_kind(info) for info in handshake.kinds],
        features=handshake.features,
        limits=_encode_limits(handshake.limits),
    )


@of_response
def from_handshake(message: pb.HandshakeResponse) -> Handshake:
    kinds = each("kinds", message.kinds, bounds.MAX_KINDS, _decode_kind)
    return Handshake(
        selected=decode_version(message.selected) if message.HasField("selected") else None,
        supported=each("supported", message.supported, bounds.MAX_SHORT_LIST, decode_version),
        provider_name=identifier("provider_name", message.provider_name),
        provider_version=identifier("provider_version", message.provider_version),
        instance_id=identifier("instance_id", message.instance_id),
        kinds=tuple(info for info in kinds if info is not None),
        features=identifiers("features", message.features),
        limits=_decode_limits(message.limits),
    )


def encode_version(version: ProtocolVersion) -> pb.ProtocolVersion:
    return pb.ProtocolVersion(major=version.major, minor=version.minor)


def decode_version(message: pb.ProtocolVersion) -> ProtocolVersion:
    return ProtocolVersion(message.major, message.minor)


def encode_kind_id(kind: KindId) -> pb.GroupVersionKind:
    return pb.GroupVersionKind(group=kind.group, version=kind.version, kind=kind.kind)


def decode_kind_id(message: pb.GroupVersionKind) -> KindId:
    return KindId(
        group=identifier("group", message.group),
        version=identifier("version", message.version),
        kind=identifier("kind", message.kind),
    )


def _encode_kind(info: KindInfo) -> pb.KindInfo:
    return pb.KindInfo(
        gvk=encode_kind_id(info.kind),
        role=KIND_ROLE.to(info.role),
        operations=OPERATION.numbers(info.operations),
        deliveries=CONFIG_DELIVERY.numbers(info.deliveries),
        maintenance=info.maintenance,
        v1_provider_key=info.v1_provider_key,
        credentials=[_encode_path(path) for path in info.credentials],
        caller_dependences=[
            pb.CallerDependence(pointer=each.pointer, unless=each.unless) for each in info.caller_dependences
        ],
        metadata_references=[_encode_path(path) for path in info.metadata_references],
        v1_when=None
        if info.v1_when is None
        else pb.SpecCondition(pointer=info.v1_when.pointer, values=info.v1_when.values),
    )


def _decode_kind(message: pb.KindInfo) -> KindInfo | None:
    role = KIND_ROLE.of(message.role)
    if role is None:
        return None
    return KindInfo(
        kind=part("gvk", message.gvk, decode_kind_id),
        role=role,
        operations=OPERATION.known(message.operations),
        deliveries=CONFIG_DELIVERY.known(message.deliveries),
        maintenance=identifier("maintenance", message.maintenance),
        v1_provider_key=identifier("v1_provider_key", message.v1_provider_key),
        credentials=_decode_paths("credentials", message.credentials),
        caller_dependences=each(
            "caller_dependences", message.caller_dependences, bounds.MAX_SHORT_LIST, _decode_dependence
        ),
        metadata_references=_decode_paths("metadata_references", message.metadata_references),
        v1_when=part("v1_when", message.v1_when, _decode_condition) if message.HasField("v1_when") else None,
    )


def _decode_condition(message: pb.SpecCondition) -> SpecCondition:
    return SpecCondition(remote_key("pointer", message.pointer), identifiers("values", message.values))


def _decode_dependence(message: pb.CallerDependence) -> CallerDependence:
    return CallerDependence(remote_key("pointer", message.pointer), identifiers("unless", message.unless))


def _encode_path(path: CredentialPath) -> pb.CredentialPath:
    return pb.CredentialPath(
        pattern=path.pattern,
        kind=CREDENTIAL_KIND.to(path.kind),
        audiences=path.audiences,
        default_key=path.default_key,
        audience_rules=[_encode_rule(rule) for rule in path.audience_rules],
        lifetime_seconds=path.lifetime_seconds,
        lifetime_pointer=path.lifetime_pointer,
    )


def _decode_paths(field: str, messages: Sequence[pb.CredentialPath]) -> tuple[CredentialPath, ...]:
    paths = each(field, messages, bounds.MAX_PATHS, _decode_path)
    return tuple(path for path in paths if path is not None)


def _decode_path(message: pb.CredentialPath) -> CredentialPath | None:
    kind = CREDENTIAL_KIND.of(message.kind)
    if kind is None:
        return None
    return CredentialPath(
        pattern=remote_key("pattern", message.pattern),
        kind=kind,
        audiences=identifiers("audiences", message.audiences),
        default_key=identifier("default_key", message.default_key),
        audience_rules=each("audience_rules", message.audience_rules, bounds.MAX_SHORT_LIST, _decode_rule),
        lifetime_seconds=message.lifetime_seconds,
        lifetime_pointer=remote_key("lifetime_pointer", message.lifetime_pointer),
    )


def _encode_rule(rule: AudienceRule) -> pb.AudienceRule:
    return pb.AudienceRule(
        source=pb.AUDIENCE_SOURCE_UNSPECIFIED if rule.source is None else AUDIENCE_SOURCE.to(rule.source),
        names=rule.names,
        suffix=rule.suffix,
        otherwise=rule.otherwise,
    )


def _decode_rule(message: pb.AudienceRule) -> AudienceRule:
    """Decode a rule. One with an unknown source is not dropped: without it, tokens would get other audiences."""
    return AudienceRule(
        source=AUDIENCE_SOURCE.of(message.source),
        names=identifiers("names", message.names),
        suffix=identifier("suffix", message.suffix),
        otherwise=identifiers("otherwise", message.otherwise),
    )


def _encode_limits(limits: Limits) -> pb.Limits:
    return pb.Limits(
        max_batch_items=limits.max_batch_items,
        max_message_bytes=limits.max_message_bytes,
        max_in_flight=limits.max_in_flight,
        max_deadline=to_duration(limits.max_deadline),
    )


def _decode_limits(message: pb.Limits) -> Limits:
    return Limits(
        max_batch_items=message.max_batch_items,
        max_message_bytes=message.max_message_bytes,
        max_in_flight=message.max_in_flight,
        max_deadline=seconds_of(message.max_deadline),
    )
