"""GithubAccessToken: what is asked for, what comes back, and that unused tokens are revoked."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eso_api.values import SecretBytes
from eso_provider_github.testing.server import APP, INSTALLATION, REPOSITORY, GitHubServer
from eso_provider_github.testing.sessions import generator
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import CleanupOutcome, CleanupRequest, Context, Generated, GenerateRequest, KindRole
from kubebase.testing.clock import VirtualClock

PATH = f"/api/v3/app/installations/{INSTALLATION}/access_tokens"


async def generate(provider: InMemory, call: Context, key: str = "one") -> Generated:
    return await provider.generate(call, GenerateRequest(key))


async def clean(provider: InMemory, call: Context, state: SecretBytes | None = None, key: str = "") -> CleanupOutcome:
    return await provider.cleanup(call, CleanupRequest(state or SecretBytes(b""), key))


def token_of(made: Generated) -> str:
    return made.data["token"].reveal().decode()


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        pytest.param({}, b"", id="everything that the installation may do"),
        pytest.param({"permissions": {"contents": "read"}}, {"permissions": {"contents": "read"}}, id="permissions"),
        pytest.param({"repositories": [REPOSITORY]}, {"repositories": [REPOSITORY]}, id="repositories"),
    ],
)
async def test_a_token_is_asked_for_as_the_app(
    spec: Any, body: Any, provider: InMemory, github: GitHubServer, clock: VirtualClock
) -> None:
    made = await generate(provider, generator(github.url, **spec))

    (asked,) = github.calls
    assert asked.line == f"POST {PATH}"
    assert (json.loads(asked.body) if asked.body else b"") == body
    signed = asked.headers["authorization"].removeprefix("Bearer ")
    claims = jwt.decode(signed, options={"verify_signature": False})
    now = int(clock.now().timestamp())
    assert claims == {"iss": str(APP), "iat": now - 10, "exp": now + 300}
    assert jwt.get_unverified_header(signed)["alg"] == "RS256"
    assert list(made.data) == ["token"]
    assert token_of(made) in github.tokens
    assert made.metadata.expires_at is not None
    assert abs(made.metadata.expires_at - clock.now() - timedelta(hours=1)) < timedelta(seconds=2)


async def test_two_generations_have_different_tokens(provider: InMemory, github: GitHubServer) -> None:
    call = generator(github.url)

    first, second = await generate(provider, call, "one"), await generate(provider, call, "two")

    assert token_of(first) != token_of(second)


async def test_the_state_revokes_the_token_and_does_not_contain_it(provider: InMemory, github: GitHubServer) -> None:
    call = generator(github.url)
    made = await generate(provider, call)
    assert made.state is not None

    first, again = await clean(provider, call, made.state), await clean(provider, call, made.state)

    assert (first, again) == (CleanupOutcome.CLEANED, CleanupOutcome.ALREADY_GONE)
    assert github.tokens == {}
    assert set(json.loads(made.state.reveal())) == {"expiresAt", "sealed"}
    assert token_of(made).encode() not in made.state.reveal()
    assert github.requests("DELETE */installation/token")[0].headers["authorization"] == f"Bearer {token_of(made)}"


async def test_an_expired_token_needs_no_call(provider: InMemory, github: GitHubServer, clock: VirtualClock) -> None:
    call = generator(github.url)
    made = await generate(provider, call)
    await clock.advance(3601)
    github.calls.clear()

    assert await clean(provider, call, made.state) is CleanupOutcome.ALREADY_GONE
    assert github.calls == []


def another_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        pytest.param("", {"installID": "1"}, id="another installation"),
        pytest.param("", {"key": another_key()}, id="another key"),
        pytest.param("/other", {}, id="another address"),
    ],
)
async def test_a_state_opens_only_with_the_key_and_the_place_that_sealed_it(
    path: str, changes: Any, provider: InMemory, github: GitHubServer
) -> None:
    made = await generate(provider, generator(github.url))
    github.calls.clear()

    with pytest.raises(ProviderError, match="cannot be revoked; it expires at"):
        await clean(provider, generator(f"{github.url}{path}", **changes), made.state)

    assert github.calls == []


async def test_a_call_whose_answer_was_lost_is_cleaned_up(provider: InMemory, github: GitHubServer) -> None:
    call = generator(github.url)
    await generate(provider, call, "lost")

    assert await clean(provider, call, key="lost") is CleanupOutcome.CLEANED
    assert github.tokens == {}
    with pytest.raises(ProviderError) as unknown:
        await clean(provider, call, key="never made")
    assert unknown.value.reason is ErrorReason.UNSUPPORTED_OPERATION


async def test_a_repeated_call_leaves_one_token(provider: InMemory, github: GitHubServer) -> None:
    call = generator(github.url)

    await generate(provider, call, "same")
    second = await generate(provider, call, "same")

    assert list(github.tokens) == [token_of(second)]


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        pytest.param({"appID": "1"}, ErrorReason.CREDENTIALS_REJECTED, 'private key of App "1"', id="another App"),
        pytest.param({"installID": "1"}, ErrorReason.PERMISSION_DENIED, 'no installation "1"', id="no installation"),
        pytest.param(
            {"permissions": {"contents": "write"}},
            ErrorReason.BACKEND_ERROR,
            "ask only for repositories and permissions",
            id="a permission that the installation has not",
        ),
        pytest.param({"appID": " "}, ErrorReason.CONFIG_INVALID, "/appID: must be set", id="no App"),
        pytest.param({"key": "CANARY"}, ErrorReason.CONFIG_INVALID, "/auth/privateKey/secretRef", id="no key"),
    ],
)
async def test_a_refusal_is_explained(
    spec: Any, reason: ErrorReason, says: str, provider: InMemory, github: GitHubServer
) -> None:
    with pytest.raises(ProviderError) as failed:
        await generate(provider, generator(github.url, **spec))

    assert failed.value.reason is reason
    assert says in failed.value.message
    assert "CANARY" not in failed.value.message


async def test_validation_makes_no_token(provider: InMemory, github: GitHubServer) -> None:
    await provider.validate(generator(github.url), role=KindRole.GENERATOR)

    assert [asked.method for asked in github.calls] == ["GET"]
    assert github.tokens == {}
