"""Change reports by listing, and their places in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eso_provider_azure.changes import Listing, State, Topics, position_of, token_of
from eso_provider_azure.login import runtime_of
from eso_provider_azure.provider import PROVIDER
from eso_provider_azure.testing.server import AzureServer
from eso_provider_azure.testing.sessions import store
from eso_provider_azure.vault import Kind
from eso_sdk.addresses import AddressPolicy
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
    known = frozenset(
        (name, each.updated) for name, each in named.items() if each.updated < NOW - timedelta(seconds=50)
    )
    return Listing(NOW + timedelta(seconds=seconds), named, 1, known)


def state(seconds: int = -100, *, enabled: bool = True, team: str = "") -> State:
    return State(NOW + timedelta(seconds=seconds), enabled, {"team": team} if team else {})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(listing(db=state()), listing(30, db=state()), [], id="nothing changed"),
        pytest.param(
            listing(db=state()), listing(30, db=state(team="red")), [("UPDATED", ("one", "part"))], id="a tag alone"
        ),
        pytest.param(listing(), listing(30, site=state(20)), [], id="the secret of a certificate that is watched"),
        pytest.param(
            listing(db=state()), listing(30, db=state(20)), [("UPDATED", ("one", "part"))], id="a new version"
        ),
        pytest.param(
            listing(db=state()), listing(30, db=state(enabled=False)), [("UPDATED", ("one", "part"))], id="disabled"
        ),
        pytest.param(listing(db=state()), listing(30), [("DELETED", ("one", "part"))], id="deleted"),
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
    events = Topics(ITEMS).events(Kind.SECRET, after.changed(before), (before, after))

    assert [(event.type.value, event.watch_ids) for event in events] == expected


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        pytest.param(Kind.CERTIFICATE, "site", [("cert",)], id="a certificate"),
        pytest.param(Kind.KEY, "db", [("key",)], id="a key that has the name of a secret"),
        pytest.param(Kind.CERTIFICATE, "app-x", [], id="a certificate is not searched for"),
    ],
)
def test_changes_of_keys_and_certificates_reach_their_own_watches(
    kind: Kind, name: str, expected: list[tuple[str, ...]]
) -> None:
    before, after = listing(), Listing(NOW, {name: state(20, team="blue")}, 1)

    events = Topics(ITEMS).events(kind, after.changed(before), (before, after))

    assert [event.watch_ids for event in events] == expected


@pytest.mark.parametrize(
    ("items", "kinds"),
    [
        pytest.param(ITEMS[:1], (Kind.SECRET,), id="secrets"),
        pytest.param(ITEMS[2:3], (Kind.CERTIFICATE,), id="certificates"),
        pytest.param(ITEMS[3:4], (Kind.SECRET,), id="a search"),
        pytest.param(ITEMS, (Kind.SECRET, Kind.KEY, Kind.CERTIFICATE), id="all of them"),
        pytest.param((), (Kind.SECRET,), id="nothing"),
    ],
)
def test_only_watched_kinds_are_listed(items: tuple[WatchItem, ...], kinds: tuple[Kind, ...]) -> None:
    assert Topics(items).kinds == kinds


@pytest.mark.parametrize(
    ("token", "position"),
    [
        pytest.param("secret=2026-01-01T00:00:00+00:00", {Kind.SECRET: NOW}, id="one kind"),
        pytest.param(
            token_of({Kind.KEY: NOW, Kind.CERTIFICATE: NOW + timedelta(1)}),
            {Kind.KEY: NOW, Kind.CERTIFICATE: NOW + timedelta(1)},
            id="two kinds",
        ),
        pytest.param("2026-01-01T00:00:00+00:00", {Kind.SECRET: NOW}, id="of a release that watched secrets only"),
        pytest.param("secret=2026-01-01T00:00:00", {}, id="without a zone"),
        pytest.param("other=2026-01-01T00:00:00+00:00", {}, id="of an unknown kind"),
        pytest.param("not a place", {}, id="not a place"),
    ],
)
def test_a_token_names_a_place_for_each_kind(token: str, position: dict[Kind, datetime]) -> None:
    assert position_of(token) == position


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


BODIES: dict[str, dict[str, Any]] = {
    "secrets": {"value": "one"},
    "keys": {"key": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}},
    "certificates": {"cer": "AA=="},
}


@pytest.mark.parametrize(
    ("item", "collection"),
    [
        pytest.param(ITEMS[0], "secrets", id="a secret"),
        pytest.param(ITEMS[4], "keys", id="a key"),
        pytest.param(WatchItem("cert", RemoteRef("cert/db")), "certificates", id="a certificate"),
    ],
)
async def test_a_new_version_a_tag_and_a_deletion_are_reported(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch, item: WatchItem, collection: str
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    vault, body = f"kv-{collection}", BODIES[collection]
    contents = azure.vault(vault).contents
    azure.clock_skew = -3600
    contents.add(collection, "db", body, {})
    azure.clock_skew = 0
    azure.calls.clear()
    found: list[ChangeEvent] = []

    async with aclosing(provider.subscribe(opening((item,), "", vault))) as stream:
        await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        contents.add(collection, "db", body, {})
        found.append(await anext(each async for each in stream if isinstance(each, ChangeEvent)))
        contents.current(collection, "db").tags["team"] = "blue"
        found.append(await anext(each async for each in stream if isinstance(each, ChangeEvent)))
        contents.delete(collection, "db")
        found.append(
            await anext(
                each async for each in stream if isinstance(each, ChangeEvent) and each.type is ChangeType.DELETED
            )
        )

    assert [event.type for event in found] == [ChangeType.UPDATED, ChangeType.UPDATED, ChangeType.DELETED]
    assert {event.watch_ids for event in found} == {(item.watch_id,)}
    listed = {call.path for call in azure.requests(f"GET {vault}* *")}
    assert listed == {f"/{collection}"}


async def test_a_stream_that_breaks_between_two_changes_loses_neither(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    contents = azure.vault("kv-broken").contents
    items = tuple(WatchItem(name, RemoteRef(name)) for name in ("a", "b"))
    azure.clock_skew = -3600
    for name in "ab":
        contents.put(name, "one")
    azure.clock_skew = 0

    async with aclosing(provider.subscribe(opening(items, "", "kv-broken"))) as stream:
        await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        azure.clock_skew = -1800
        contents.put("b", "two")
        azure.clock_skew = -900
        contents.put("a", "two")
        azure.clock_skew = 0
        first = await anext(each async for each in stream if isinstance(each, ChangeEvent))
    async with (
        asyncio.timeout(60),
        aclosing(provider.subscribe(opening(items, first.resume_token, "kv-broken"))) as stream,
    ):
        await anext(each async for each in stream if isinstance(each, ChangeEvent) and each.watch_ids == ("b",))

    assert first.watch_ids == ("a",)


async def test_a_key_that_changed_between_two_streams_is_reported(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    contents, body = azure.vault("kv-gap").contents, BODIES["keys"]
    azure.clock_skew = -3600
    contents.add("keys", "db", body, {})
    azure.clock_skew = -1800
    contents.add("keys", "the-last-change", body, {})
    contents.put("the-last-change", "one")
    azure.clock_skew = 0

    async with aclosing(provider.subscribe(opening(ITEMS, "", "kv-gap"))) as stream:
        first = await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
    contents.add("keys", "db", body, {})
    async with aclosing(provider.subscribe(opening(ITEMS, first.resume_token, "kv-gap"))) as stream:
        missed = await anext(
            each async for each in stream if isinstance(each, ChangeEvent) and each.type is ChangeType.UPDATED
        )

    assert missed.watch_ids == ("key",)


async def test_a_secret_without_a_time_of_change_is_reported_once_it_has_one(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    contents = azure.vault("kv-old").contents
    contents.put("db", "one")
    old = contents.current("secrets", "db").attributes
    del old["updated"], old["created"]

    async with aclosing(provider.subscribe(opening(ITEMS[:1], "", "kv-old"))) as stream:
        quiet = [each async for each in first_heartbeats(stream, 3) if isinstance(each, ChangeEvent)]
        contents.put("db", "two")
        event = await anext(each async for each in stream if isinstance(each, ChangeEvent))

    assert len(quiet) <= 1
    assert event.watch_ids == ("one",)


async def first_heartbeats(stream: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    """Yield events up to the heartbeat with this number."""
    async for each in stream:
        count -= isinstance(each, Heartbeat) and bool(each.resume_token)
        if not count:
            return
        yield each


async def test_a_kind_that_may_not_be_listed_does_not_hide_changes_of_the_others(
    azure: AzureServer, provider: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESO_PROVIDER_AZURE_LOOK_SECONDS", "1")
    vault = azure.vault("kv-half")
    vault.denied = {"keys/list"}

    async with aclosing(provider.subscribe(opening(ITEMS, "", "kv-half"))) as stream:
        await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)
        vault.contents.put("db", "one")
        event = await anext(each async for each in stream if isinstance(each, ChangeEvent))
        verdict = await provider.validate(store("kv-half"))

    assert event.watch_ids == ("one", "part")
    (condition,) = verdict.conditions
    assert (condition.type, condition.reason) == ("ChangeListing", "ListRefused")
    assert 'grant the role "Key Vault Crypto User", or list on keys' in condition.message
    assert verdict.operations is None or Operation.SUBSCRIBE in verdict.operations


async def test_streams_of_one_identity_share_listings(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-shared").contents.put("db", "one")
    azure.calls.clear()

    for _ in range(3):
        async with aclosing(provider.subscribe(opening(ITEMS, "", "kv-shared"))) as stream:
            await anext(each async for each in stream if isinstance(each, Heartbeat) and each.resume_token)

    for collection in ("secrets", "keys", "certificates"):
        calls = azure.requests(f"GET kv-shared* /{collection}")
        assert len([call for call in calls if "Authorization" in call.headers]) == 1


async def test_without_the_right_to_list_the_store_offers_no_changes(azure: AzureServer, provider: InMemory) -> None:
    azure.vault("kv-blind").denied = {"secrets/list", "keys/list", "certificates/list"}
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
    assert "https://storage.azure.com/.default" in {call.form()["scope"] for call in azure.requests("POST login.*")}
    assert verdict.conditions == ()


@pytest.mark.usefixtures("azure")
async def test_the_last_store_of_a_queue_closes_it() -> None:
    async with InMemory(PROVIDER, addresses=AddressPolicy.parse(["loopback"])) as provider:
        await provider.validate(store("kv-events", **QUEUE))
        queues = runtime_of(provider.clock)._queues
        assert len(queues) == 1

    assert queues == {}


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
