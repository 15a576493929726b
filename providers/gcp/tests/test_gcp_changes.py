"""Change events from a Pub/Sub subscription: who is notified, what is acknowledged, and what is redelivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from eso_provider_gcp.provider import PROVIDER
from eso_provider_gcp.testing.sessions import Google, context
from eso_provider_gcp.testing.tokens import SUBSCRIPTION
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    Operation,
    RemoteRef,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    WatchItem,
)
from kubebase.testing.waiting import eventually

CHANGES = {"subscription": SUBSCRIPTION}
SECONDS = 20.0


class Stream:
    """One subscription of an operator."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[SubscribeMessage] = asyncio.Queue()
        self.events: asyncio.Queue[ChangeEvent] = asyncio.Queue()
        self.token = ""

    async def change(self) -> ChangeEvent:
        async with asyncio.timeout(SECONDS):
            return await self.events.get()

    async def acknowledge(self) -> None:
        await self.sent.put(SubscribeAck(self.token))


@asynccontextmanager
async def listening(provider: InMemory, call: Context, *items: WatchItem, resume: str = "") -> AsyncIterator[Stream]:
    """Open a stream, and wait until the store listens."""
    stream, ready = Stream(), asyncio.Event()
    await stream.sent.put(SubscribeOpen(call, items, resume))

    async def messages() -> AsyncIterator[SubscribeMessage]:
        while True:
            yield await stream.sent.get()

    async def follow() -> None:
        async with aclosing(provider.subscribe(messages())) as events:
            async for event in events:
                if event.resume_token:
                    stream.token = event.resume_token
                    ready.set()
                if isinstance(event, ChangeEvent):
                    await stream.events.put(event)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(follow())
        async with asyncio.timeout(SECONDS):
            await asyncio.wait((asyncio.ensure_future(ready.wait()), task), return_when=asyncio.FIRST_COMPLETED)
        yield stream
        task.cancel()


def watch(key: str, watch_id: str = "one") -> WatchItem:
    return WatchItem(watch_id, RemoteRef(key))


async def test_a_new_version_is_told_and_acknowledged_when_it_was_read(
    google: Google, provider: InMemory, name: str
) -> None:
    google.store(name, b"one")
    google.pubsub.reset()
    async with listening(provider, context(google, changes=CHANGES), watch(name)) as stream:
        google.store(f"{name}-unwatched")
        google.pubsub.announce("AddSecretVersion", f"projects/1/secrets/{name}/versions/2")
        event = await stream.change()
        assert (event.type, event.watch_ids, event.provider_version) == (ChangeType.UPDATED, ("one",), "2")
        await eventually(lambda: len(google.pubsub.acknowledged) == 1)  # of the unwatched one
        await stream.acknowledge()
        await eventually(lambda: len(google.pubsub.acknowledged) == 2)
        assert not google.pubsub.out


async def test_what_was_not_acknowledged_is_told_again(google: Google, provider: InMemory, name: str) -> None:
    call = context(google, changes=CHANGES)
    async with listening(provider, call, watch(name)) as stream:
        google.pubsub.announce("AddSecretVersion", f"projects/1/secrets/{name}/versions/2")
        await stream.change()
    async with InMemory(PROVIDER) as another:
        google.pubsub.redeliver()
        async with listening(another, call, watch(name), resume=stream.token) as again:
            assert (await again.change()).type is ChangeType.RESYNC
            assert (await again.change()).type is ChangeType.UPDATED


async def test_a_stream_goes_on_from_its_place(google: Google, provider: InMemory, name: str) -> None:
    call = context(google, changes=CHANGES)
    async with listening(provider, call, watch(name)) as stream:
        google.pubsub.announce("AddSecretVersion", f"projects/1/secrets/{name}/versions/2")
        await stream.change()
        async with listening(provider, call, watch(name), resume=stream.token) as again:
            google.pubsub.announce("DeleteSecret", f"projects/1/secrets/{name}")
            event = await again.change()
            assert (event.type, event.provider_version) == (ChangeType.DELETED, "")


async def test_stores_of_one_identity_share_the_pulls_and_are_all_told(
    google: Google, provider: InMemory, name: str
) -> None:
    one, two = (context(google, namespace=each, changes=CHANGES) for each in ("team-a", "team-b"))
    async with (
        listening(provider, one, watch(name)) as first,
        listening(provider, two, WatchItem("query", name_regexp=f"^{name}")) as second,
    ):
        google.pubsub.announce("AddSecretVersion", f"projects/1/secrets/{name}/versions/2")
        assert (await first.change()).watch_ids == ("one",)
        assert (await second.change()).watch_ids == ("query",)
        await first.acknowledge()
        await second.acknowledge()
        await eventually(lambda: len(google.pubsub.acknowledged) == 1)


async def test_changes_of_another_location_are_not_told(google: Google, provider: InMemory, name: str) -> None:
    call = context(google, changes=CHANGES, location="europe-west3")
    async with listening(provider, call, watch(name)) as stream:
        google.pubsub.announce("UpdateSecret", f"projects/1/secrets/{name}")
        google.pubsub.announce("AddSecretVersion", f"projects/1/locations/europe-west3/secrets/{name}/versions/5")
        assert (await stream.change()).provider_version == "5"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param("SECRET_CREATE", ChangeType.UPDATED, id="created"),
        pytest.param("SECRET_UPDATE", ChangeType.UPDATED, id="labels changed"),
        pytest.param("SECRET_VERSION_ADD", ChangeType.UPDATED, id="a version"),
        pytest.param("SECRET_VERSION_ENABLE", ChangeType.UPDATED, id="a version enabled"),
        pytest.param("SECRET_VERSION_DISABLE", ChangeType.UPDATED, id="a version disabled"),
        pytest.param("SECRET_VERSION_DESTROY", ChangeType.UPDATED, id="a version destroyed"),
        pytest.param("SECRET_VERSION_DESTROY_SCHEDULED", ChangeType.UPDATED, id="a version to be destroyed later"),
        pytest.param("SECRET_DELETE", ChangeType.DELETED, id="deleted"),
    ],
)
async def test_every_change_of_a_secret_is_told(
    google: Google, provider: InMemory, name: str, event: str, expected: ChangeType
) -> None:
    async with listening(provider, context(google, changes=CHANGES), watch(name)) as stream:
        google.pubsub.publish({"eventType": event, "secretId": f"projects/1/secrets/{name}"})
        assert (await stream.change()).type is expected


async def test_events_that_change_no_value_are_acknowledged_and_not_told(
    google: Google, provider: InMemory, name: str
) -> None:
    async with listening(provider, context(google, changes=CHANGES), watch(name)) as stream:
        google.pubsub.publish({"eventType": "TOPIC_CONFIGURED"})
        google.pubsub.publish({"eventType": "SECRET_ROTATE", "secretId": f"projects/1/secrets/{name}"})
        google.pubsub.publish({"eventType": "SOMETHING_NEW", "secretId": f"projects/1/secrets/{name}"})
        await eventually(lambda: len(google.pubsub.acknowledged) == 3)
        assert stream.events.empty()


@pytest.mark.parametrize(
    ("status", "subscription", "reason"),
    [
        pytest.param(403, SUBSCRIPTION, ErrorReason.PERMISSION_DENIED, id="denied"),
        pytest.param(0, "no-such-subscription", ErrorReason.CONFIG_INVALID, id="absent"),
    ],
)
async def test_a_subscription_that_cannot_be_read_ends_the_stream(
    google: Google, provider: InMemory, status: int, subscription: str, reason: ErrorReason
) -> None:
    google.pubsub.refuse = status
    with pytest.raises(BaseExceptionGroup) as caught:
        async with listening(provider, context(google, changes={"subscription": subscription}), watch("a")) as stream:
            await stream.change()
    failed = caught.value.exceptions[0]
    assert isinstance(failed, ProviderError)
    assert failed.reason is reason
    assert f'subscription "projects/my-project-1/subscriptions/{subscription}"' in failed.message


async def test_only_a_store_with_a_subscription_offers_changes(google: Google, provider: InMemory) -> None:
    offered = {}
    for named, call in {"with": context(google, changes=CHANGES), "without": context(google)}.items():
        validation = await provider.validate(call)
        assert validation.operations is not None
        offered[named] = Operation.SUBSCRIBE in validation.operations
    assert offered == {"with": True, "without": False}
