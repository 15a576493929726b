"""Hostile messages: decoding returns a value or a ProviderError, within limits, and never repeats content (R157)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from eso_api.values import SecretBytes
from eso_testkit.wire.samples import Sample, context, samples
from eso_wire import bounds, codec, values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError

CANARY = "CANARY-d41d8cd9"
SAMPLES = {sample.name: sample for sample in samples(CANARY.encode())}
DECODERS: dict[type[Message], Callable[[Any], Any]] = {
    sample.message_type: sample.decode for sample in SAMPLES.values()
}

hostile_text = st.sampled_from([CANARY, "", "\x00\n\x1b[31m", CANARY * 800, CANARY * 8000])
hostile_bytes = hostile_text.map(str.encode)
INTEGERS = {
    FieldDescriptor.TYPE_INT64: st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    FieldDescriptor.TYPE_INT32: st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]),
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2**32 - 1]),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 2**64 - 1]),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([-1, 0, 1, 2, 3, 99, 2**31 - 1]),
}


def harmless_or_refused(decode: Callable[[Any], Any], message: Message) -> None:
    """Check the whole contract of decoding."""
    refusal: BaseException | None = None
    try:
        decode(message)
    except ProviderError as error:
        refusal = error
    while refusal is not None:
        said = f"{refusal} {refusal!r} {vars(refusal)}"
        assert CANARY not in said
        assert len(said) <= 4 * bounds.MAX_MESSAGE_CHARS
        refusal = refusal.__cause__ or refusal.__context__


@pytest.mark.parametrize("message_type", DECODERS, ids=lambda message_type: message_type.__name__)
def test_any_message_is_a_value_or_an_error(message_type: type[Message]) -> None:
    @settings(max_examples=50, deadline=None)
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        message = message_type()
        fill(message, data, depth=0)
        harmless_or_refused(DECODERS[message_type], message)

    holds()


def fill(message: Message, data: st.DataObject, depth: int) -> None:
    """Set some fields to what a hostile peer would choose."""
    for field in message.DESCRIPTOR.fields:
        times = data.draw(st.integers(0, 2 if field.is_repeated else 1))
        if not times or (depth > 4 and field.message_type is not None):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fill_map(getattr(message, field.name), field, data, depth)
        elif field.message_type is not None:
            for _ in range(times):
                inner = getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
                inner.SetInParent()
                fill(inner, data, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend([data.draw(scalar(field)) for _ in range(times)])
        else:
            setattr(message, field.name, data.draw(scalar(field)))


def fill_map(entries: Any, field: Any, data: st.DataObject, depth: int) -> None:
    content = field.message_type.fields_by_name["value"]
    key = data.draw(hostile_text)
    if content.message_type is None:
        entries[key] = data.draw(scalar(content))
    else:
        fill(entries[key], data, depth + 1)


def scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return hostile_text
    if field.type == FieldDescriptor.TYPE_BYTES:
        return hostile_bytes
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats()
    return INTEGERS[field.type]


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_bytes_are_a_value_or_an_error(name: str) -> None:
    sample = SAMPLES[name]
    raw = sample.encode(sample.value).SerializeToString()

    @settings(max_examples=50, deadline=None)
    @given(st.integers(0, len(raw)), st.integers(0, len(raw)), st.binary(max_size=4))
    def holds(start: int, end: int, replacement: bytes) -> None:
        damaged = raw[:start] + replacement + raw[max(start, end) :]
        try:
            message = sample.message_type.FromString(damaged)
        except DecodeError:
            return
        harmless_or_refused(sample.decode, message)

    holds()


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(DECODERS)))
def test_arbitrary_bytes_are_a_value_or_an_error(raw: bytes, message_type: type[Message]) -> None:
    try:
        message = message_type.FromString(raw)
    except DecodeError:
        return
    harmless_or_refused(DECODERS[message_type], message)


# --- bounds ----------------------------------------------------------------------------------------------------------


def a_get(*items: pb.GetItem) -> pb.GetSecretsRequest:
    return pb.GetSecretsRequest(context=codec.to_context(context()), items=items)


def an_item(item_id: str = "1", key: str = "k") -> pb.GetItem:
    return pb.GetItem(item_id=item_id, ref=pb.RemoteRef(key=key), shape=pb.VALUE_SHAPE_SINGLE)


def a_push(metadata: Any) -> pb.PushSecretsRequest:
    item = values.PushItem("1", values.RemoteRef("k"), SecretBytes(b""), metadata)
    return codec.to_push_request(context(), values.PushBatch((item,)))


def nested(depth: int) -> dict[str, Any]:
    return {} if depth == 0 else {"a": nested(depth - 1)}


@pytest.mark.parametrize(
    ("message", "decode", "field"),
    [
        pytest.param(
            a_get(*(an_item(str(n)) for n in range(501))), codec.from_get_request, "items has 501", id="too many items"
        ),
        pytest.param(
            a_get(an_item("1"), an_item("1")), codec.from_get_request, r"items\[1\] has the id", id="an id twice"
        ),
        pytest.param(a_get(an_item(key="k" * 4097)), codec.from_get_request, r"items\[0\].ref.key", id="a long key"),
        pytest.param(a_get(an_item("i" * 1025)), codec.from_get_request, r"items\[0\].item_id", id="a long id"),
        pytest.param(a_get(pb.GetItem(item_id="1")), codec.from_get_request, r"items\[0\].ref is not set", id="no ref"),
        pytest.param(pb.GetSecretsRequest(), codec.from_get_request, "context is not set", id="no envelope"),
        pytest.param(
            pb.ValidateRequest(context=pb.RequestContext()),
            codec.from_validate_request,
            r"context\.protocol is not set",
            id="an empty envelope",
        ),
        pytest.param(
            a_push(nested(33)), codec.from_push_request, r"items\[0\]\.provider_metadata is nested", id="deep metadata"
        ),
        pytest.param(
            a_push({"a": [[n] for n in range(10_001)]}),
            codec.from_push_request,
            r"items\[0\]\.provider_metadata has more than",
            id="large metadata",
        ),
        pytest.param(
            pb.GenerateRequest(context=codec.to_context(context()), previous_state_json=b" " * (1024 * 1024 + 1)),
            codec.from_generate_request,
            "previous_state_json has",
            id="a large state",
        ),
        pytest.param(pb.SubscribeRequest(), codec.from_subscribe_request, "message is not set", id="an empty request"),
    ],
)
def test_a_request_beyond_the_contract_is_refused_by_name(
    message: Message, decode: Callable[[Any], Any], field: str
) -> None:
    with pytest.raises(ProviderError, match=field) as refused:
        decode(message)

    assert refused.value.reason is ErrorReason.INVALID_REQUEST


def many_keys(count: int) -> dict[str, bytes]:
    return {str(n): b"" for n in range(count)}


@pytest.mark.parametrize(
    ("message", "decode", "field"),
    [
        pytest.param(
            pb.GetSecretsResponse(results=[pb.GetResult(item_id=str(n)) for n in range(501)]),
            codec.from_get_response,
            "results has 501",
            id="too many results",
        ),
        pytest.param(
            pb.FindSecretsResponse(found=[pb.FoundSecret()] * 1001),
            codec.from_find_page,
            "found has 1001",
            id="too large a page",
        ),
        pytest.param(
            pb.HandshakeResponse(kinds=[pb.KindInfo()] * 201), codec.from_handshake, "kinds has 201", id="many kinds"
        ),
        pytest.param(
            pb.GenerateResponse(data=many_keys(10_001)), codec.from_generate_response, "data has 10001", id="many keys"
        ),
        *(
            pytest.param(
                pb.GenerateResponse(state_json=state), codec.from_generate_response, "state_json is not JSON", id=id_
            )
            for state, id_ in [
                (b"token-7", "a state that is no JSON"),
                (b"\xff", "a state that is no text"),
                (b'{"ttl": NaN}', "a state with a number that is none"),
                (b"[" * 100_000, "a state without an end"),
            ]
        ),
        pytest.param(pb.ValidateResponse(), codec.from_validate_response, "state is not set", id="no state"),
        pytest.param(
            pb.SubscribeResponse(), codec.from_subscribe_response, "message is not set", id="an empty response"
        ),
    ],
)
def test_a_response_beyond_the_contract_is_the_providers_fault(
    message: Message, decode: Callable[[Any], Any], field: str
) -> None:
    with pytest.raises(ProviderError, match=field) as refused:
        decode(message)

    assert refused.value.reason is ErrorReason.INTERNAL


def test_one_result_beyond_the_contract_fails_alone() -> None:
    fat = pb.GetResult(item_id="1", map=pb.SecretMap(data=many_keys(10_001)))
    fine = pb.GetResult(item_id="2", value=b"x")

    first, second = codec.from_get_response(pb.GetSecretsResponse(results=[fat, fine]))

    assert isinstance(first.outcome, ProviderError)
    assert second.outcome == SecretBytes(b"x")


def test_text_for_people_is_shortened_and_cannot_forge_a_line() -> None:
    detail = pb.ErrorDetail(message="a\x1b[31m\rb" + "x" * 5000, backend_code="c" * 5000)

    error = codec.from_error(detail)

    assert error.message.startswith("a [31m b")
    assert len(error.message) == bounds.MAX_MESSAGE_CHARS
    assert len(error.backend_code) == bounds.MAX_NAME_CHARS


def test_warnings_and_conditions_are_cut_off() -> None:
    message = pb.ValidateResponse(
        state=pb.VALIDATION_STATE_READY, warnings=["w"] * 5000, conditions=[pb.ConditionReport()] * 5000
    )

    validation = codec.from_validate_response(message)

    assert (len(validation.warnings), len(validation.conditions)) == (100, 100)


# --- sending ---------------------------------------------------------------------------------------------------------


def test_a_token_that_is_no_text_is_refused_without_showing_it() -> None:
    token = values.Token(SecretBytes(CANARY.encode() + b"\xff"))
    config = values.Config(values.ObjectRef(), values.KindId("g", "v", "k"), SecretBytes(b"{}"))
    bad = values.Config(config.ref, config.kind, config.spec_json, (values.Credential("/a", token),))

    with pytest.raises(ProviderError) as refused:
        codec.to_context(values.Context("r", context().protocol, values.ObjectRef(), values.ObjectRef(), bad))

    assert CANARY not in str(refused.value)
    assert refused.value.__context__ is None


def test_credentials_without_the_configuration_that_refers_to_them_are_a_mistake() -> None:
    config = values.Config(
        values.ObjectRef(), values.KindId("g", "v", "k"), None, (values.Credential("/a", SecretBytes(b"x")),)
    )

    with pytest.raises(ValueError, match="only with the configuration"):
        codec.to_context(values.Context("r", context().protocol, values.ObjectRef(), values.ObjectRef(), config))


def test_a_map_with_a_key_that_is_no_text_fails_its_item_alone() -> None:
    """JSON of a backend may contain half a surrogate pair."""
    sent = (values.GetResult("1", {"\ud800": SecretBytes(b"x")}), values.GetResult("2", {"é": SecretBytes(b"x")}))

    first, second = codec.from_get_response(codec.to_get_response(sent))

    assert isinstance(first.outcome, ProviderError)
    assert first.outcome.reason is ErrorReason.BACKEND_ERROR
    assert second == sent[1]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"n": 2**60}, id="digits would be lost"),
        pytest.param({"n": 10**400}, id="no float is that large"),
        pytest.param({"n": float("nan")}, id="not a number"),
        pytest.param({"n": b"bytes"}, id="bytes"),
        pytest.param({"n": [object()]}, id="something else"),
    ],
)
def test_metadata_that_is_no_json_is_refused(metadata: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="cannot be sent") as refused:
        a_push(metadata)

    assert refused.value.reason is ErrorReason.INVALID_REQUEST


# --- printing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=lambda sample: sample.name)
def test_no_value_prints_a_secret(sample: Sample) -> None:
    """Messages do print their secrets, so both ends work with values."""
    decoded = sample.decode(sample.encode(sample.value))

    assert CANARY not in f"{decoded!r} {decoded}"
    assert CANARY not in f"{sample.value!r} {sample!r}"


@pytest.mark.parametrize("name", ["get", "got", "found", "push", "generate", "generated", "cleanup", "subscribe-open"])
def test_the_samples_do_carry_the_secret(name: str) -> None:
    sample = SAMPLES[name]

    assert CANARY.encode() in sample.encode(sample.value).SerializeToString()
