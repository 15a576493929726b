"""Changes found by looking: one listing a round, whatever is watched, and no values."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from eso_provider_aws.api import CALL_SECONDS
from eso_provider_aws.changes.listings import LONGEST_POLL, MAX_PAGES, PARAMETERS, POLL_SECONDS, REFUSED_SECONDS
from eso_provider_aws.clients import PARAMETER_STORE as SSM
from eso_provider_aws.kinds import PARAMETER_STORE, ParameterStoreConfig
from eso_provider_aws.provider import PROVIDER, SecretsManager
from eso_provider_aws.store import WatchedStore
from eso_provider_aws.testing.front import Front, RecordedRequest, StubResponse, refused
from eso_provider_aws.testing.sessions import Stream, admin, context, key, summary, watching
from eso_sdk.provider import Provider, store_kind
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeType, Operation, RemoteRef, WatchItem
from kubebase.clock import Timer
from kubebase.testing.clock import VirtualClock

UPDATED, DELETED, RESYNC = ChangeType.UPDATED, ChangeType.DELETED, ChangeType.RESYNC


class CallsClock(VirtualClock):
    """Also knows how many calls wait for their response, by their deadlines."""

    calls = 0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = super().call_later(seconds, callback)
        if seconds == pytest.approx(CALL_SECONDS) and isinstance(timer, asyncio.Future):
            self.calls += 1
            timer.add_done_callback(self._ended)
        return timer

    def _ended(self, _: object) -> None:
        self.calls -= 1


class _Parameters(WatchedStore[ParameterStoreConfig]):
    """A store that only reports changes."""

    SERVICE = SSM
    SOURCE = PARAMETERS


Parameters = store_kind(objects=PARAMETER_STORE)(_Parameters)


@pytest.fixture
def clock() -> CallsClock:
    return CallsClock()


@pytest.fixture
async def provider(clock: CallsClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock) as client:
        yield client


@pytest.fixture
def stem() -> str:
    """Return the prefix of the names of a test: servers are shared."""
    return f"{uuid.uuid4().hex}/"


async def rounds(clock: CallsClock, front: Front, count: int, *, call: str = "ListSecrets") -> None:
    """Let so many listings happen, each with time to respond."""
    for _ in range(count):
        await advance(clock, front, POLL_SECONDS, call=call)


async def advance(clock: CallsClock, front: Front, pause: float, *, call: str = "ListSecrets") -> None:
    """Let the next listing happen after a pause, and not before."""
    before = front.count(call)
    await clock.advance(pause - 0.5)
    assert front.count(call) == before
    await clock.advance(0.5)
    async with asyncio.timeout(20):
        while front.count(call) == before or clock.calls:  # noqa: ASYNC110 - neither sets an event
            await asyncio.sleep(0.01)


async def test_a_change_costs_one_listing_a_round_and_no_reads(
    either: Front, provider: InMemory, server: str, clock: CallsClock, *, stem: str
) -> None:
    secrets = admin("secretsmanager", server)
    for name in ("db", "web"):
        secrets.create_secret(Name=f"{stem}{name}", SecretString="1")
    items = (key(f"{stem}db"), key(f"{stem}web"), key(f"{stem}none"))
    async with watching(provider, context(SecretsManager), *items) as stream:
        await stream.opened()
        await rounds(clock, either, 3)
        put = secrets.put_secret_value(SecretId=f"{stem}db", SecretString="2")
        await rounds(clock, either, 1)
        updated = await stream.change()
        secrets.delete_secret(SecretId=f"{stem}web")
        await rounds(clock, either, 1)
        deleted = await stream.change()
        secrets.create_secret(Name=f"{stem}none", SecretString="1")
        await rounds(clock, either, 1)
        created = await stream.change()

    assert (summary(updated), updated.provider_version) == ((UPDATED, (f"{stem}db",)), put["VersionId"])
    assert summary(deleted) == (DELETED, (f"{stem}web",))
    assert summary(created) == (UPDATED, (f"{stem}none",))
    assert either.counts == {"ListSecrets": 7}


async def test_searches_report_new_names_and_of_tags(
    either: Front, provider: InMemory, server: str, clock: CallsClock, *, stem: str
) -> None:
    secrets = admin("secretsmanager", server)
    arn = secrets.create_secret(Name=f"{stem}tagged", SecretString="1", Tags=[{"Key": stem, "Value": "blue"}])["ARN"]
    names, tags = WatchItem("names", name_regexp=f"^{stem}new"), WatchItem("tags", tags={stem: "blue"})
    async with watching(provider, context(SecretsManager), names, tags) as stream:
        await stream.opened()
        secrets.create_secret(Name=f"{stem}new", SecretString="1")
        await rounds(clock, either, 1)
        assert summary(await stream.change()) == (UPDATED, ("names",))
        secrets.tag_resource(SecretId=arn, Tags=[{"Key": stem, "Value": "red"}])
        await rounds(clock, either, 1)
        assert summary(await stream.change()) == (UPDATED, ("tags",))


async def test_a_change_that_keeps_the_watched_version_is_not_announced(
    front: Front, provider: InMemory, secrets_manager: Any, clock: CallsClock, *, stem: str
) -> None:
    name = f"{stem}db"
    arn = secrets_manager.create_secret(Name=name, SecretString="1")["ARN"]
    pending = WatchItem("pending", RemoteRef(name, "AWSPENDING"))
    async with watching(provider, context(SecretsManager, prefix=stem), key("db"), key(arn)) as stream:
        await stream.opened()
        secrets_manager.update_secret(SecretId=name, Description="another")
        secrets_manager.put_secret_value(SecretId=name, SecretString="2", VersionStages=["AWSPENDING"])
        await rounds(clock, front, 1)
        secrets_manager.put_secret_value(SecretId=name, SecretString="3")
        await rounds(clock, front, 1)
        assert summary(await stream.change()) == (UPDATED, ("db",))
    async with watching(provider, context(SecretsManager), pending, key(arn)) as stream:
        await stream.opened()
        secrets_manager.put_secret_value(SecretId=name, SecretString="4", VersionStages=["AWSPENDING"])
        await rounds(clock, front, 1)
        assert summary(await stream.change()) == (UPDATED, ("pending",))
        secrets_manager.put_secret_value(SecretId=name, SecretString="5")
        await rounds(clock, front, 1)
        assert summary(await stream.change()) == (UPDATED, (arn,))


async def test_a_version_that_the_caller_does_not_have_is_reported_at_once(
    front: Front, provider: InMemory, secrets_manager: Any, stem: str
) -> None:
    version = secrets_manager.create_secret(Name=f"{stem}db", SecretString="1")["VersionId"]
    secrets_manager.create_secret(Name=f"{stem}web", SecretString="1")
    items = (key(f"{stem}db", version), key(f"{stem}web", "an older one"), key(f"{stem}gone", "the last one"))
    async with watching(provider, context(SecretsManager), *items) as stream:
        changes = [summary(await stream.change()), summary(await stream.change())]

    assert changes == [(UPDATED, (f"{stem}web",)), (DELETED, (f"{stem}gone",))]
    assert front.counts == {"ListSecrets": 1}


@pytest.mark.usefixtures("front")
async def test_a_change_while_the_stream_opens_is_announced(secrets_manager: Any, stem: str) -> None:
    clock = CallsClock(datetime.now(UTC))
    secrets_manager.create_secret(Name=f"{stem}db", SecretString="1")
    items = (key(f"{stem}none"), key(f"{stem}db"))
    async with InMemory(PROVIDER, clock) as provider, watching(provider, context(SecretsManager), *items) as stream:
        assert summary(await stream.change()) == (UPDATED, (f"{stem}db",))
        await stream.opened()
        stream.watch(key(f"{stem}web"))
        await stream.opened()  # and reported once


# --- resuming --------------------------------------------------------------------------------------------------------


async def test_a_stream_goes_on_where_it_was(
    front: Front, provider: InMemory, secrets_manager: Any, clock: CallsClock, *, stem: str
) -> None:
    for name in ("db", "web"):
        secrets_manager.create_secret(Name=f"{stem}{name}", SecretString="1")
    items, call = (key(f"{stem}db"), key(f"{stem}web")), context(SecretsManager)
    async with watching(provider, call, *items) as stream:
        await stream.opened()
        token = stream.token
    secrets_manager.put_secret_value(SecretId=f"{stem}db", SecretString="2")
    await clock.advance(POLL_SECONDS)

    async with watching(provider, call, *items, resume=token) as stream:
        assert summary(await stream.change()) == (UPDATED, (f"{stem}db",))
        await stream.opened()
        secrets_manager.put_secret_value(SecretId=f"{stem}web", SecretString="2")
        await rounds(clock, front, 1)
        assert summary(await stream.change()) == (UPDATED, (f"{stem}web",))


async def test_a_stream_of_another_process_goes_on_from_the_newest_change_it_saw(
    front: Front, secrets_manager: Any, stem: str
) -> None:
    secrets_manager.create_secret(Name=f"{stem}db", SecretString="1")
    items, call = (key(f"{stem}db"), key(f"{stem}gone")), context(SecretsManager)
    async with InMemory(PROVIDER, CallsClock()) as first, watching(first, call, *items) as stream:
        await stream.opened()
        token = stream.token
    async with InMemory(PROVIDER, CallsClock()) as second:
        async with watching(second, call, *items, resume=token) as stream:
            late = [summary(await stream.change()), summary(await stream.change())]
        *place, stamp = token.split(" ")
        async with watching(second, call, key(f"{stem}db"), resume=f"{' '.join(place)} {float(stamp) + 301}") as stream:
            await stream.opened()
        async with watching(second, call, *items, resume="queue q 1") as stream:
            unknown = await stream.change()

    assert late == [(UPDATED, (f"{stem}db",)), (DELETED, (f"{stem}gone",))]
    assert unknown.type is RESYNC
    assert front.count("GetSecretValue") == 0


async def test_more_watches_report_nothing_about_those_that_were_there(
    front: Front, provider: InMemory, secrets_manager: Any, clock: CallsClock, *, stem: str
) -> None:
    for name in ("db", "web", "zoo"):
        secrets_manager.create_secret(Name=f"{stem}{name}", SecretString="1")
    async with watching(provider, context(SecretsManager), key(f"{stem}db")) as stream:
        await stream.opened()
        for more in ("web", "zoo"):
            stream.watch(key(f"{stem}{more}"))
            await stream.opened()
        secrets_manager.put_secret_value(SecretId=f"{stem}zoo", SecretString="2")
        await rounds(clock, front, 1)
        assert summary(await stream.change()) == (UPDATED, (f"{stem}zoo",))


# --- cost ------------------------------------------------------------------------------------------------------------


def filters(request: RecordedRequest) -> list[Any]:
    return [each["Values"] for each in request.body.get("Filters", ())]


async def test_listings_are_narrowed_to_what_is_watched(front: Front, provider: InMemory, stem: str) -> None:
    few = [key(f"{stem}{number}") for number in range(10)]
    for items in (few, [*few, key(f"{stem}x")], [*few, key("-elsewhere")], [*few, WatchItem("all")]):
        async with watching(provider, context(SecretsManager), *items) as stream:
            await stream.opened()

    narrowed = [filters(request) for request in front.requests]
    assert narrowed == [[[f"{stem}{number}" for number in range(10)]], [[stem]], []]


async def test_stores_of_one_identity_share_their_listings(
    front: Front, provider: InMemory, secrets_manager: Any, clock: CallsClock, *, stem: str
) -> None:
    for name in ("db", "web"):
        secrets_manager.create_secret(Name=f"{stem}{name}", SecretString="1")
    one, other = context(SecretsManager), context(SecretsManager, prefix=stem)
    async with watching(provider, one, key(f"{stem}db")) as first, watching(provider, other, key("web")) as second:
        await first.opened()
        await second.opened()
        front.forget()
        await rounds(clock, front, 2)
        secrets_manager.put_secret_value(SecretId=f"{stem}db", SecretString="2")
        secrets_manager.put_secret_value(SecretId=f"{stem}web", SecretString="2")
        await rounds(clock, front, 1)

        assert summary(await first.change()) == (UPDATED, (f"{stem}db",))
        assert summary(await second.change()) == (UPDATED, ("web",))
        assert front.counts == {"ListSecrets": 3}


async def test_without_a_watch_there_are_no_calls(front: Front, provider: InMemory, clock: CallsClock) -> None:
    async with watching(provider, context(SecretsManager)) as stream:
        await stream.opened()
        await clock.advance(POLL_SECONDS * 4)
    async with watching(provider, context(SecretsManager), key("app")) as stream:
        await stream.opened()
    await clock.advance(POLL_SECONDS * 4)

    assert front.counts == {"ListSecrets": 1}


def _pages(count: int) -> Any:
    def page(request: RecordedRequest) -> StubResponse:
        number = int(request.body.get("NextToken", 1))
        more = f', "NextToken": "{number + 1}"' if number < count else ""
        body = f'{{"SecretList": [{{"Name": "s{number}", "ARN": "a"}}]{more}}}'
        return StubResponse(200, body.encode(), {"Content-Type": "application/x-amz-json-1.1"})

    return page


async def passing(clock: CallsClock, stream: Stream) -> None:
    """Let the pauses between pages pass until the stream has begun."""
    opening = asyncio.ensure_future(stream.opened())
    while not opening.done():
        left = clock.next_wake_up()
        await (clock.advance(left) if left is not None and left <= 1.0 else asyncio.sleep(0.002))
    await opening


@pytest.mark.parametrize(
    ("pages", "pause"), [(1, POLL_SECONDS), (3, 3 * POLL_SECONDS), (12, LONGEST_POLL)], ids=["one", "three", "many"]
)
async def test_rounds_are_the_longer_the_more_pages_they_have(
    front: Front, provider: InMemory, clock: CallsClock, *, pages: int, pause: float
) -> None:
    front.respond("ListSecrets", _pages(pages))
    async with watching(provider, context(SecretsManager), WatchItem("all")) as stream:
        await passing(clock, stream)
        assert front.count("ListSecrets") == pages
        await clock.advance(pause - 1)
        assert front.count("ListSecrets") == pages
        await clock.advance(1.5)
        async with asyncio.timeout(20):
            while front.count("ListSecrets") == pages:  # noqa: ASYNC110 - the front sets no event
                await asyncio.sleep(0.01)


async def test_more_secrets_than_can_be_listed_are_left_to_the_interval(
    front: Front, provider: InMemory, clock: CallsClock
) -> None:
    front.respond("ListSecrets", _pages(MAX_PAGES + 1))
    with pytest.raises(ProviderError) as failed:
        async with watching(provider, context(SecretsManager), WatchItem("all")) as stream:
            await passing(clock, stream)

    assert failed.value.reason is ErrorReason.UNSUPPORTED_OPERATION
    assert "changes.queueURL" in failed.value.message
    assert front.count("ListSecrets") == MAX_PAGES


# --- refusals --------------------------------------------------------------------------------------------------------


async def test_an_identity_that_may_not_list_is_not_called_again_for_half_an_hour(
    front: Front, provider: InMemory, clock: CallsClock
) -> None:
    front.respond("ListSecrets", refused("AccessDeniedException", "CANARY"))
    call = context(SecretsManager)
    for _ in range(3):
        with pytest.raises(ProviderError) as failed:
            async with watching(provider, call, key("app")) as stream:
                await stream.opened()
        assert failed.value.reason is ErrorReason.UNSUPPORTED_OPERATION
        assert "secretsmanager:ListSecrets" in failed.value.message
        assert "CANARY" not in failed.value.message
    assert front.count("ListSecrets") == 1
    assert Operation.SUBSCRIBE not in ((await provider.validate(call)).operations or ())

    front.pass_on()
    await clock.advance(REFUSED_SECONDS)
    async with watching(provider, call, key("app")) as stream:
        await stream.opened()
    assert Operation.SUBSCRIBE in ((await provider.validate(call)).operations or ())


async def test_a_throttled_listing_is_left_alone_and_no_change_is_missed(
    front: Front, provider: InMemory, secrets_manager: Any, clock: CallsClock, *, stem: str
) -> None:
    secrets_manager.create_secret(Name=f"{stem}db", SecretString="1")
    async with watching(provider, context(SecretsManager), key(f"{stem}db")) as stream:
        await stream.opened()
        front.respond("ListSecrets", refused("ThrottlingException"))
        await advance(clock, front, POLL_SECONDS)
        await advance(clock, front, 5.0)
        front.pass_on()
        secrets_manager.put_secret_value(SecretId=f"{stem}db", SecretString="2")
        await advance(clock, front, 10.0)

        assert summary(await stream.change()) == (UPDATED, (f"{stem}db",))
    assert front.counts == {"ListSecrets": 4}


async def test_a_listing_that_keeps_failing_ends_the_stream_with_the_reason(
    front: Front, provider: InMemory, clock: CallsClock
) -> None:
    async with watching(provider, context(SecretsManager), key("app")) as stream:
        await stream.opened()
        front.respond("ListSecrets", refused("InternalServiceError", status=500))
        for pause in (POLL_SECONDS, 5.0, 10.0, 30.0, 60.0):
            await advance(clock, front, pause)
        with pytest.raises(ProviderError) as failed:
            await stream.change()

    assert failed.value.reason is ErrorReason.BACKEND_UNAVAILABLE
    assert front.count("ListSecrets") == 6


# --- parameters ------------------------------------------------------------------------------------------------------


async def test_parameters_are_listed_too(either: Front, server: str, clock: CallsClock, stem: str) -> None:
    parameters = admin("ssm", server)
    for name in ("db", "web"):
        parameters.put_parameter(Name=f"/{stem}{name}", Value="1", Type="String")
    kinds = Provider(name="aws", version="0", kinds=(Parameters,))
    items = (key("db", "1"), key("web", "7"), WatchItem("old", RemoteRef("db", "1"), known_version="1"))
    async with (
        InMemory(kinds, clock) as provider,
        watching(provider, context(Parameters, prefix=f"/{stem}"), *items) as stream,
    ):
        assert summary(await stream.change()) == (UPDATED, ("web",))
        await stream.opened()
        parameters.put_parameter(Name=f"/{stem}db", Value="2", Type="String", Overwrite=True)
        await rounds(clock, either, 1, call="DescribeParameters")
        updated = await stream.change()
        parameters.delete_parameter(Name=f"/{stem}web")
        await rounds(clock, either, 1, call="DescribeParameters")
        deleted = await stream.change()

    assert (summary(updated), updated.provider_version) == ((UPDATED, ("db", "old")), "2")
    assert summary(deleted) == (DELETED, ("web",))
    assert either.counts == {"DescribeParameters": 3}
