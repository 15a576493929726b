"""The keys for token verification: fetched when needed, and not more often. Real gRPC, real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from eso_sdk.accounts import MAX_RESPONSE_BYTES, RESPONSE_SECONDS, CallAuth, JwksSettings
from eso_sdk.jwks import KEEP_SECONDS, PAUSE_SECONDS, REFRESH_SECONDS
from eso_sdk.testing import Client, ProviderServer, call_context
from eso_sdk.testing.issuer import AUDIENCE, ISSUER, Issuer
from eso_sdk.testing.scripted import SCRIPTED, Script, Scripted
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context
from kubebase.testing.clock import START, VirtualClock


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer.publishing() as made:
        yield made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def verifying(issuer: Issuer, clock: VirtualClock) -> ProviderServer:
    return ProviderServer(SCRIPTED, clock, call_auth=CallAuth((AUDIENCE,), JwksSettings(issuer.address, ISSUER)))


def reading() -> Context:
    return call_context(Scripted, {"script": Script.new(values={"a": b"1"}).name})


async def refusal(client: Client) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await client.get_one(reading(), "a")
    return caught.value


async def test_keys_are_fetched_once_for_many_calls(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(issuer.token())
        await asyncio.gather(*(client.get_one(reading(), "a") for _ in range(20)))

    assert issuer.requests == 1


async def test_a_new_key_is_found_as_soon_as_a_token_names_it(issuer: Issuer, clock: VirtualClock) -> None:
    async with verifying(issuer, clock) as server:
        await (await server.connect_as(issuer.token())).get_one(reading(), "a")
        issuer.add_key("second")
        await clock.advance(PAUSE_SECONDS)

        got = await (await server.connect_as(issuer.token("second"))).get_one(reading(), "a")

    assert not isinstance(got.outcome, ProviderError)
    assert issuer.requests == 2


async def test_tokens_with_made_up_key_ids_do_not_make_the_issuer_busy(issuer: Issuer, clock: VirtualClock) -> None:
    stranger = Issuer()
    async with verifying(issuer, clock) as server:
        for number in range(10):
            stranger.add_key(f"made-up-{number}")
            error = await refusal(await server.connect_as(stranger.token(f"made-up-{number}")))
            assert error.reason is ErrorReason.CREDENTIALS_REJECTED

    assert issuer.requests == 1


async def test_a_withdrawn_key_is_no_longer_good(issuer: Issuer, clock: VirtualClock) -> None:
    token = issuer.token()
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(token)
        await client.get_one(reading(), "a")
        issuer.keys.clear()
        issuer.add_key("second")

        await clock.advance(REFRESH_SECONDS)
        error = await refusal(client)

    assert error.reason is ErrorReason.CREDENTIALS_REJECTED
    assert "does not publish" in error.message


async def test_known_keys_outlast_an_issuer_that_is_away_but_not_for_ever(issuer: Issuer, clock: VirtualClock) -> None:
    token = issuer.token(exp=int((START + timedelta(days=1)).timestamp()))
    async with verifying(issuer, clock) as server:
        client = await server.connect_as(token)
        await client.get_one(reading(), "a")
        issuer.status = "503 Service Unavailable"

        await clock.advance(REFRESH_SECONDS)
        still = await client.get_one(reading(), "a")
        await clock.advance(KEEP_SECONDS)
        error = await refusal(client)

    assert not isinstance(still.outcome, ProviderError)
    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "503" in error.message


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param("500 Internal Server Error", b"", id="an error"),
        pytest.param("302 Found\r\nLocation: http://127.0.0.1:1/", b"", id="a redirect"),
        pytest.param("200 OK", b"x" * (MAX_RESPONSE_BYTES + 1), id="far too much"),
        pytest.param("200 OK", b"no JSON", id="no JSON"),
        pytest.param("200 OK", b'{"keys": []}', id="no keys"),
        pytest.param("200 OK", b'{"keys": [{"kty": "oct", "kid": "first", "k": "AA"}]}', id="a secret"),
        pytest.param("200 OK", b'{"keys": [{"kty": "EC", "kid": "first"}]}', id="half a key"),
        pytest.param("200 OK", b"[" * 100_000, id="deep nesting"),
        pytest.param("rubbish", b"", id="no HTTP"),
    ],
)
async def test_an_issuer_without_usable_keys_leaves_it_open_whether_a_token_is_good(
    issuer: Issuer, clock: VirtualClock, status: str, body: bytes
) -> None:
    """Not the caller's fault, so not a refusal: the operator retries."""
    issuer.status, issuer.body = status, body
    async with verifying(issuer, clock) as server:
        error = await refusal(await server.connect_as(issuer.token()))

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE


async def test_an_issuer_that_does_not_answer_holds_a_call_up_for_seconds_only(
    issuer: Issuer, clock: VirtualClock
) -> None:
    issuer.open.clear()
    async with verifying(issuer, clock) as server, asyncio.TaskGroup() as group:
        client = await server.connect_as(issuer.token())
        failing = group.create_task(refusal(client))
        while not issuer.requests:  # noqa: ASYNC110 - the request arrives over a socket, which sets no event
            await asyncio.sleep(0.01)
        await clock.advance(RESPONSE_SECONDS)
        error = await failing
        issuer.open.set()

    assert error.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert "did not answer" in error.message


async def test_keys_may_stand_in_a_file(issuer: Issuer, clock: VirtualClock, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    auth = CallAuth((AUDIENCE,), JwksSettings(str(file), ISSUER))
    async with ProviderServer(SCRIPTED, clock, call_auth=auth) as server:
        client = await server.connect_as(issuer.token())
        missing = await refusal(client)
        file.write_bytes(issuer.document())
        await clock.advance(PAUSE_SECONDS)
        got = await client.get_one(reading(), "a")

    assert missing.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert str(file) in missing.message
    assert not isinstance(got.outcome, ProviderError)
