"""The codec of plain messages. tools/gen_codec.py writes it from the values and the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from eso_api.values import SecretBytes
from eso_wire import bounds, errors, kinds, values, versions
from eso_wire._generated import provider_pb2 as pb
from eso_wire.fields import (
    AUDIENCE_SOURCE,
    CHANGE_TYPE,
    CONFIG_DELIVERY,
    CREDENTIAL_KIND,
    KIND_ROLE,
    METADATA_POLICY,
    Malformed,
    OPERATION,
    PUSH_PRECONDITION,
    SHAPE,
    decode_struct,
    each,
    from_error,
    identifier,
    identifiers,
    labels,
    moment_of,
    part,
    prose,
    remote_key,
    required,
    revealed,
    seconds_of,
    secret_map,
    to_duration,
    to_error,
    to_struct,
    to_timestamp,
    token_of,
    token_text,
)


def encode_subject(value: errors.Subject) -> pb.ObjectRef:
    return pb.ObjectRef(
        api_version=value.api_version,
        kind=value.kind,
        namespace=value.namespace,
        name=value.name,
        uid=value.uid,
        generation=value.generation,
    )


def decode_subject(message: pb.ObjectRef) -> errors.Subject:
    return errors.Subject(
        api_version=identifier("api_version", message.api_version),
        kind=identifier("kind", message.kind),
        namespace=identifier("namespace", message.namespace),
        name=identifier("name", message.name),
        uid=identifier("uid", message.uid),
        generation=message.generation,
    )


def encode_protocol_version(value: versions.ProtocolVersion) -> pb.ProtocolVersion:
    return pb.ProtocolVersion(major=value.major, minor=value.minor)


def decode_protocol_version(message: pb.ProtocolVersion) -> versions.ProtocolVersion:
    return versions.ProtocolVersion(major=message.major, minor=message.minor)


def encode_kind_id(value: kinds.KindId) -> pb.GroupVersionKind:
    return pb.GroupVersionKind(group=value.group, version=value.version, kind=value.kind)


def decode_kind_id(message: pb.GroupVersionKind) -> kinds.KindId:
    return kinds.KindId(
        group=identifier("group", message.group),
        version=identifier("version", message.version),
        kind=identifier("kind", message.kind),
    )


def encode_hello(value: kinds.Hello) -> pb.HandshakeRequest:
    return pb.HandshakeRequest(
        core_version=value.core_version,
        supported=[encode_protocol_version(each) for each in value.supported],
        features=value.features,
        cluster_id=value.cluster_id,
    )


def decode_hello(message: pb.HandshakeRequest) -> kinds.Hello:
    return kinds.Hello(
        core_version=identifier("core_version", message.core_version),
        supported=each("supported", message.supported, bounds.MAX_SHORT_LIST, decode_protocol_version),
        features=identifiers("features", message.features),
        cluster_id=identifier("cluster_id", message.cluster_id),
    )


def encode_spec_condition(value: kinds.SpecCondition) -> pb.SpecCondition:
    return pb.SpecCondition(pointer=value.pointer, values=value.values)


def decode_spec_condition(message: pb.SpecCondition) -> kinds.SpecCondition:
    return kinds.SpecCondition(
        pointer=remote_key("pointer", message.pointer), values=identifiers("values", message.values)
    )


def encode_caller_dependence(value: kinds.CallerDependence) -> pb.CallerDependence:
    return pb.CallerDependence(pointer=value.pointer, unless=value.unless)


def decode_caller_dependence(message: pb.CallerDependence) -> kinds.CallerDependence:
    return kinds.CallerDependence(
        pointer=remote_key("pointer", message.pointer), unless=identifiers("unless", message.unless)
    )


def encode_audience_rule(value: kinds.AudienceRule) -> pb.AudienceRule:
    return pb.AudienceRule(
        source=pb.AUDIENCE_SOURCE_UNSPECIFIED if value.source is None else AUDIENCE_SOURCE.to(value.source),
        names=value.names,
        suffix=value.suffix,
        otherwise=value.otherwise,
    )


def decode_audience_rule(message: pb.AudienceRule) -> kinds.AudienceRule:
    return kinds.AudienceRule(
        source=AUDIENCE_SOURCE.of(message.source),
        names=identifiers("names", message.names),
        suffix=identifier("suffix", message.suffix),
        otherwise=identifiers("otherwise", message.otherwise),
    )


def encode_credential_path(value: kinds.CredentialPath) -> pb.CredentialPath:
    return pb.CredentialPath(
        pattern=value.pattern,
        kind=CREDENTIAL_KIND.to(value.kind),
        audiences=value.audiences,
        default_key=value.default_key,
        audience_rules=[encode_audience_rule(each) for each in value.audience_rules],
        lifetime_seconds=value.lifetime_seconds,
        lifetime_pointer=value.lifetime_pointer,
    )


def decode_credential_path(message: pb.CredentialPath) -> kinds.CredentialPath | None:
    known = CREDENTIAL_KIND.of(message.kind)
    if known is None:
        return None
    return kinds.CredentialPath(
        pattern=remote_key("pattern", message.pattern),
        kind=known,
        audiences=identifiers("audiences", message.audiences),
        default_key=identifier("default_key", message.default_key),
        audience_rules=each("audience_rules", message.audience_rules, bounds.MAX_SHORT_LIST, decode_audience_rule),
        lifetime_seconds=message.lifetime_seconds,
        lifetime_pointer=remote_key("lifetime_pointer", message.lifetime_pointer),
    )


def encode_kind_info(value: kinds.KindInfo) -> pb.KindInfo:
    return pb.KindInfo(
        gvk=encode_kind_id(value.kind),
        role=KIND_ROLE.to(value.role),
        operations=OPERATION.numbers(value.operations),
        deliveries=CONFIG_DELIVERY.numbers(value.deliveries),
        maintenance=value.maintenance,
        v1_provider_key=value.v1_provider_key,
        credentials=[encode_credential_path(each) for each in value.credentials],
        caller_dependences=[encode_caller_dependence(each) for each in value.caller_dependences],
        metadata_references=[encode_credential_path(each) for each in value.metadata_references],
        v1_when=None if value.v1_when is None else encode_spec_condition(value.v1_when),
    )


def decode_kind_info(message: pb.KindInfo) -> kinds.KindInfo | None:
    required(message, "gvk")
    known = KIND_ROLE.of(message.role)
    if known is None:
        return None
    return kinds.KindInfo(
        kind=part("gvk", message.gvk, decode_kind_id),
        role=known,
        operations=OPERATION.known(message.operations),
        deliveries=CONFIG_DELIVERY.known(message.deliveries),
        maintenance=identifier("maintenance", message.maintenance),
        v1_provider_key=identifier("v1_provider_key", message.v1_provider_key),
        credentials=tuple(
            found
            for found in each("credentials", message.credentials, bounds.MAX_PATHS, decode_credential_path)
            if found is not None
        ),
        caller_dependences=each(
            "caller_dependences", message.caller_dependences, bounds.MAX_SHORT_LIST, decode_caller_dependence
        ),
        metadata_references=tuple(
            found
            for found in each(
                "metadata_references", message.metadata_references, bounds.MAX_PATHS, decode_credential_path
            )
            if found is not None
        ),
        v1_when=part("v1_when", message.v1_when, decode_spec_condition) if message.HasField("v1_when") else None,
    )


def encode_limits(value: kinds.Limits) -> pb.Limits:
    return pb.Limits(
        max_batch_items=value.max_batch_items,
        max_message_bytes=value.max_message_bytes,
        max_in_flight=value.max_in_flight,
        max_deadline=to_duration(value.max_deadline),
    )


def decode_limits(message: pb.Limits) -> kinds.Limits:
    return kinds.Limits(
        max_batch_items=message.max_batch_items,
        max_message_bytes=message.max_message_bytes,
        max_in_flight=message.max_in_flight,
        max_deadline=seconds_of(message.max_deadline),
    )


def encode_handshake(value: kinds.Handshake) -> pb.HandshakeResponse:
    return pb.HandshakeResponse(
        selected=None if value.selected is None else encode_protocol_version(value.selected),
        supported=[encode_protocol_version(each) for each in value.supported],
        provider_name=value.provider_name,
        provider_version=value.provider_version,
        instance_id=value.instance_id,
        kinds=[encode_kind_info(each) for each in value.kinds],
        features=value.features,
        limits=encode_limits(value.limits),
    )


def decode_handshake(message: pb.HandshakeResponse) -> kinds.Handshake:
    return kinds.Handshake(
        selected=part("selected", message.selected, decode_protocol_version) if message.HasField("selected") else None,
        supported=each("supported", message.supported, bounds.MAX_SHORT_LIST, decode_protocol_version),
        provider_name=identifier("provider_name", message.provider_name),
        provider_version=identifier("provider_version", message.provider_version),
        instance_id=identifier("instance_id", message.instance_id),
        kinds=tuple(
            found for found in each("kinds", message.kinds, bounds.MAX_KINDS, decode_kind_info) if found is not None
        ),
        features=identifiers("features", message.features),
        limits=part("limits", message.limits, decode_limits),
    )


def encode_token(value: values.Token) -> pb.ServiceAccountToken:
    return pb.ServiceAccountToken(
        token=token_text(value.token),
        expires_at=to_timestamp(value.expires_at),
        audiences=value.audiences,
        namespace=value.namespace,
        name=value.name,
        uid=value.uid,
        annotations=value.annotations,
    )


def decode_token(message: pb.ServiceAccountToken) -> values.Token:
    return values.Token(
        token=token_of(message.token),
        expires_at=moment_of("expires_at", message.expires_at) if message.HasField("expires_at") else None,
        audiences=identifiers("audiences", message.audiences),
        namespace=identifier("namespace", message.namespace),
        name=identifier("name", message.name),
        uid=identifier("uid", message.uid),
        annotations=labels("annotations", message.annotations, bounds.MAX_ANNOTATIONS),
    )


def encode_credential(value: values.Credential) -> pb.ResolvedValue:
    message = pb.ResolvedValue(json_pointer=value.pointer)
    match value.value:
        case SecretBytes() as one:
            message.secret_value = one.reveal()
        case values.Token() as one:
            message.service_account_token.CopyFrom(encode_token(one))
        case Mapping() as one:
            message.whole_secret.CopyFrom(pb.SecretMap(data=revealed(one)))
        case _ as never:
            assert_never(never)
    return message


def decode_credential(message: pb.ResolvedValue) -> values.Credential:
    return values.Credential(pointer=remote_key("json_pointer", message.json_pointer), value=_credential_value(message))


def _credential_value(message: pb.ResolvedValue) -> SecretBytes | values.Token | values.SecretMap:
    match message.WhichOneof("value"):
        case "secret_value":
            return SecretBytes(message.secret_value)
        case "service_account_token":
            return part("service_account_token", message.service_account_token, decode_token)
        case "whole_secret":
            return secret_map("whole_secret", message.whole_secret.data)
        case None:
            raise Malformed("value", "is not set")
        case _ as never:
            assert_never(never)


def encode_condition_report(value: values.ConditionReport) -> pb.ConditionReport:
    return pb.ConditionReport(type=value.type, status=value.status, reason=value.reason, message=prose(value.message))


def decode_condition_report(message: pb.ConditionReport) -> values.ConditionReport:
    return values.ConditionReport(
        type=prose(message.type, bounds.MAX_NAME_CHARS),
        status=prose(message.status, bounds.MAX_NAME_CHARS),
        reason=prose(message.reason, bounds.MAX_NAME_CHARS),
        message=prose(message.message),
    )


def encode_remote_ref(value: values.RemoteRef) -> pb.RemoteRef:
    return pb.RemoteRef(
        key=value.key,
        version=value.version,
        property=value.property,
        metadata_policy=METADATA_POLICY.to(value.metadata_policy),
    )


def decode_remote_ref(message: pb.RemoteRef) -> values.RemoteRef:
    return values.RemoteRef(
        key=remote_key("key", message.key),
        version=identifier("version", message.version),
        property=remote_key("property", message.property),
        metadata_policy=METADATA_POLICY.of(message.metadata_policy) or values.MetadataPolicy.NONE,
    )


def encode_get_item(value: values.GetItem) -> pb.GetItem:
    return pb.GetItem(
        item_id=value.item_id,
        ref=encode_remote_ref(value.ref),
        shape=SHAPE.to(value.shape),
        if_version_differs=value.if_version_differs,
    )


def decode_get_item(message: pb.GetItem) -> values.GetItem:
    required(message, "ref")
    return values.GetItem(
        item_id=identifier("item_id", message.item_id),
        ref=part("ref", message.ref, decode_remote_ref),
        shape=SHAPE.choice("shape", message.shape),
        if_version_differs=identifier("if_version_differs", message.if_version_differs),
    )


def encode_value_metadata(value: values.ValueMetadata) -> pb.ValueMetadata:
    return pb.ValueMetadata(
        provider_version=value.provider_version,
        updated_at=to_timestamp(value.updated_at),
        expires_at=to_timestamp(value.expires_at),
        suggested_refresh=to_duration(value.suggested_refresh),
        attributes=value.attributes,
    )


def decode_value_metadata(message: pb.ValueMetadata) -> values.ValueMetadata:
    return values.ValueMetadata(
        provider_version=identifier("provider_version", message.provider_version),
        updated_at=moment_of("updated_at", message.updated_at) if message.HasField("updated_at") else None,
        expires_at=moment_of("expires_at", message.expires_at) if message.HasField("expires_at") else None,
        suggested_refresh=seconds_of(message.suggested_refresh),
        attributes=labels("attributes", message.attributes),
    )


def encode_found(value: values.Found) -> pb.FoundSecret:
    return pb.FoundSecret(key=value.key, value=value.value.reveal(), metadata=encode_value_metadata(value.metadata))


def decode_found(message: pb.FoundSecret) -> values.Found:
    return values.Found(
        key=remote_key("key", message.key),
        value=SecretBytes(message.value),
        metadata=part("metadata", message.metadata, decode_value_metadata),
    )


def encode_check_result(value: values.CheckResult) -> pb.CheckResult:
    return pb.CheckResult(
        item_id=value.item_id,
        exists=value.exists,
        provider_version=value.provider_version,
        error=None if value.error is None else to_error(value.error),
    )


def decode_check_result(message: pb.CheckResult) -> values.CheckResult:
    return values.CheckResult(
        item_id=identifier("item_id", message.item_id),
        exists=message.exists,
        provider_version=identifier("provider_version", message.provider_version),
        error=from_error(message.error) if message.HasField("error") else None,
    )


def encode_push_item(value: values.PushItem) -> pb.PushItem:
    message = pb.PushItem(
        item_id=value.item_id,
        remote=encode_remote_ref(value.remote),
        provider_metadata=None if value.provider_metadata is None else to_struct(value.provider_metadata),
        precondition=PUSH_PRECONDITION.to(value.precondition),
        expected_version=value.expected_version,
        owner_token=value.owner_token,
        resolved=[encode_credential(each) for each in value.resolved],
        secret_key=value.secret_key,
    )
    match value.payload:
        case SecretBytes() as one:
            message.value = one.reveal()
        case Mapping() as one:
            message.whole_secret.CopyFrom(pb.SecretMap(data=revealed(one)))
        case _ as never:
            assert_never(never)
    return message


def decode_push_item(message: pb.PushItem) -> values.PushItem:
    required(message, "remote")
    return values.PushItem(
        item_id=identifier("item_id", message.item_id),
        remote=part("remote", message.remote, decode_remote_ref),
        payload=_push_item_payload(message),
        provider_metadata=decode_struct(message.provider_metadata) if message.HasField("provider_metadata") else None,
        precondition=PUSH_PRECONDITION.choice("precondition", message.precondition),
        expected_version=identifier("expected_version", message.expected_version),
        owner_token=identifier("owner_token", message.owner_token),
        resolved=each("resolved", message.resolved, bounds.MAX_CREDENTIALS, decode_credential),
        secret_key=identifier("secret_key", message.secret_key),
    )


def _push_item_payload(message: pb.PushItem) -> SecretBytes | values.SecretMap:
    match message.WhichOneof("payload"):
        case "value":
            return SecretBytes(message.value)
        case "whole_secret":
            return secret_map("whole_secret", message.whole_secret.data)
        case None:
            raise Malformed("payload", "is not set")
        case _ as never:
            assert_never(never)


def encode_source_secret(value: values.SourceSecret) -> pb.SourceSecret:
    return pb.SourceSecret(type=value.type, labels=value.labels, annotations=value.annotations)


def decode_source_secret(message: pb.SourceSecret) -> values.SourceSecret:
    return values.SourceSecret(
        type=identifier("type", message.type),
        labels=labels("labels", message.labels, bounds.MAX_MAP_ENTRIES),
        annotations=labels("annotations", message.annotations, bounds.MAX_MAP_ENTRIES),
    )


def encode_delete_item(value: values.DeleteItem) -> pb.DeleteItem:
    return pb.DeleteItem(
        item_id=value.item_id,
        remote=encode_remote_ref(value.remote),
        owner_token=value.owner_token,
        provider_metadata=None if value.provider_metadata is None else to_struct(value.provider_metadata),
    )


def decode_delete_item(message: pb.DeleteItem) -> values.DeleteItem:
    required(message, "remote")
    return values.DeleteItem(
        item_id=identifier("item_id", message.item_id),
        remote=part("remote", message.remote, decode_remote_ref),
        owner_token=identifier("owner_token", message.owner_token),
        provider_metadata=decode_struct(message.provider_metadata) if message.HasField("provider_metadata") else None,
    )


def encode_delete_result(value: values.DeleteResult) -> pb.DeleteResult:
    return pb.DeleteResult(
        item_id=value.item_id, existed=value.existed, error=None if value.error is None else to_error(value.error)
    )


def decode_delete_result(message: pb.DeleteResult) -> values.DeleteResult:
    return values.DeleteResult(
        item_id=identifier("item_id", message.item_id),
        existed=message.existed,
        error=from_error(message.error) if message.HasField("error") else None,
    )


def encode_watch_item(value: values.WatchItem) -> pb.WatchItem:
    return pb.WatchItem(
        watch_id=value.watch_id,
        ref=None if value.ref is None else encode_remote_ref(value.ref),
        name_regexp=value.name_regexp,
        tags=value.tags,
        known_version=value.known_version,
    )


def decode_watch_item(message: pb.WatchItem) -> values.WatchItem:
    return values.WatchItem(
        watch_id=identifier("watch_id", message.watch_id),
        ref=part("ref", message.ref, decode_remote_ref) if message.HasField("ref") else None,
        name_regexp=remote_key("name_regexp", message.name_regexp),
        tags=labels("tags", message.tags),
        known_version=identifier("known_version", message.known_version),
    )


def encode_subscribe_update(value: values.SubscribeUpdate) -> pb.SubscribeUpdate:
    return pb.SubscribeUpdate(add=[encode_watch_item(each) for each in value.add], remove=value.remove)


def decode_subscribe_update(message: pb.SubscribeUpdate) -> values.SubscribeUpdate:
    return values.SubscribeUpdate(
        add=each("add", message.add, bounds.MAX_WATCHES, decode_watch_item),
        remove=identifiers("remove", message.remove, bounds.MAX_WATCHES),
    )


def encode_change_event(value: values.ChangeEvent) -> pb.ChangeEvent:
    return pb.ChangeEvent(
        type=CHANGE_TYPE.to(value.type),
        watch_ids=value.watch_ids,
        provider_version=value.provider_version,
        observed_at=to_timestamp(value.observed_at),
        condition=None if value.condition is None else encode_condition_report(value.condition),
    )


def decode_change_event(message: pb.ChangeEvent) -> values.ChangeEvent:
    return values.ChangeEvent(
        type=CHANGE_TYPE.choice("type", message.type),
        watch_ids=identifiers("watch_ids", message.watch_ids, bounds.MAX_WATCHES),
        provider_version=identifier("provider_version", message.provider_version),
        observed_at=moment_of("observed_at", message.observed_at) if message.HasField("observed_at") else None,
        condition=part("condition", message.condition, decode_condition_report)
        if message.HasField("condition")
        else None,
    )
