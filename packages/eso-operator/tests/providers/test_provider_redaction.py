"""R-no-leak: values and credentials do not come back in what providers say."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eso_api.values import SecretBytes
from eso_operator.providers.redaction import ResponseRedactor
from eso_operator.stores.resolved import CallPolicy
from eso_testkit.operator.boundstores import bound_store, wanted
from eso_testkit.operator.gateways import LoopbackGateway
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import FindQuery, GenerateRequest, PushBatch, PushItem, RemoteRef

CANARY = "CANARY-7f3a9e51c2"
ONCE = CallPolicy(gated=False, max_retries=0)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(f"cannot parse {CANARY} as a number", id="plain"),
        pytest.param(f"body was {base64.b64encode(CANARY.encode()).decode()}", id="base64"),
        pytest.param(f"cut off: {CANARY[:14]}", id="its beginning"),
        pytest.param(f"twice {CANARY}{CANARY}", id="twice"),
        pytest.param(json.dumps({"x": CANARY}), id="as JSON"),
        pytest.param(f"0x{CANARY.encode().hex()}", id="in hexadecimal"),
    ],
)
def test_a_value_is_masked_however_it_is_written(said: str) -> None:
    masked = ResponseRedactor([CANARY.encode()]).text(said)

    assert CANARY[:12] not in masked
    assert base64.b64encode(CANARY.encode()).decode() not in masked
    assert CANARY.encode().hex() not in masked


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param({"login": {"password": CANARY}}, f"the password {CANARY} is weak", id="a member"),
        pytest.param([["x"], [CANARY]], f"cannot use {CANARY}", id="an item"),
        pytest.param("p@ss/word?", "GET /login?p=p%40ss%2Fword%3F: 403", id="in an address"),
        pytest.param("with a blank", "GET /login?p=with+a+blank: 403", id="in a query"),
    ],
)
def test_parts_of_a_value_and_its_spelling_in_addresses_are_masked(value: object, said: str) -> None:
    secret = value if isinstance(value, str) else json.dumps(value)

    masked = ResponseRedactor([secret.encode()]).text(said)

    assert "…" in masked
    assert CANARY not in masked


def test_json_that_is_too_deep_is_masked_as_a_text() -> None:
    deep = "[" * 100_000

    assert ResponseRedactor([deep.encode()]).text(f"cannot parse {deep[:2000]}") == "cannot parse …"


def test_the_rest_of_the_message_stays() -> None:
    assert (
        ResponseRedactor([b"hunter22"]).text("key db/password: hunter22 is too short")
        == "key db/password: … is too short"
    )


def test_a_long_message_is_cut() -> None:
    assert len(ResponseRedactor([]).text("x" * 100_000)) <= 2048


def test_each_line_of_a_value_is_masked() -> None:
    pem = b"-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"

    assert "hkiG9w0BAQEFAASC" not in ResponseRedactor([pem]).text("unexpected hkiG9w0BAQEFAASC here")


@given(st.binary(max_size=200), st.text(max_size=100), st.text(max_size=100))
def test_no_value_survives_and_none_breaks_the_veil(value: bytes, before: str, after: str) -> None:
    text = value.decode(errors="replace")

    masked = ResponseRedactor([value]).text(before + text + after)

    assert len(text) < 4 or text not in masked or text in before + "…" + after


@pytest.mark.parametrize("where", ["credential", "token", "spec", "answer"])
async def test_a_providers_message_loses_what_the_call_carried(loop: LoopbackGateway, where: str) -> None:
    spec = json.dumps({"data": [{"key": "k", "value": CANARY}]}).encode()
    bound = bound_store(
        policy=ONCE,
        credential=CANARY.encode() if where == "credential" else b"",
        token=CANARY if where == "token" else "",
        spec=spec if where == "spec" else b"{}",
    )
    loop.provider.item_errors["bad"] = ProviderError(ErrorReason.BACKEND_ERROR, f"item: {CANARY}", backend_code=CANARY)
    loop.provider.data["a"] = CANARY.encode() if where == "answer" else b"value"

    results = await loop.gateway.get(bound, wanted("a", "bad"))
    outcome = results[1].outcome
    loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, f"call: {CANARY}")
    with pytest.raises(ProviderError) as caught:
        await loop.gateway.get(bound, wanted("a"))

    assert isinstance(outcome, ProviderError)
    assert CANARY not in outcome.message + outcome.backend_code + str(outcome) + repr(outcome)
    assert where == "answer" or CANARY not in repr(caught.value) + str(caught.value)


async def test_a_configuration_that_is_too_deep_to_search_hides_no_error(loop: LoopbackGateway) -> None:
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, "the backend is broken")

    with pytest.raises(ProviderError, match="the backend is broken"):
        await loop.gateway.get(bound_store(policy=ONCE, spec=deep), wanted("a"))


async def test_a_value_that_was_found_is_masked_in_the_error_that_ends_the_search(loop: LoopbackGateway) -> None:
    loop.provider.data, loop.provider.page_size = {"a": CANARY.encode(), "b": b"value"}, 1

    def broken_off(_method: str, answer: bytes) -> bytes:
        if CANARY.encode() in answer:
            return answer
        raise ProviderError(ErrorReason.BACKEND_ERROR, f"after {CANARY}", backend_code=CANARY)

    loop.provider.nonsense = broken_off

    with pytest.raises(ProviderError) as caught:
        await loop.gateway.find(bound_store(policy=ONCE), FindQuery())

    assert CANARY not in str(caught.value) + caught.value.backend_code
    assert str(caught.value).startswith("after")


async def test_a_pushed_value_is_masked(loop: LoopbackGateway) -> None:
    loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, f"refused: {CANARY}")

    with pytest.raises(ProviderError) as caught:
        await loop.gateway.push(
            bound_store(policy=ONCE), PushBatch((PushItem("x", RemoteRef("x"), SecretBytes(CANARY.encode())),))
        )

    assert CANARY not in str(caught.value)


async def test_a_generators_state_is_masked(loop: LoopbackGateway) -> None:
    loop.provider.broken = ProviderError(ErrorReason.BACKEND_ERROR, f"state {CANARY}")

    with pytest.raises(ProviderError) as caught:
        await loop.gateway.generate(
            bound_store(policy=ONCE), GenerateRequest(previous_state=SecretBytes(CANARY.encode()))
        )

    assert CANARY not in str(caught.value)


def test_a_key_that_merely_holds_a_short_value_is_named_as_it_is() -> None:
    """Otherwise a value `prod` would turn the key into `app/…/db`, and reveal the value."""
    redactor = ResponseRedactor([b"prod", b"correct-horse-battery"], ["app/prod/db", "x/correct-horse-battery"])

    assert redactor.text('no "app/prod/db"') == 'no "app/prod/db"'
    assert redactor.text("prod was refused") == "… was refused"
    assert redactor.text("x/correct-horse-battery") == "x/…"
