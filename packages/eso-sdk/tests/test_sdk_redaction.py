"""Texts that leave a provider contain no values of the request."""

import base64
import json
from urllib.parse import quote

import pytest

from eso_api.values import SecretBytes
from eso_sdk.redaction import CallRedactor, seat
from eso_wire.errors import ErrorReason, ProviderError, RetryClass

SECRET = "p@ss w0rd/with+signs"
DOCUMENT = json.dumps({"type": "account", "private_key": "-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----\n"})


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        pytest.param(SECRET, f"login {SECRET} failed", id="plain"),
        pytest.param(SECRET, base64.b64encode(SECRET.encode()).decode(), id="base64"),
        pytest.param(SECRET, base64.b64encode(SECRET.encode()).decode().rstrip("="), id="base64 without padding"),
        pytest.param(SECRET, base64.urlsafe_b64encode(SECRET.encode()).decode(), id="base64 for URLs"),
        pytest.param(SECRET, f"https://x/?p={quote(SECRET, safe='')}", id="in a URL"),
        pytest.param(SECRET, SECRET.encode().hex(), id="hex"),
        pytest.param('quo"ted\n', json.dumps({"p": 'quo"ted\n'}), id="in JSON"),
        pytest.param(f"{SECRET}\n", f"login {SECRET} failed", id="without its last line end"),
        pytest.param("first-line\nsecond-line", "second-line is wrong", id="one line of several"),
        pytest.param(DOCUMENT, json.loads(DOCUMENT)["private_key"], id="a member of a JSON document"),
    ],
)
def test_a_secret_is_masked_in_every_usual_spelling(secret: str, text: str) -> None:
    masked = CallRedactor([SecretBytes(secret.encode())]).text(text)

    assert "…" in masked
    for part in (secret.strip(), text):
        assert part not in masked


@pytest.mark.parametrize(
    ("secret", "text", "expected"),
    [
        pytest.param("0123456789abcdefghij", "got 0123456789abcdefg, sorry", "got …, sorry", id="a cut-off echo"),
        pytest.param("0123456789abcdefghij", "0123456789a", "0123456789a", id="too little to be known"),
        pytest.param("x" * 5_000_000, "y" + "x" * 10_000, "y…", id="a huge secret in a huge text"),
        pytest.param("a" * 30 + "b", "a" * 30 + "b and " + "a" * 20, "… and …", id="twice"),
    ],
)
def test_a_part_of_a_secret_is_masked_too(secret: str, text: str, expected: str) -> None:
    assert CallRedactor([SecretBytes(secret.encode())]).text(text) == expected


def test_no_secret_hides_at_the_end_of_a_long_text() -> None:
    secret = "0123456789abcdefghij"
    text = (secret * 2000)[: 8 * 2048 + 7]

    assert not set(CallRedactor([SecretBytes(secret.encode())]).text(text)) - {"…"}


def test_a_value_too_short_to_be_told_from_other_words_stays() -> None:
    assert CallRedactor([SecretBytes(b"abc"), SecretBytes(b"")]).text("abc abcd") == "abc abcd"


def test_the_longest_secret_goes_first() -> None:
    assert CallRedactor([SecretBytes(b"pass"), SecretBytes(b"password")]).text("password") == "…"


def test_an_error_keeps_its_reason_and_loses_the_secret() -> None:
    error = ProviderError(
        ErrorReason.RATE_LIMITED, f"too many for {SECRET}", retry_after=3.0, backend_code=f"E-{SECRET}"
    )

    masked = CallRedactor([SecretBytes(SECRET.encode())]).error(error)

    assert (masked.reason, masked.retry, masked.retry_after) == (ErrorReason.RATE_LIMITED, RetryClass.BACKOFF, 3.0)
    assert (masked.message, masked.backend_code) == ("too many for …", "E-…")


def test_messages_are_bounded() -> None:
    assert len(CallRedactor([]).text("x" * 100_000)) == 2048


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        pytest.param(ValueError(SECRET), ErrorReason.INTERNAL, id="a bug"),
        pytest.param(TimeoutError(SECRET), ErrorReason.BACKEND_TIMEOUT, id="a time-out"),
        pytest.param(ConnectionResetError(SECRET), ErrorReason.BACKEND_UNAVAILABLE, id="a lost connection"),
        pytest.param(ExceptionGroup(SECRET, [TimeoutError(SECRET)]), ErrorReason.BACKEND_TIMEOUT, id="a group"),
        pytest.param(UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET), ErrorReason.INTERNAL, id="its object"),
    ],
)
def test_the_words_of_an_unexpected_exception_never_leave(exc: Exception, reason: ErrorReason) -> None:
    error = CallRedactor([]).of_exception(exc)

    assert error.reason is reason
    assert SECRET not in error.message


def test_an_exception_is_named_by_type_and_place() -> None:
    with pytest.raises(KeyError) as caught:
        dict[str, str]()[SECRET]

    assert seat(caught.value).startswith("KeyError at test_sdk_redaction.py:")
