"""Every value is decoded as it was encoded, whatever it contains (R120)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from eso_api.values import SecretBytes
from eso_wire import codec, values
from eso_wire._generated import provider_pb2 as pb
from eso_wire.errors import ErrorReason, ProviderError, RetryClass, Subject
from eso_wire.versions import ProtocolVersion

names = st.text(max_size=12)
sentences = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=20)
numbers = st.integers(0, 2**32 - 1)
seconds = st.integers(0, 10**8).map(lambda milliseconds: milliseconds / 1000)
moments = st.datetimes(timezones=st.just(UTC))
maybe_moments = st.none() | moments
secrets = st.binary(max_size=20).map(SecretBytes)
states = st.none() | st.dictionaries(names, names, max_size=2).map(
    lambda state: SecretBytes(json.dumps(state).encode())
)
labels = st.dictionaries(names, names, max_size=3)
secret_maps = st.dictionaries(names, secrets, max_size=3)


def tuples(entries: st.SearchStrategy[Any], key: str = "") -> st.SearchStrategy[Any]:
    """Generate short tuples; distinct in that attribute, if one is named."""
    unique: Callable[[Any], Any] | None = (lambda entry: getattr(entry, key)) if key else None
    return st.lists(entries, max_size=3, unique_by=unique).map(tuple)


versions = st.builds(ProtocolVersion, numbers, numbers)
objects = st.builds(Subject, names, names, names, names, names, st.integers(-(2**63), 2**63 - 1))
kind_ids = st.builds(values.KindId, names, names, names)
errors = st.builds(
    ProviderError,
    st.sampled_from(ErrorReason),
    sentences,
    retry=st.sampled_from(RetryClass),
    retry_after=seconds,
    backend_code=sentences,
    subject=st.none() | st.builds(Subject, sentences, sentences, sentences, sentences, sentences),
)
paths = st.builds(values.CredentialPath, names, st.sampled_from(values.CredentialKind), tuples(names))
kinds = st.builds(
    values.KindInfo,
    kind_ids,
    st.sampled_from(values.KindRole),
    st.frozensets(st.sampled_from(values.Operation)),
    st.frozensets(st.sampled_from(values.ConfigDelivery)),
    names,
    names,
    tuples(paths),
)
hellos = st.builds(values.Hello, names, tuples(versions), tuples(names), names)
handshakes = st.builds(
    values.Handshake,
    st.none() | versions,
    tuples(versions),
    names,
    names,
    names,
    tuples(kinds),
    tuples(names),
    st.builds(values.Limits, numbers, st.integers(0, 2**64 - 1), numbers, seconds),
)
tokens = st.builds(
    values.Token,
    st.text(st.characters(codec="ascii"), min_size=1, max_size=9).map(lambda text: SecretBytes(text.encode())),
    maybe_moments,
    tuples(names),
)
credentials = st.builds(values.Credential, names, secrets | tokens | secret_maps)
configs = st.builds(values.Config, objects, kind_ids, secrets, tuples(credentials)) | st.builds(
    values.Config, objects, kind_ids
)
contexts = st.builds(
    values.Context,
    names,
    versions,
    objects,
    objects,
    configs,
    names,
    st.booleans(),
    numbers,
    seconds,
    names,
)
remotes = st.builds(values.RemoteRef, names, names, names, st.sampled_from(values.MetadataPolicy))
items = st.builds(values.GetItem, names, remotes, st.sampled_from(values.Shape), names)
metadata = st.builds(values.ValueMetadata, names, maybe_moments, maybe_moments, seconds, labels)
results = st.builds(values.GetResult, names, secrets | secret_maps | st.builds(values.NotModified) | errors, metadata)
queries = st.builds(values.FindQuery, names, names, labels, numbers)
pages = st.one_of(
    st.builds(values.FindPage, tuples(st.builds(values.Found, names, secrets, metadata)), st.booleans()),
    st.builds(values.FindPage, st.just(()), st.just(value=True), missing=sentences),
)
checks = st.builds(values.CheckResult, names, st.booleans(), names, st.none() | errors)
documents = st.recursive(
    st.none() | st.booleans() | names | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
pushes = st.builds(
    values.PushItem,
    names,
    remotes,
    secrets | secret_maps,
    st.none() | st.dictionaries(names, documents, max_size=3),
    st.sampled_from(values.PushPrecondition),
    names,
    names,
    secret_key=names,
)
batches = st.builds(
    values.PushBatch, tuples(pushes, "item_id"), st.builds(values.SourceSecret, names, labels, labels), names
)
pushed = st.builds(values.PushResult, names, st.sampled_from(values.PushOutcome) | errors, names)
removals = st.builds(
    values.DeleteItem, names, remotes, names, st.none() | st.dictionaries(names, documents, max_size=3)
)
deletes = st.builds(values.DeleteBatch, tuples(removals, "item_id"), names)
deleted = st.builds(values.DeleteResult, names, st.booleans(), st.none() | errors)
conditions = st.builds(values.ConditionReport, sentences, sentences, sentences, sentences)
validations = st.builds(
    values.Validation,
    st.sampled_from(values.ValidationState),
    tuples(sentences),
    st.none() | errors,
    st.none() | st.frozensets(st.sampled_from(values.Operation)),
    tuples(conditions),
    tuples(objects),
)
watches = tuples(st.builds(values.WatchItem, names, st.none() | remotes, names, labels, names), "watch_id")
subscriptions = (
    st.builds(values.SubscribeOpen, contexts, watches, names)
    | st.builds(values.SubscribeUpdate, watches, tuples(names))
    | st.builds(values.SubscribeAck, names)
)
events = st.builds(
    values.ChangeEvent,
    st.sampled_from(values.ChangeType),
    tuples(names),
    names,
    maybe_moments,
    st.none() | conditions,
    names,
) | st.builds(values.Heartbeat, moments, names)
generated = st.builds(values.Generated, secret_maps, states, metadata)


def call(content: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(contexts, content)


def both(encode: Callable[..., Message]) -> Callable[[Any], Message]:
    return lambda pair: encode(*pair)


TRIPS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Message], type[Message], Callable[[Any], Any]]] = {
    "hello": (hellos, codec.to_hello, pb.HandshakeRequest, codec.from_hello),
    "handshake": (handshakes, codec.to_handshake, pb.HandshakeResponse, codec.from_handshake),
    "context": (contexts, codec.to_context, pb.RequestContext, codec.from_context),
    "close": (objects, codec.to_close_request, pb.CloseSessionsRequest, codec.from_close_request),
    "error": (errors, codec.to_error, pb.ErrorDetail, codec.from_error),
    "get": (
        call(tuples(items, "item_id")),
        both(codec.to_get_request),
        pb.GetSecretsRequest,
        codec.from_get_request,
    ),
    "got": (tuples(results, "item_id"), codec.to_get_response, pb.GetSecretsResponse, codec.from_get_response),
    "find": (call(queries), both(codec.to_find_request), pb.FindSecretsRequest, codec.from_find_request),
    "found": (pages, codec.to_find_page, pb.FindSecretsResponse, codec.from_find_page),
    "check": (
        call(tuples(items, "item_id")),
        both(codec.to_check_request),
        pb.CheckSecretsRequest,
        codec.from_check_request,
    ),
    "checked": (tuples(checks, "item_id"), codec.to_check_response, pb.CheckSecretsResponse, codec.from_check_response),
    "push": (call(batches), both(codec.to_push_request), pb.PushSecretsRequest, codec.from_push_request),
    "pushed": (tuples(pushed, "item_id"), codec.to_push_response, pb.PushSecretsResponse, codec.from_push_response),
    "delete": (call(deletes), both(codec.to_delete_request), pb.DeleteSecretsRequest, codec.from_delete_request),
    "deleted": (
        tuples(deleted, "item_id"),
        codec.to_delete_response,
        pb.DeleteSecretsResponse,
        codec.from_delete_response,
    ),
    "validate": (
        call(st.sampled_from(values.ValidationMode)),
        both(codec.to_validate_request),
        pb.ValidateRequest,
        codec.from_validate_request,
    ),
    "validated": (validations, codec.to_validate_response, pb.ValidateResponse, codec.from_validate_response),
    "subscribe": (subscriptions, codec.to_subscribe_request, pb.SubscribeRequest, codec.from_subscribe_request),
    "event": (events, codec.to_subscribe_response, pb.SubscribeResponse, codec.from_subscribe_response),
    "generate": (
        call(st.builds(values.GenerateRequest, names, states)),
        both(codec.to_generate_request),
        pb.GenerateRequest,
        codec.from_generate_request,
    ),
    "generated": (generated, codec.to_generate_response, pb.GenerateResponse, codec.from_generate_response),
    "cleanup": (
        call(st.builds(values.CleanupRequest, secrets, names)),
        both(codec.to_cleanup_request),
        pb.CleanupRequest,
        codec.from_cleanup_request,
    ),
    "cleaned": (
        st.sampled_from(values.CleanupOutcome),
        codec.to_cleanup_response,
        pb.CleanupResponse,
        codec.from_cleanup_response,
    ),
}


@pytest.mark.parametrize("trip", TRIPS)
def test_a_sent_value_arrives_unchanged(trip: str) -> None:
    strategy, encode, message_type, decode = TRIPS[trip]

    @settings(max_examples=40, deadline=None)  # a shared machine may pause at any time
    @given(strategy)
    def arrives(value: Any) -> None:
        raw = encode(value).SerializeToString()
        assert decode(message_type.FromString(raw)) == value

    arrives()


def test_every_pair_of_functions_makes_the_trip() -> None:
    ours = {
        name for name, each in vars(codec).items() if callable(each) and name not in ("to_duration", "to_timestamp")
    }
    pairs = {name.removeprefix("to_") for name in ours if name.startswith("to_")}

    assert len(pairs) == len(TRIPS)
    assert {name.removeprefix("from_") for name in ours if name.startswith("from_")} == pairs


@pytest.mark.parametrize(
    ("given_seconds", "expected"),
    [
        pytest.param(-1.0, 0.0, id="negative"),
        pytest.param(float("nan"), 0.0, id="not a number"),
        pytest.param(float("inf"), 0.0, id="endless"),
        pytest.param(1e12, 10 * 365 * 24 * 3600.0, id="beyond the bound"),
        pytest.param(1e-9, 1e-9, id="a nanosecond"),
    ],
)
def test_durations_that_make_no_sense_are_not_sent(given_seconds: float, expected: float) -> None:
    error = ProviderError(ErrorReason.RATE_LIMITED, "slow down", retry_after=given_seconds)

    assert codec.from_error(codec.to_error(error)).retry_after == expected


def test_a_moment_without_time_zone_is_read_as_the_senders_local_time() -> None:
    naive = datetime(2026, 1, 1, 12, 0, 0)  # noqa: DTZ001 - the point
    message = codec.to_subscribe_response(values.Heartbeat(naive))

    assert codec.from_subscribe_response(message) == values.Heartbeat(naive.astimezone(UTC))
