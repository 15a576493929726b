"""One or more samples of every message of the contract, with the functions that encode and decode it.

The golden fixtures are recorded from these samples; tests decode the fixtures and compare. So a sample never changes;
new fields get a new sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_wire import codec, values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError, RetryClass, Subject
from eso_wire.versions import ProtocolVersion

_FIRST_KINDS = (
    values.CredentialKind.SECRET_KEY,
    values.CredentialKind.SERVICE_ACCOUNT,
    values.CredentialKind.CA_PROVIDER,
    values.CredentialKind.WHOLE_SECRET,
)
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Sample:
    """A value and its functions: `decode(message_type.FromString(encode(value)))` returns the value."""

    name: str
    message_type: type[Message]
    value: Any
    encode: Callable[[Any], Message]
    decode: Callable[[Any], Any]


def samples(secret: bytes = b"s3cret") -> list[Sample]:
    """Return all samples, with that value in every secret field."""
    return [
        *_negotiation(),
        *_reading(secret),
        *_writing(secret),
        *_validation(secret),
        *_subscription(secret),
        *_generation(secret),
        Sample("error", pb.ErrorDetail, _error(), codec.to_error, codec.from_error),
    ]


def context(secret: bytes = b"s3cret") -> values.Context:
    """Return the envelope of a call with inline configuration and one credential of each kind."""
    store = Subject("external-secrets.io/v1", "ClusterSecretStore", "", "shared", "uid-store", 7)
    caller = Subject("external-secrets.io/v1", "ExternalSecret", "team", "db", "uid-caller", 3)
    credentials = (
        values.Credential("/auth/tokenSecretRef", SecretBytes(secret)),
        values.Credential("/auth/serviceAccountRef", values.Token(SecretBytes(secret), WHEN, ("sts.example",))),
        values.Credential("/auth/secretRef", {"user": SecretBytes(secret), "empty": SecretBytes(b"")}),
    )
    kind = values.KindId("provider.secretstore.external-secrets.io", "v2alpha1", "Fake")
    return values.Context(
        request_id="request-1",
        protocol=ProtocolVersion(2, 1),
        caller=caller,
        store=store,
        config=values.Config(store, kind, SecretBytes(b'{"data": []}'), credentials),
        auth_namespace="team",
        auth_namespace_pinned=True,
        max_backend_retries=3,
        backend_retry_interval=1.5,
        cluster_id="cluster-1",
    )


def _call(
    name: str, message_type: type[Message], value: tuple[Any, Any], *, encode: Any, decode: Callable[[Any], Any]
) -> Sample:
    """Make the sample of a request: its value is the pair of envelope and content."""
    return Sample(name, message_type, value, lambda pair: encode(*pair), decode)


def _error() -> ProviderError:
    return ProviderError(
        ErrorReason.RATE_LIMITED,
        "the backend wants fewer calls",
        retry=RetryClass.BACKOFF,
        retry_after=2.25,
        backend_code="ThrottlingException",
        subject=Subject("v1", "Secret", "team", "token"),
    )


def _metadata() -> values.ValueMetadata:
    return values.ValueMetadata("v7", WHEN, WHEN, 60.0, {"region": "eu"})


def _negotiation() -> list[Sample]:
    hello = values.Hello("0.1.0", (ProtocolVersion(2, 0), ProtocolVersion(2, 1)), ("feature",), "cluster-1")
    kind = values.KindInfo(
        kind=values.KindId("example.io", "v1", "Notes"),
        role=values.KindRole.STORE,
        operations=frozenset(values.Operation) - {values.Operation.PUSH_GROUPED},
        deliveries=frozenset(values.ConfigDelivery),
        maintenance="maintained",
        v1_provider_key="notes",
        credentials=tuple(values.CredentialPath(f"/a/*/{kind}", kind, ("aud",)) for kind in _FIRST_KINDS),
    )
    handshake = values.Handshake(
        selected=ProtocolVersion(2, 1),
        supported=(ProtocolVersion(2, 0), ProtocolVersion(2, 1)),
        provider_name="notes",
        provider_version="1.2.3",
        instance_id="instance-1",
        kinds=(kind,),
        features=("feature",),
        limits=values.Limits(100, 1024, 8, 30.0),
    )
    newer = replace(handshake, selected=ProtocolVersion(2, 2), kinds=(_newer_kind(),))
    refusal = values.Handshake(None, (ProtocolVersion(3, 0),), "notes", "9.0.0", "instance-2", ())
    return [
        Sample("hello", pb.HandshakeRequest, hello, codec.to_hello, codec.from_hello),
        Sample("handshake", pb.HandshakeResponse, handshake, codec.to_handshake, codec.from_handshake),
        Sample("handshake-2.2", pb.HandshakeResponse, newer, codec.to_handshake, codec.from_handshake),
        Sample("handshake-refusal", pb.HandshakeResponse, refusal, codec.to_handshake, codec.from_handshake),
    ]


def _newer_kind() -> values.KindInfo:
    """Return a kind with the fields that minor 2 adds."""
    rules = tuple(values.AudienceRule(source, ("one", "two"), ".suffix", ("else",)) for source in values.AudienceSource)
    kinds = values.CredentialKind
    return values.KindInfo(
        kind=values.KindId("example.io", "v1", "Notes"),
        role=values.KindRole.STORE,
        operations=frozenset({values.Operation.PUSH_GROUPED}),
        v1_provider_key="notes",
        credentials=(
            values.CredentialPath("/key", kinds.SECRET_KEY, default_key="token"),
            values.CredentialPath("/map", kinds.CONFIG_MAP_KEY),
            values.CredentialPath(
                "/account",
                kinds.SERVICE_ACCOUNT,
                audience_rules=rules,
                lifetime_seconds=600,
                lifetime_pointer="1/expirationSeconds",
            ),
        ),
        caller_dependences=(values.CallerDependence("/tags", ("", "None")), values.CallerDependence()),
        metadata_references=(values.CredentialPath("/spec/policy", kinds.OBJECT_KEY),),
        v1_when=values.SpecCondition("/service", ("One", "")),
    )


def _reading(secret: bytes) -> list[Sample]:
    ref = values.RemoteRef("db/password", "v7", "user.name", values.MetadataPolicy.FETCH)
    items = (
        values.GetItem("1", ref, values.Shape.SINGLE),
        values.GetItem("2", values.RemoteRef("db"), values.Shape.MAP),
        values.GetItem("3", values.RemoteRef("known"), if_version_differs="v6"),
    )
    results = (
        values.GetResult("1", SecretBytes(secret), _metadata()),
        values.GetResult("2", {"user": SecretBytes(secret)}),
        values.GetResult("3", values.NotModified()),
        values.GetResult("4", ProviderError(ErrorReason.SECRET_NOT_FOUND, "no such key")),
    )
    query = values.FindQuery("team/", "^db-.*", {"env": "prod"}, 50)
    page = values.FindPage((values.Found("team/db", SecretBytes(secret), _metadata()),), last=True)
    missing = values.FindPage((), last=True, missing='folder "team" does not exist')
    checks = (values.CheckResult("1", exists=True, provider_version="v7"), values.CheckResult("2", error=_error()))
    request = (context(secret), items)
    account = values.Token(SecretBytes(secret), WHEN, ("aud",), "team", "robot", "uid-robot", {"role": "reader"})
    older = context(secret)
    newer = replace(older, config=replace(older.config, credentials=(values.Credential("/account", account),)))
    return [
        Sample("context-2.2", pb.RequestContext, newer, codec.to_context, codec.from_context),
        Sample("context", pb.RequestContext, context(secret), codec.to_context, codec.from_context),
        Sample("close", pb.CloseSessionsRequest, context().store, codec.to_close_request, codec.from_close_request),
        _call("get", pb.GetSecretsRequest, request, encode=codec.to_get_request, decode=codec.from_get_request),
        Sample("got", pb.GetSecretsResponse, results, codec.to_get_response, codec.from_get_response),
        _call(
            "find",
            pb.FindSecretsRequest,
            (context(secret), query),
            encode=codec.to_find_request,
            decode=codec.from_find_request,
        ),
        Sample("found", pb.FindSecretsResponse, page, codec.to_find_page, codec.from_find_page),
        Sample("missing", pb.FindSecretsResponse, missing, codec.to_find_page, codec.from_find_page),
        _call("check", pb.CheckSecretsRequest, request, encode=codec.to_check_request, decode=codec.from_check_request),
        Sample("checked", pb.CheckSecretsResponse, checks, codec.to_check_response, codec.from_check_response),
    ]


def _writing(secret: bytes) -> list[Sample]:
    ref = values.RemoteRef("db/password", property="user")
    metadata = {"text": "a", "whole": 3, "part": 0.5, "yes": True, "none": None, "list": [1, {"deep": ""}]}
    push = values.PushBatch(
        items=(
            values.PushItem("1", ref, SecretBytes(secret), metadata, values.PushPrecondition.IF_VERSION, "v6", "owner"),
            values.PushItem("2", ref, {"user": SecretBytes(secret)}, precondition=values.PushPrecondition.IF_ABSENT),
        ),
        source=values.SourceSecret("Opaque", {"app": "db"}, {"note": "x"}),
        idempotency_key="push-1",
    )
    resolved = (values.Credential("/spec/policy", SecretBytes(secret)),)
    item = values.PushItem("1", ref, SecretBytes(secret), metadata, resolved=resolved)
    newer = values.PushBatch((replace(item, secret_key="tls.key"),))  # noqa: S106 - a key's name
    pushed = (
        *(values.PushResult(outcome.value, outcome, "v7") for outcome in values.PushOutcome),
        values.PushResult("failed", _error()),
    )
    delete = values.DeleteBatch((values.DeleteItem("1", ref, "owner"),), "delete-1")
    deleted = (values.DeleteResult("1", existed=True), values.DeleteResult("2", error=_error()))
    return [
        _call(
            "push",
            pb.PushSecretsRequest,
            (context(secret), push),
            encode=codec.to_push_request,
            decode=codec.from_push_request,
        ),
        _call(
            "push-2.2",
            pb.PushSecretsRequest,
            (context(secret), newer),
            encode=codec.to_push_request,
            decode=codec.from_push_request,
        ),
        Sample("pushed", pb.PushSecretsResponse, pushed, codec.to_push_response, codec.from_push_response),
        _call(
            "delete",
            pb.DeleteSecretsRequest,
            (context(secret), delete),
            encode=codec.to_delete_request,
            decode=codec.from_delete_request,
        ),
        Sample("deleted", pb.DeleteSecretsResponse, deleted, codec.to_delete_response, codec.from_delete_response),
    ]


def _validation(secret: bytes) -> list[Sample]:
    validation = values.Validation(
        state=values.ValidationState.INVALID,
        warnings=("the token expires soon",),
        error=ProviderError(ErrorReason.CREDENTIALS_REJECTED, "the token is not accepted"),
        operations=frozenset({values.Operation.GET}),
        conditions=(values.ConditionReport("Connected", "False", "Rejected", "no"),),
        dependencies=(Subject("v1", "Secret", "team", "token", "uid", 1),),
    )
    powerless = values.Validation(values.ValidationState.READY, operations=frozenset())
    return [
        _call(
            "validate",
            pb.ValidateRequest,
            (context(secret), values.ValidationMode.STATIC),
            encode=codec.to_validate_request,
            decode=codec.from_validate_request,
        ),
        Sample("validated", pb.ValidateResponse, validation, codec.to_validate_response, codec.from_validate_response),
        Sample(
            "validated-powerless",
            pb.ValidateResponse,
            powerless,
            codec.to_validate_response,
            codec.from_validate_response,
        ),
    ]


def _subscription(secret: bytes) -> list[Sample]:
    watch = values.WatchItem("w1", values.RemoteRef("db"), known_version="v6")
    pattern = values.WatchItem("w2", name_regexp="^db", tags={"env": "prod"})
    request: dict[str, values.SubscribeMessage] = {
        "subscribe-open": values.SubscribeOpen(context(secret), (watch, pattern), "resume-1"),
        "subscribe-update": values.SubscribeUpdate((watch,), ("w2",)),
        "subscribe-ack": values.SubscribeAck("resume-2"),
    }
    condition = values.ConditionReport("Degraded", "True", "Slow", "behind")
    response: dict[str, values.ChangeEvent | values.Heartbeat] = {
        f"change-{change.value.lower()}": values.ChangeEvent(change, ("w1",), "v8", WHEN, condition, "resume-3")
        for change in values.ChangeType
    }
    response["heartbeat"] = values.Heartbeat(WHEN, "resume-4")
    return [
        *(
            Sample(name, pb.SubscribeRequest, value, codec.to_subscribe_request, codec.from_subscribe_request)
            for name, value in request.items()
        ),
        *(
            Sample(name, pb.SubscribeResponse, value, codec.to_subscribe_response, codec.from_subscribe_response)
            for name, value in response.items()
        ),
    ]


def _generation(secret: bytes) -> list[Sample]:
    state = SecretBytes(b'{"id": "' + secret + b'"}')
    generated = values.Generated({"password": SecretBytes(secret)}, state, _metadata())
    return [
        _call(
            "generate",
            pb.GenerateRequest,
            (context(secret), values.GenerateRequest("generate-1", state)),
            encode=codec.to_generate_request,
            decode=codec.from_generate_request,
        ),
        Sample("generated", pb.GenerateResponse, generated, codec.to_generate_response, codec.from_generate_response),
        _call(
            "cleanup",
            pb.CleanupRequest,
            (context(secret), values.CleanupRequest(state, "cleanup-1")),
            encode=codec.to_cleanup_request,
            decode=codec.from_cleanup_request,
        ),
        Sample(
            "cleaned",
            pb.CleanupResponse,
            values.CleanupOutcome.ALREADY_GONE,
            codec.to_cleanup_response,
            codec.from_cleanup_response,
        ),
    ]
