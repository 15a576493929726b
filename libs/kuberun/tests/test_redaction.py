"""Which parts of a request a server's message may repeat."""

import base64
import json

import pytest

from kubebase.meta import JsonObject
from kuberun.errors import from_status
from kuberun.redaction import MAX_MESSAGE_BYTES, field_without_echo, without_values

PLANTED = 'PLANTED"0815\nsecond line'
QUOTED = json.dumps(PLANTED)


def body(**content: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, **content}).encode()


@pytest.mark.parametrize(
    ("field", "message", "kept"),
    [
        pytest.param(
            f"data[{PLANTED}]", f"Invalid value: {QUOTED}: a valid config key must", "data[…]", id="a key is rejected"
        ),
        pytest.param(
            "data[tls.crt]", 'Invalid value: "<secret contents redacted>": bad', "data[tls.crt]", id="a value is"
        ),
        pytest.param("data[tls.crt]", "Required value", "data[tls.crt]", id="nothing is repeated"),
        pytest.param("data", 'Unsupported value: "a"', "data", id="only a key in brackets is one"),
    ],
)
def test_a_field_keeps_no_key_that_was_rejected(field: str, message: str, kept: str) -> None:
    assert field_without_echo(field, message) == kept


def test_an_error_about_a_key_that_was_made_from_a_value_does_not_name_it() -> None:
    cause = {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "pass word": bad key',
        "field": "data[pass word]",
    }
    said = {"kind": "Status", "reason": "Invalid", "code": 422, "details": {"kind": "Secret", "causes": [cause]}}

    error = from_status(422, json.dumps(said).encode(), {})

    assert error.message == "Secret is invalid: data[…]: Invalid value: bad key"
    assert "pass word" not in repr(error.details)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"data": {"a": base64.b64encode(PLANTED.encode()).decode()}}, id="as the data of a Secret"),
        pytest.param({"spec": {"a": [PLANTED]}}, id="in a list"),
        pytest.param({"metadata": {"name": "a", "labels": {"one": PLANTED}}}, id="in a label"),
        pytest.param({"metadata": {"name": "a", "annotations": {"one": PLANTED}}}, id="in an annotation"),
    ],
)
@pytest.mark.parametrize("spelling", [PLANTED, QUOTED[1:-1]], ids=["as it is", "quoted"])
def test_a_value_is_found_in_a_sentence_however_it_was_sent(content: JsonObject, spelling: str) -> None:
    sentence = f'admission webhook "w" denied the request: {spelling} is weak'

    assert without_values(sentence, body(**content)) == 'admission webhook "w" denied the request: … is weak'


@pytest.mark.parametrize("shown", range(4, len(PLANTED)))
def test_the_beginning_of_a_value_at_the_end_of_a_message_that_is_cut_is_not_shown(shown: int) -> None:
    """Masks shorten the text, so the position of the first cut may become visible."""
    mask = "0123456789abcdef" * 16
    masked = mask * (4 * MAX_MESSAGE_BYTES // len(mask))
    text = f"{masked[shown:]}{PLANTED} is weak"

    cut = without_values(text, body(spec=[PLANTED, mask, mask[shown:]]))

    assert PLANTED[:4] not in cut


def test_a_body_of_very_many_values_is_searched_once_for_each_that_may_be_there() -> None:
    """Not a measurement: a hundred thousand searches through a long text would exceed the test's timeout."""
    values = [f"value-{number:06}" for number in range(100_000)]

    cleaned = without_values("x" * 8000 + "value-000007", body(spec=values))

    assert "value-000007" not in cleaned
