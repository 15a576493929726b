"""Peers one minor apart tolerate additions of the newer and gaps of the older peer (R140, R141, R159)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from eso_api.values import SecretBytes
from eso_testkit.wire.samples import Sample, context, samples
from eso_wire import codec
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError, RetryClass
from eso_wire.values import KindRole, NotModified, Operation, Validation, ValidationState
from eso_wire.versions import ProtocolVersion, select, spelled

# Fields unknown to this version: number 15000 as a number, 15001 as bytes.
NEWER_FIELDS = bytes([0xC0, 0xA9, 0x07, 0x2A]) + bytes([0xCA, 0xA9, 0x07, 0x03]) + b"new"
UNKNOWN = 99


def every_part(message: Message) -> Iterator[Message]:
    """Yield the message and all messages inside it."""
    yield message
    for field, content in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in content if field.is_repeated else (content,):
            yield from every_part(part)


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_fields_of_a_newer_minor_are_ignored_at_every_depth(sample: Sample) -> None:
    message = sample.encode(sample.value)
    parts = [part for part in every_part(message) if part.DESCRIPTOR.file is pb.DESCRIPTOR]

    for part in parts:
        part.MergeFromString(NEWER_FIELDS)
    received = sample.message_type.FromString(message.SerializeToString())

    assert len(received.SerializeToString()) >= len(NEWER_FIELDS) * len(parts)
    assert sample.decode(received) == sample.value


def test_a_newer_provider_may_offer_operations_roles_and_credentials_we_do_not_know() -> None:
    message = pb.HandshakeResponse(
        kinds=[
            pb.KindInfo(
                gvk=pb.GroupVersionKind(kind="Known"),
                role=pb.KIND_ROLE_STORE,
                operations=[pb.OPERATION_GET, UNKNOWN],  # type: ignore[list-item]  # a newer minor's number
                deliveries=[pb.CONFIG_DELIVERY_INLINE, UNKNOWN],  # type: ignore[list-item]  # same
                credentials=[pb.CredentialPath(pattern="/new", kind=UNKNOWN)],  # type: ignore[arg-type]  # same
            ),
            pb.KindInfo(gvk=pb.GroupVersionKind(kind="Rotator"), role=UNKNOWN),  # type: ignore[arg-type]  # same
        ]
    )

    handshake = codec.from_handshake(message)

    (kind,) = handshake.kinds
    assert (kind.kind.kind, kind.role) == ("Known", KindRole.STORE)
    assert kind.operations == {Operation.GET}
    assert kind.credentials == ()


def test_a_newer_reason_reads_as_unspecified_and_is_retried() -> None:
    detail = pb.ErrorDetail(reason=UNKNOWN, message="quota of the day", retry=UNKNOWN)  # type: ignore[arg-type]  # newer

    error = codec.from_error(detail)

    assert (error.reason, error.message) == (ErrorReason.UNSPECIFIED, "quota of the day")
    assert error.retry is RetryClass.BACKOFF


def test_an_item_with_an_outcome_we_do_not_know_fails_alone() -> None:
    newer = pb.GetResult(item_id="1")
    newer.MergeFromString(NEWER_FIELDS)
    known = pb.GetResult(item_id="2", not_modified=pb.NotModified())

    first, second = codec.from_get_response(pb.GetSecretsResponse(results=[newer, known]))

    assert isinstance(first.outcome, ProviderError)
    assert first.outcome.reason is ErrorReason.INTERNAL
    assert "outcome is not set" in first.outcome.message
    assert second.outcome == NotModified()


def test_a_push_outcome_we_do_not_know_fails_its_item_alone() -> None:
    newer = pb.PushResult(item_id="1", outcome=UNKNOWN)  # type: ignore[arg-type]  # a newer minor's number
    known = pb.PushResult(item_id="2", outcome=pb.PUSH_OUTCOME_CREATED)

    first, second = codec.from_push_response(pb.PushSecretsResponse(results=[newer, known]))

    assert isinstance(first.outcome, ProviderError)
    assert second.outcome == "CREATED"


def test_a_validation_narrowed_to_operations_we_do_not_know_allows_nothing() -> None:
    """It must not mean "all", which an empty list means."""
    message = pb.ValidateResponse(state=pb.VALIDATION_STATE_READY, operations=[UNKNOWN])  # type: ignore[list-item]  # newer

    assert codec.from_validate_response(message) == Validation(ValidationState.READY, operations=frozenset())


@pytest.mark.parametrize("number", [0, UNKNOWN], ids=["unspecified", "unknown"])
def test_a_required_choice_that_we_cannot_read_is_refused_by_name(number: int) -> None:
    sample = next(sample for sample in samples() if sample.name == "get")
    message = sample.encode(sample.value)
    assert isinstance(message, pb.GetSecretsRequest)
    message.items[1].shape = number  # type: ignore[assignment]  # what a newer or a sloppy core might send

    with pytest.raises(ProviderError, match=r"items\[1\]\.shape") as refused:
        codec.from_get_request(message)

    assert refused.value.reason is ErrorReason.INVALID_REQUEST
    assert refused.value.retry is RetryClass.NEVER


def test_an_older_core_that_knows_no_conditional_reads_is_understood() -> None:
    message = pb.GetSecretsRequest(
        context=codec.to_context(context()),
        items=[pb.GetItem(item_id="1", ref=pb.RemoteRef(key="db"), shape=pb.VALUE_SHAPE_SINGLE)],
    )

    _, (item,) = codec.from_get_request(message)

    assert item.if_version_differs == ""


def test_an_older_provider_that_says_little_is_understood() -> None:
    message = pb.GetSecretsResponse(results=[pb.GetResult(item_id="1", value=b"x")])

    (result,) = codec.from_get_response(message)

    assert result.outcome == SecretBytes(b"x")
    assert result.metadata.expires_at is None


V20, V21, V22, V30 = ProtocolVersion(2, 0), ProtocolVersion(2, 1), ProtocolVersion(2, 2), ProtocolVersion(3, 0)


@pytest.mark.parametrize(
    ("core", "provider", "selected"),
    [
        pytest.param((V20, V21), (V20, V21), V21, id="equal: the highest"),
        pytest.param((V20, V21), (V20,), V20, id="the provider is one minor older"),
        pytest.param((V20, V21), (V21, V22), V21, id="the provider is one minor newer"),
        pytest.param((V20, V21), (V22,), None, id="a gap between the two"),
        pytest.param((V20, V21), (V21, V30), V21, id="a provider that serves the next major as well"),
        pytest.param((V20, V21), (V30,), None, id="another major"),
        pytest.param((V20, V21), (), None, id="a provider that says nothing"),
    ],
)
def test_the_highest_common_version_is_selected(
    core: tuple[ProtocolVersion, ...], provider: tuple[ProtocolVersion, ...], selected: ProtocolVersion | None
) -> None:
    assert select(core, provider) == selected
    assert select(provider, core) == selected


def test_versions_are_spelled_in_order() -> None:
    assert spelled((V21, V20)) == "2.0, 2.1"
    assert spelled(()) == "none"
