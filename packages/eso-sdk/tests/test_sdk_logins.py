"""Logins: one token for all sessions of an identity, renewed in time; and the texts that the bodies of logins hold."""

from __future__ import annotations

from typing import Any

import pytest

from eso_api.references import RequiredSecretKeySelector, SecretKeySelector
from eso_api.values import SecretBytes
from eso_sdk.backend import Backend
from eso_sdk.logins import Grant, Login, digest, fixed, join_login, optional_text, text
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.testing.clock import VirtualClock

REFERENCE = SecretKeySelector(name="login", key="token")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


async def error_of(sending: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await sending
    return caught.value


class Office:
    """Grants tokens, or refuses."""

    def __init__(self, seconds: float = 600.0) -> None:
        self.seconds = seconds
        self.logins = 0
        self.refusal: ProviderError | None = None

    async def log_in(self) -> Grant:
        self.logins += 1
        if self.refusal is not None:
            raise self.refusal
        return Grant(SecretBytes(f"t-{self.logins}".encode()), self.seconds)

    def join(self, clock: VirtualClock) -> Login:
        return join_login(digest("office"), clock, self.log_in)


async def test_all_sessions_of_an_identity_share_one_login(clock: VirtualClock) -> None:
    office = Office()
    sessions = [office.join(clock) for _ in range(20)]

    tokens = {(await session.token()).reveal() for session in sessions}

    assert (tokens, office.logins) == ({b"t-1"}, 1)


async def test_a_token_is_renewed_before_it_expires(clock: VirtualClock) -> None:
    office = Office(seconds=600)
    login = office.join(clock)
    await login.token()

    await clock.advance(539)
    still = await login.token()
    await clock.advance(2)
    renewed = await login.token()

    assert (still.reveal(), renewed.reveal()) == (b"t-1", b"t-2")


async def test_a_token_that_seems_expired_is_used_for_some_seconds(clock: VirtualClock) -> None:
    office = Office(seconds=-3600)
    login = office.join(clock)

    tokens = [(await login.token()).reveal() for _ in range(3)]

    assert tokens == [b"t-1"] * 3


async def test_a_valid_token_is_used_while_no_new_one_can_be_obtained(clock: VirtualClock) -> None:
    office = Office(seconds=600)
    login = office.join(clock)
    await login.token()
    office.refusal = ProviderError(ErrorReason.BACKEND_UNAVAILABLE, "down")

    await clock.advance(550)
    old = await login.token()
    await clock.advance(51)

    assert old.reveal() == b"t-1"
    assert (await error_of(login.token())).reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_refused_logins_are_repeated_once_a_minute(clock: VirtualClock) -> None:
    office = Office()
    office.refusal = ProviderError(ErrorReason.CREDENTIALS_REJECTED, "wrong")
    login = office.join(clock)

    for _ in range(5):
        await error_of(login.token())
    before = office.logins
    await clock.advance(61)
    await error_of(login.token())

    assert (before, office.logins) == (1, 2)


class OneCredential(Backend[Any]):
    """Holds one credential."""

    def __init__(self, value: bytes) -> None:
        self._value = SecretBytes(value)

    def secret(self, reference: SecretKeySelector | RequiredSecretKeySelector) -> SecretBytes:
        assert reference == REFERENCE
        return self._value


@pytest.mark.parametrize("value", [b"CANARY", b"CANARY\n", b"CANARY\r\n"], ids=["plain", "a line", "a line of Windows"])
def test_a_credential_is_read_without_the_line_break_at_its_end(value: bytes) -> None:
    assert text(OneCredential(value), REFERENCE, "auth.token") == "CANARY"
    assert optional_text(OneCredential(value), REFERENCE, "auth.token") == "CANARY"


@pytest.mark.parametrize(
    ("value", "reference", "problem"),
    [
        pytest.param(b"CANARY", None, "is needed: name the Secret and the key", id="no reference"),
        pytest.param(b"CANARY", SecretKeySelector(), "is needed: name the Secret and the key", id="no name"),
        pytest.param(b"CANARY\xff", REFERENCE, "names a value that is not UTF-8 text", id="bytes"),
        pytest.param(b"\n", REFERENCE, "names an empty value", id="nothing"),
    ],
)
def test_a_credential_that_cannot_be_one_is_named_and_not_shown(
    value: bytes, reference: SecretKeySelector | None, problem: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        text(OneCredential(value), reference, "auth.token")

    assert caught.value.reason is ErrorReason.CONFIG_INVALID
    assert caught.value.message == f"auth.token: {problem}"
    assert "CANARY" not in caught.value.message


def test_a_credential_that_is_optional_may_be_missing() -> None:
    assert [
        optional_text(OneCredential(b""), reference, "auth.token") for reference in (None, SecretKeySelector())
    ] == [
        "",
        "",
    ]


async def test_a_fixed_body_stays_the_same() -> None:
    make = fixed({"key": "value"})

    assert await make() == await make() == {"key": "value"}
