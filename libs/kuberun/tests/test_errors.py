"""The error tree, and what a message must never contain. The bodies are responses of kube-apiserver 1.36."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kuberun import errors
from kuberun.errors import ApiError, Cause, from_status
from kuberun.redaction import MAX_MESSAGE_BYTES, bounded, without_echo, without_values

SENT = "SENT-by-us-4711"


def status(message: str = "no", **fields: Any) -> bytes:
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, **fields}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.MethodNotAllowed),
        (406, "NotAcceptable", errors.NotAcceptable),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Gone", errors.Gone),
        (410, "Expired", errors.Gone),
        (413, "RequestEntityTooLarge", errors.TooLarge),
        (415, "UnsupportedMediaType", errors.UnsupportedMediaType),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.ServerError),
        (500, "StoreReadError", errors.ServerError),
        (500, "ServerTimeout", errors.ServerTimeout),
        (500, "", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServiceUnavailable),
        (504, "Timeout", errors.ServerTimeout),
        (418, "ReasonOfTheFuture", ApiError),
        (507, "ReasonOfTheFuture", errors.ServerError),
    ],
)
def test_every_status_becomes_its_class(code: int, reason: str, expected: type[ApiError]) -> None:
    error = from_status(code, status("said so", reason=reason, code=code), {}, where="GET /api/v1/x")

    assert type(error) is expected
    assert (error.code, error.reason, error.message) == (code, reason, "said so")
    assert str(error) == "GET /api/v1/x: said so"


def test_the_table_of_reasons_and_codes_is_complete() -> None:
    for reason, expected in errors.BY_REASON.items():
        assert type(from_status(499, status(reason=reason), {})) is expected
    for code, expected in errors.BY_CODE.items():
        assert type(from_status(code, status(), {})) is expected


@pytest.mark.parametrize("code", range(300, 600))
def test_an_answer_that_kubernetes_did_not_write_is_an_error_without_its_text(code: int) -> None:
    error = from_status(code, f"<html>{SENT}</html>".encode(), {})

    assert error.code == code
    assert SENT not in str(error)
    if code == 404:
        assert type(error) is errors.NotServed
    elif code < 400:
        assert type(error) is errors.BadResponse
    else:
        assert type(error) is errors.BY_CODE.get(code, errors.ServerError if code >= 500 else ApiError)


def test_the_status_of_a_watch_frame_brings_its_own_code() -> None:
    error = from_status(0, status("too old resource version: 1 (2)", reason="Expired", code=410), {})

    assert isinstance(error, errors.Gone)
    assert error.code == 410


def test_invalid_names_every_field_and_no_value() -> None:
    body = status(
        f'Foo.x.io "f" is invalid: [spec.e: Unsupported value: "{SENT}": …]',
        reason="Invalid",
        code=422,
        details={
            "name": "f",
            "group": "x.io",
            "kind": "Foo",
            "causes": [
                {
                    "reason": "FieldValueNotSupported",
                    "message": f'Unsupported value: "{SENT}": supported values: "x", "y"',
                    "field": "spec.e",
                },
                {"reason": "FieldValueInvalid", "message": "Invalid value: too big", "field": "spec"},
            ],
        },
    )

    error = from_status(422, body, {})

    assert error.causes == (
        Cause("spec.e", "FieldValueNotSupported", 'Unsupported value: supported values: "x", "y"'),
        Cause("spec", "FieldValueInvalid", "Invalid value: too big"),
    )
    assert error.message == (
        'Foo \'f\' is invalid: spec.e: Unsupported value: supported values: "x", "y"; spec: Invalid value: too big'
    )


def test_a_conflict_between_field_managers_names_the_fields() -> None:
    causes = [{"reason": "FieldManagerConflict", "message": 'conflict with "kubectl" using v1', "field": ".data.x"}]

    error = from_status(409, status("Apply failed", reason="Conflict", code=409, details={"causes": causes}), {})

    assert isinstance(error, errors.Conflict)
    assert error.causes == (Cause(".data.x", "FieldManagerConflict", 'conflict with "kubectl" using v1'),)


@pytest.mark.parametrize(
    ("details", "header", "expected"),
    [
        pytest.param({"retryAfterSeconds": 7}, "1", 7, id="the body is more exact than the header"),
        pytest.param({}, "3", 3, id="the header counts when the body says nothing"),
        pytest.param({}, "Wed, 21 Oct 2030 07:28:00 GMT", None, id="a date is nothing we can count"),
        pytest.param({}, "-5", None, id="nonsense is ignored"),
        pytest.param({}, "9" * 400, None, id="endless digits are ignored"),
    ],
)
def test_throttled_says_how_long_to_wait(details: dict[str, int], header: str, expected: float | None) -> None:
    body = status("slow down", reason="TooManyRequests", code=429, details=details)

    error = from_status(429, body, {"Retry-After": header})

    assert isinstance(error, errors.Throttled)
    assert error.retry_after == expected


QUOTED_OBJECT = json.dumps(json.dumps({"kind": "Secret", "data": {"x": SENT}, "note": 'with "quotes"'}))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param(
            f' "" is invalid: patch: Invalid value: {QUOTED_OBJECT}: illegal base64 data at input byte 6',
            ' "" is invalid: patch: Invalid value: illegal base64 data at input byte 6',
            id="a rejected patch quotes the whole object",
        ),
        pytest.param(
            f'Secret "a" is invalid: [metadata.labels: Invalid value: "{SENT}": name part must, type: Invalid value: '
            f'"{SENT}": field is immutable]',
            'Secret "a" is invalid: [metadata.labels: Invalid value: name part must, type: Invalid value: '
            "field is immutable]",
            id="several rejected values in one sentence",
        ),
        pytest.param(
            f'spec: Invalid value: v1.Spec{{Name:"{SENT}"}}: bad', "spec: Invalid value", id="a Go struct has no end"
        ),
        pytest.param(
            f'spec: Invalid value: map[string]interface {{}}{{"a":"{SENT}"}}: bad',
            "spec: Invalid value",
            id="nor has a Go map",
        ),
        pytest.param(
            f'spec: Duplicate value: {{"name":"{SENT}"}}', "spec: Duplicate value", id="a value as JSON is cut out"
        ),
        pytest.param(
            f'dryRun: Unsupported value: ["{SENT}"]: supported values: "All"',
            'dryRun: Unsupported value: supported values: "All"',
            id="a list as JSON is cut out",
        ),
        pytest.param("l: Too many: 2: must have at most 1 item", "l: Too many: must have at most 1 item", id="a count"),
        pytest.param("spec: Invalid value: too big", "spec: Invalid value: too big", id="a rule's own sentence stays"),
        pytest.param(
            f"failed to create typed patch object (/a; /v1, Kind=Secret): .data: expected map, got &{{[{SENT}]}}",
            "failed to create typed patch object (/a; /v1, Kind=Secret): .data: expected map, got another type",
            id="apply shows the value of the wrong type",
        ),
        pytest.param(
            f"the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in '{SENT}' ({SENT})",
            "the object provided is unrecognized (must be of type Foo)",
            id="an unreadable body is repeated",
        ),
        pytest.param(
            f'strconv.ParseUint: parsing "{SENT}": invalid syntax',
            "strconv.ParseUint: parsing a value: invalid syntax",
            id="a number that is none",
        ),
        pytest.param(
            f'v1.Secret.Data: decode base64: illegal base64, error found in #10 byte of ...|"{SENT}"|..., bigger ...',
            "v1.Secret.Data: decode base64: illegal base64, error found in #10 byte of the request",
            id="older servers show the bytes around an error",
        ),
        pytest.param(f'x: Invalid value: "{SENT}', "x: Invalid value", id="a quote that never ends"),
    ],
)
def test_no_message_repeats_what_was_sent(said: str, kept: str) -> None:
    assert without_echo(said) == kept
    assert SENT not in str(from_status(400, status(said), {}))


def test_a_value_of_the_request_is_removed_from_any_sentence() -> None:
    sent = json.dumps({"kind": "Widget", "metadata": {"name": "widget-one"}, "data": {"password": [SENT]}}).encode()
    said = status(f'admission webhook "w" denied widget-one: {SENT} is weak', reason="Forbidden", code=403)

    error = from_status(403, said, {}, sent=sent)

    assert error.message == 'admission webhook "w" denied widget-one: … is weak'


@settings(deadline=None)
@given(text=st.text(), body=st.binary())
def test_redaction_takes_any_text(text: str, body: bytes) -> None:
    assert len(without_values(without_echo(text), body).encode(errors="surrogatepass")) <= MAX_MESSAGE_BYTES + 3


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8")), limit=st.integers(min_value=3, max_value=50))
def test_bounded_text_fits_and_keeps_its_beginning(text: str, limit: int) -> None:
    cut = bounded(text, limit)

    assert len(cut.encode()) <= limit
    assert cut == text or text.startswith(cut.removesuffix("…"))
