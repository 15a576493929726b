"""Keys that expire: renewed once and ahead of time, replaced when revoked, and what happens while STS refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from eso_provider_aws.provider import PROVIDER
from eso_provider_aws.testing.front import Front, RecordedRequest, Sts, StubResponse, refused, refused_xml
from eso_provider_aws.testing.sessions import read, token, whoami, with_keys, with_token
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import Context
from kubebase.testing.clock import VirtualClock

HOUR = 3600.0
CALL = with_keys(role="app")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def provider(clock: VirtualClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock) as client:
        yield client


@pytest.fixture
def sts(front: Front, clock: VirtualClock) -> Sts:
    granting = Sts(clock, life=HOUR)
    front.respond("AssumeRole", granting)
    front.respond("AssumeRoleWithWebIdentity", granting)
    front.respond("GetSecretValue", whoami)
    return granting


async def _who(provider: InMemory, call: Context = CALL) -> str | ProviderError:
    (result,) = await read(provider, call, "any")
    return result if isinstance(result, ProviderError) else result.decode()


async def _error(provider: InMemory, call: Context = CALL) -> ProviderError:
    result = await _who(provider, call)
    assert isinstance(result, ProviderError), result
    return result


async def _until(happened: Callable[[], bool]) -> None:
    """Wait for sockets: the clock of the test does not move for them."""
    while not happened():  # noqa: ASYNC110 - what happens beside calls has no event
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)


async def test_a_day_of_reads_assumes_the_role_once_in_55_minutes(
    front: Front, provider: InMemory, sts: Sts, clock: VirtualClock
) -> None:
    for minute in range(0, 24 * 60, 55):
        assert isinstance(await _who(provider), str)
        logins = minute // 55 + 1
        await _until(lambda expected=logins: len(sts.granted) >= expected)  # type: ignore[misc] # bound at once
        await clock.advance(3300)

    assert len(sts.granted) == 27
    assert front.count("GetSecretValue") == 27


async def test_reads_use_the_old_keys_while_new_ones_are_obtained(
    front: Front, provider: InMemory, sts: Sts, clock: VirtualClock
) -> None:
    first = await _who(provider)
    await clock.advance(HOUR - 200)
    may_respond = asyncio.Event()

    async def slowly(request: RecordedRequest) -> StubResponse:
        await may_respond.wait()
        return sts(request)

    front.respond("AssumeRole", slowly)

    assert {await _who(provider) for _ in range(20)} == {first}
    await _until(lambda: front.count("AssumeRole") == 2)
    may_respond.set()
    await _until(lambda: len(sts.granted) == 2)

    assert await _who(provider) != first
    assert front.count("AssumeRole") == 2


@pytest.mark.usefixtures("sts")
async def test_200_reads_that_find_the_keys_expired_log_in_once(
    front: Front, provider: InMemory, clock: VirtualClock
) -> None:
    first = await _who(provider)
    await clock.advance(2 * HOUR)
    calls = [with_keys(role="app", prefix=f"{number % 10}/") for number in range(200)]

    found = await asyncio.gather(*(_who(provider, call) for call in calls))

    assert len(set(found)) == 1
    assert first not in found
    assert front.count("AssumeRole") == 2


async def test_200_reads_without_keys_share_the_failure_of_one_login(front: Front, provider: InMemory) -> None:
    front.respond("AssumeRole", refused_xml("InternalFailure", status=500))
    calls = [with_keys(role="app", prefix=f"{number % 10}/") for number in range(200)]

    found = await asyncio.gather(*(_error(provider, call) for call in calls))

    assert {error.reason for error in found} == {ErrorReason.BACKEND_UNAVAILABLE}
    assert front.counts == {"AssumeRole": 1}


@pytest.mark.usefixtures("sts")
async def test_while_sts_fails_reads_go_on_with_keys_that_are_still_valid(
    front: Front, provider: InMemory, clock: VirtualClock
) -> None:
    first = await _who(provider)
    front.respond("AssumeRole", refused_xml("InternalFailure", status=500))
    await clock.advance(HOUR - 290)
    for attempts in range(2, 9):
        assert await _who(provider) == first
        await _until(lambda expected=attempts: front.count("AssumeRole") == expected)  # type: ignore[misc] # same
        await clock.advance(30)

    await clock.advance(120)
    assert (await _error(provider)).reason is ErrorReason.BACKEND_UNAVAILABLE


@pytest.mark.parametrize(
    ("result", "reason", "most"),
    [
        pytest.param(refused_xml("AccessDenied"), ErrorReason.PERMISSION_DENIED, 13, id="a denial"),
        pytest.param(refused_xml("InvalidClientTokenId"), ErrorReason.CREDENTIALS_REJECTED, 13, id="wrong keys"),
        pytest.param(refused_xml("Throttling", status=400), ErrorReason.RATE_LIMITED, 26, id="a limit"),
        pytest.param(refused_xml("InternalFailure", status=500), ErrorReason.BACKEND_UNAVAILABLE, 26, id="an outage"),
    ],
)
async def test_a_refused_login_is_not_tried_again_before_a_pause(
    front: Front,
    provider: InMemory,
    clock: VirtualClock,
    *,
    result: StubResponse,
    reason: ErrorReason,
    most: int,
) -> None:
    front.respond("AssumeRole", result)
    messages = set()
    for _ in range(120):
        error = await _error(provider)
        assert error.reason is reason
        messages.add(error.message)
        await clock.advance(5)

    assert 10 <= front.count("AssumeRole") <= most
    assert len(messages) == 1


async def test_a_login_that_was_refused_works_once_it_is_allowed(
    front: Front, provider: InMemory, sts: Sts, clock: VirtualClock
) -> None:
    front.respond("AssumeRole", refused_xml("AccessDenied"))
    error = await _error(provider)
    assert 'role "arn:aws:iam::123456789012:role/app"' in error.message
    assert "sts:AssumeRole" in error.message
    front.respond("AssumeRole", sts)
    await clock.advance(6)

    assert await _who(provider) in sts.granted


async def test_a_new_token_of_a_service_account_need_not_wait_for_the_pause_of_the_old_one(
    front: Front, provider: InMemory, sts: Sts
) -> None:
    front.respond("AssumeRoleWithWebIdentity", refused_xml("ExpiredTokenException", status=400))
    assert (await _error(provider, with_token(token("old token")))).reason is ErrorReason.CREDENTIALS_REJECTED
    front.respond("AssumeRoleWithWebIdentity", sts)
    assert isinstance(await _who(provider, with_token(token("old token"))), ProviderError)

    assert await _who(provider, with_token(token("new token"))) in sts.granted


async def test_revoked_keys_are_replaced_once_for_all_reads_that_meet_them(
    front: Front, provider: InMemory, sts: Sts
) -> None:
    revoked = await _who(provider)

    def service(request: RecordedRequest) -> StubResponse:
        return refused("ExpiredTokenException") if request.key_id == revoked else whoami(request)

    front.respond("GetSecretValue", service)
    calls = [with_keys(role="app", prefix=f"{number % 10}/") for number in range(100)]

    found = await asyncio.gather(*(_who(provider, call) for call in calls))

    assert set(found) == set(sts.granted) - {revoked}
    assert front.count("AssumeRole") == 2


@pytest.mark.usefixtures("sts")
async def test_keys_that_are_rejected_again_and_again_are_replaced_once_a_minute(
    front: Front, provider: InMemory, clock: VirtualClock
) -> None:
    front.respond("GetSecretValue", refused("UnrecognizedClientException"))
    for _ in range(12):
        assert (await _error(provider)).reason is ErrorReason.CREDENTIALS_REJECTED
        await clock.advance(10)

    assert front.count("AssumeRole") == 3


async def test_a_revoked_role_in_the_middle_of_a_chain_is_replaced_too(
    front: Front, provider: InMemory, sts: Sts, clock: VirtualClock
) -> None:
    call = with_keys(role="last", additionalRoles=["first"])
    last = await _who(provider, call)
    assert isinstance(last, str)
    first = sts.granted[last].key_id

    def granting(request: RecordedRequest) -> StubResponse:
        return refused_xml("ExpiredToken") if request.key_id == first else sts(request)

    front.respond("AssumeRole", granting)
    front.respond(
        "GetSecretValue", lambda request: refused("ExpiredToken") if request.key_id == last else whoami(request)
    )
    await clock.advance(120)

    renewed = await _who(provider, call)

    assert isinstance(renewed, str)
    assert sts.granted[renewed].key_id not in ("", first)


async def test_a_call_that_is_cancelled_does_not_take_the_login_from_the_others(
    front: Front, provider: InMemory, sts: Sts
) -> None:
    may_respond = asyncio.Event()

    async def slowly(request: RecordedRequest) -> StubResponse:
        await may_respond.wait()
        return sts(request)

    front.respond("AssumeRole", slowly)
    impatient = asyncio.ensure_future(_who(provider))
    patient = asyncio.ensure_future(_who(provider))
    await _until(lambda: front.count("AssumeRole") == 1)
    impatient.cancel()
    await asyncio.wait([impatient])
    may_respond.set()

    assert isinstance(await patient, str)
    assert front.count("AssumeRole") == 1
