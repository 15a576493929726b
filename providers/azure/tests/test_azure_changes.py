"""Change reports by listing, and their places in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eso_provider_azure.changes import Listing, State, Topics
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import store
from eso_sdk.testing import InMemory
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    Operation,
    RemoteRef,
    SubscribeMessage,
    SubscribeOpen,
    WatchItem,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = (
    WatchItem("one", RemoteRef("db")),
    WatchItem("part", RemoteRef("secret/db", property="user")),
    WatchItem("cert", RemoteRef("cert/site")),
    WatchItem("search", name_regexp="^app-", tags={"team": "blue"}),
    WatchItem("key", RemoteRef("key/db")),
    WatchItem("wrong", RemoteRef("no/such/type")),
)


def listing(seconds: int = 0, **states: State) -> Listing:
    named = {name.replace("_", "-"): each for name, each in states.items()}
    seen = frozenset((name, each.updated) for name, each in named.items() if each.updated < NOW - timedelta(seconds=50))
    return Listing(NOW + timedelta(seconds=seconds), named, 1, seen)


def state(seconds: int = -100, *, enabled: bool = True, team: str = "") -> State:
    return State(NOW + timedelta(seconds=seconds), enabled, {"team": team} if team else {})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(listing(db=state()), listing(30, db=state()), [], id="nothing changed"),
        pytest.param(
            listing(db=state()), listing(30, db=state(20)), [("UPDATED", ("one", "part"))], id="a new version"
        ),
        pytest.param(
            listing(db=state()), listing(30, db=state(enabled=False)), [("UPDATED", ("one", "part"))], id="disabled"
        ),
        pytest.param(listing(db=state()), listing(30), [("DELETED", ("one", "part"))], id="deleted"),
        pytest.param(listing(), listing(30, site=state(20)), [("UPDATED", ("cert",))], id="a certificate"),
        pytest.param(
            listing(app_x=state(team="blue")),
            listing(30, app_x=state(20, team="red")),
            [("UPDATED", ("search",))],
            id="a tag that a search asks for is removed",
        ),
        pytest.param(
            listing(db=state(-1)),
            listing(30, db=state(-1)),
            [("UPDATED", ("one", "part"))],
            id="a change just before a listing may be followed by another in the same second",
        ),
    ],
)
def test_listings_are_compared(before: Listing, after: Listing, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    events = Topics(ITEMS).events(after.changed(before), before, after)

    assert [(event.type.value, event.watch_ids) for event in events] == expected


async def opening(
    items: tuple[WatchItem, ...], token: str, vault: str = "kv-watch", **spec: Any
) -> AsyncIterator[SubscribeMessage]:
    yield SubscribeOpen(store(vault, **spec), items, token)
    await asyncio.Event().wait()


async def test_a_stream_reports_changes_and_resumes(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    contents = azure.vault("kv-watch").contents
    azure.clock_skew = -3600
    contents.put("db", "one")
    azure.clock_skew = 0
    items = (WatchItem("one", RemoteRef("db")),)

    async with aclosing(provider.subscribe(opening(items, ""))) as stream:
        first = await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        contents.put("db", "two")
        event = await anext(each async for each in stream if isinstance(each, ChangeEvent))
    azure.clock_skew = 60
    contents.put("db", "three")
    azure.clock_skew = 0
    async with aclosing(provider.subscribe(opening(items, first.resume_token))) as stream:
        missed = await anext(each async for each in stream if isinstance(each, ChangeEvent))
    async with aclosing(provider.subscribe(opening(items, "not a place"))) as stream:
        lost = await anext(each async for each in stream if isinstance(each, ChangeEvent))

    assert (event.type, event.watch_ids) == (ChangeType.UPDATED, ("one",))
    assert missed.watch_ids == ("one",)
    assert lost.type is ChangeType.RESYNC


async def test_streams_of_one_identity_share_listings(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-shared").contents.put("db", "one")
    azure.calls.clear()

    for _ in range(3):
        async with aclosing(provider.subscribe(opening(ITEMS, "", "kv-shared"))) as stream:
            await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)

    assert len([call for call in azure.asked("GET kv-shared* /secrets") if "Authorization" in call.headers]) == 1


async def test_without_the_right_to_list_the_store_offers_no_changes(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-blind").denied = {"secrets/list"}
    before = await provider.validate(store("kv-blind"))

    with pytest.raises(ProviderError, match="until then refreshInterval counts") as refused:
        async with aclosing(provider.subscribe(opening(ITEMS, "", "kv-blind"))) as stream:
            await anext(each async for each in stream if isinstance(each, ChangeEvent))
    after = await provider.validate(store("kv-blind"))

    assert refused.value.reason is ErrorReason.UNSUPPORTED_OPERATION
    assert before.operations is not None
    assert after.operations == before.operations - {Operation.SUBSCRIBE}


QUEUE: dict[str, Any] = {"changes": {"queueURL": "https://events.queue.core.windows.net/vault-events"}}


async def test_an_event_in_the_queue_is_reported_and_deleted(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    queue, contents = azure.queue("events", "vault-events"), azure.vault("kv-events").contents
    azure.clock_skew = -3600
    contents.put("db", "one")
    azure.clock_skew = 0

    async with aclosing(provider.subscribe(opening(ITEMS[:1], "", "kv-events", **QUEUE))) as stream:
        await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        contents.put("db", "two")
        queue.put("kv-events", "db")
        event = await anext(each async for each in stream if isinstance(each, ChangeEvent))
    verdict = await provider.validate(store("kv-events", **QUEUE))

    assert (event.type, event.watch_ids) == (ChangeType.UPDATED, ("one",))
    assert queue.messages == {}
    assert "https://storage.azure.com/.default" in {call.form()["scope"] for call in azure.asked("POST login.*")}
    assert verdict.conditions == ()


async def test_a_refused_queue_is_said_and_the_vault_is_listed(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    azure.queue("closed", "vault-events").is_denied = True
    spec: dict[str, Any] = {"changes": {"queueURL": "https://closed.queue.core.windows.net/vault-events"}}
    contents = azure.vault("kv-fallen").contents

    async with aclosing(provider.subscribe(opening(ITEMS[:1], "", "kv-fallen", **spec))) as stream:
        await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        contents.put("db", "one")
        event = await anext(each async for each in stream if isinstance(each, ChangeEvent))
        verdict = await provider.validate(store("kv-fallen", **spec))

    assert event.watch_ids == ("one",)
    (condition,) = verdict.conditions
    assert (condition.type, condition.status) == ("ChangeQueue", "False")
    assert 'grant the role "Storage Queue Data Message Processor"' in condition.message


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://evil.example/vault-events", id="a host of others"),
        pytest.param("http://events.queue.core.windows.net/vault-events", id="no TLS"),
        pytest.param("https://events.queue.core.windows.net/", id="no queue"),
        pytest.param("https://events.queue.core.windows.net/q/messages", id="not the queue itself"),
    ],
)
async def test_only_queues_of_the_cloud_get_a_token(url: str, azure: AzureServer, provider: InMemory) -> None:
    azure.calls.clear()

    verdict = await provider.validate(store(changes={"queueURL": url}))

    assert verdict.error is not None
    assert "https://ACCOUNT.queue.core.windows.net/NAME" in verdict.error.message
    assert azure.calls == []
