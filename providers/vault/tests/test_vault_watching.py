"""Change detection: by scanning OpenBao's metadata, and by Vault Enterprise's event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from eso_provider_vault.changes import POLL_SECONDS
from eso_provider_vault.provider import PROVIDER
from eso_provider_vault.store import VaultStore
from eso_provider_vault.testing.events import EventServer
from eso_provider_vault.testing.openbao import OpenBao
from eso_sdk.addresses import AddressPolicy
from eso_sdk.testing import InMemory, call_context
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import (
    ChangeEvent,
    ChangeType,
    Context,
    Heartbeat,
    Operation,
    RemoteRef,
    SubscribeOpen,
    ValidationState,
    WatchItem,
)
from kubebase.clock import SystemClock

StoreMaker = Callable[..., Context]
UPDATED, DELETED, RESYNC = ChangeType.UPDATED, ChangeType.DELETED, ChangeType.RESYNC


class QuickClock(SystemClock):
    """Real time in which the pauses between looks pass at once, one for each `release` of the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        if seconds == POLL_SECONDS:
            await self.gate.acquire()
        else:
            await super().sleep(min(seconds, 0.01) if seconds < 30 else seconds)


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
async def provider(clock: QuickClock) -> AsyncIterator[InMemory]:
    async with InMemory(PROVIDER, clock, addresses=AddressPolicy.parse(["loopback"])) as client:
        yield client


class Stream:
    """A subscription whose changes a test takes one by one."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self.token = ""

    async def change(self) -> ChangeEvent:
        """The next change; heartbeats only leave their token."""
        async with asyncio.timeout(20):
            async for event in self._events:
                self.token = event.resume_token or self.token
                if isinstance(event, ChangeEvent):
                    return event
        raise AssertionError("the stream ended")

    async def opened(self, *, with_token: bool = True) -> None:
        """Until the provider has had its first look."""
        async with asyncio.timeout(20):
            async for event in self._events:
                assert isinstance(event, Heartbeat), event
                self.token = event.resume_token or self.token
                if self.token or not with_token:
                    return


@asynccontextmanager
async def watching(provider: InMemory, context: Context, *items: WatchItem, resume: str = "") -> AsyncIterator[Stream]:
    done = asyncio.Event()

    async def messages() -> AsyncIterator[SubscribeOpen]:
        yield SubscribeOpen(context, items, resume)
        await done.wait()

    async with aclosing(provider.subscribe(messages())) as events:
        try:
            yield Stream(events)
        finally:
            done.set()


def key(name: str, known_version: str = "") -> WatchItem:
    return WatchItem(name, RemoteRef(name), known_version=known_version)


def reported(event: ChangeEvent) -> tuple[ChangeType, tuple[str, ...]]:
    return event.type, event.watch_ids


# --- OpenBao: one SCAN a round ----------------------------------------------------------------------------------------


@pytest.fixture
async def stable(bao: OpenBao, mount: str) -> str:
    """An engine whose keys were written long enough ago not to count as written while a stream opens."""
    for name in ("app/db", "app/web", "other"):
        bao.put(mount, name, {"a": "b"})
    bao.must("POST", f"{mount}/metadata/other", {"custom_metadata": {"team": "blue"}})
    await SystemClock().sleep(5.5)
    return mount


async def test_changes_are_found_with_one_request_per_round(
    bao: OpenBao, stable: str, provider: InMemory, *, store: StoreMaker, clock: QuickClock
) -> None:
    async with watching(provider, store(stable), key("app/db", "1"), key(f"{stable}/app/web", "1")) as stream:
        await stream.opened()
        mark = bao.mark()
        clock.gate.release()
        clock.gate.release()
        bao.put(stable, "app/db", {"a": "c"})
        clock.gate.release()

        updated = await stream.change()

        assert reported(updated) == (UPDATED, ("app/db",))
        assert updated.provider_version == "2"
        asked = [(operation, path) for operation, path in bao.audited(mark).requests if operation != "update"]
        asked = [one for one in asked if one != ("read", "auth/token/lookup-self")]  # once for each token
        assert set(asked) == {("scan", f"{stable}/detailed-metadata/app/")}

        bao.must("DELETE", f"{stable}/data/app/db")
        clock.gate.release()
        assert reported(await stream.change()) == (DELETED, ("app/db",))
        bao.must("DELETE", f"{stable}/metadata/app/web")
        clock.gate.release()
        assert reported(await stream.change()) == (DELETED, (f"{stable}/app/web",))
        bao.put(stable, "app/web", {"a": "again"})
        clock.gate.release()
        assert reported(await stream.change()) == (UPDATED, (f"{stable}/app/web",))


async def test_searches_hear_of_new_keys_and_of_metadata(
    bao: OpenBao, stable: str, provider: InMemory, *, store: StoreMaker, clock: QuickClock
) -> None:
    names = WatchItem("names", name_regexp="^app/")
    tags = WatchItem("tags", tags={"team": "blue"})
    async with watching(provider, store(stable), names, tags) as stream:
        await stream.opened()
        bao.put(stable, "app/new", {"a": "b"})
        clock.gate.release()
        assert reported(await stream.change()) == (UPDATED, ("names",))
        bao.must("POST", f"{stable}/metadata/other", {"custom_metadata": {"team": "red"}})
        clock.gate.release()
        assert reported(await stream.change()) == (UPDATED, ("tags",))


async def test_a_version_that_the_caller_does_not_have_is_told_at_once(
    bao: OpenBao, stable: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.must("DELETE", f"{stable}/data/app/web")
    items = (key("app/db", "7"), key("app/web", "1"), key("other", "1"))

    async with watching(provider, store(stable), *items) as stream:
        changes = {reported(await stream.change()), reported(await stream.change())}

    assert changes == {(UPDATED, ("app/db",)), (DELETED, ("app/web",))}


async def test_a_stream_goes_on_where_it_was(bao: OpenBao, stable: str, provider: InMemory, store: StoreMaker) -> None:
    items = (key("app/db"), key("app/web"), key("other"))
    async with watching(provider, store(stable), *items) as stream:
        await stream.opened()
        token = stream.token
    bao.put(stable, "app/db", {"a": "without a listener"})
    bao.must("DELETE", f"{stable}/metadata/other")

    async with watching(provider, store(stable), *items, resume=token) as stream:
        changes = {reported(await stream.change()), reported(await stream.change())}
    async with watching(provider, store(stable), *items, resume="of another sort") as stream:
        unknown = await stream.change()

    assert changes == {(UPDATED, ("app/db",)), (DELETED, ("other",))}
    assert unknown.type is RESYNC


async def test_a_thousand_unchanged_keys_cost_one_request_a_round(
    bao: OpenBao, mount: str, provider: InMemory, *, store: StoreMaker, clock: QuickClock
) -> None:
    for number in range(1000):
        bao.put(mount, f"k/{number}", {"a": "b"})
    items = [key(f"k/{number}", "1") for number in range(1000)]
    async with watching(provider, store(mount), *items) as stream:
        await stream.opened()
        mark = bao.mark()
        for _ in range(3):
            clock.gate.release()
        bao.put(mount, "k/7", {"a": "c"})
        clock.gate.release()

        changed = await stream.change()

        assert reported(changed) == (UPDATED, ("k/7",))
        scans = bao.audited(mark).count("scan")
        assert 1 <= scans <= 5
        assert bao.audited(mark).count(path=mount) == scans + 1  # the look at the token may fall into this time


async def test_a_store_that_cannot_tell_says_so(
    bao: OpenBao, mount: str, provider: InMemory, store: StoreMaker
) -> None:
    bao.policy(mount, f'path "{mount}/data/*" {{ capabilities = ["read"] }}')

    with pytest.raises(ProviderError) as refused:
        async with watching(provider, store(mount, token=bao.token(mount)), key("app")) as stream:
            await stream.change()

    assert refused.value.reason is ErrorReason.UNSUPPORTED_OPERATION
    assert "grant scan" in refused.value.message


# --- Vault Enterprise: the event stream -------------------------------------------------------------------------------


def enterprise(server: EventServer) -> Context:
    auth = {"tokenSecretRef": {"name": "vault", "key": "token"}}
    spec = {"server": server.url, "path": "kv", "namespace": "team", "auth": auth}
    return call_context(VaultStore, spec, {"/auth/tokenSecretRef": "hvs.CANARYtoken"})


async def test_events_become_changes_of_the_watched_keys(provider: InMemory) -> None:
    async with EventServer.listening() as server:
        items = (key("app/db"), WatchItem("names", name_regexp="^app/"))
        async with watching(provider, enterprise(server), *items) as stream:
            await stream.opened(with_token=False)
            await server.connected.acquire()
            await server.send("other", "app/db")
            await server.send("kv", "unwatched")
            await server.send_text("no JSON")
            await server.send_text('{"data":[]}')
            await server.send("kv", "app/db", version=4)
            written = await stream.change()
            await server.send("kv", "app/db", "metadata-delete")
            deleted = await stream.change()

    assert reported(written) == (UPDATED, ("app/db", "names"))
    assert written.provider_version == "4"
    assert reported(deleted) == (DELETED, ("app/db", "names"))
    (upgrade,) = [seen for seen in server.requests if "upgrade" in seen.headers]
    assert upgrade.target.endswith("?json=true")
    assert upgrade.headers["x-vault-token"] == "hvs.CANARYtoken"
    assert upgrade.headers["x-vault-namespace"] == "team"


async def test_a_broken_stream_is_opened_again_and_everything_is_read_again(provider: InMemory) -> None:
    async with EventServer.listening() as server, watching(provider, enterprise(server), key("app")) as stream:
        await stream.opened(with_token=False)
        await server.connected.acquire()
        server.drop()

        lost = await stream.change()
        await server.connected.acquire()
        await server.send("kv", "app")
        after = await stream.change()

    assert lost.type is RESYNC
    assert reported(after) == (UPDATED, ("app",))


async def test_a_stream_that_cannot_be_opened_ends_with_the_reason(provider: InMemory) -> None:
    async with EventServer.listening() as server:
        context = enterprise(server)
        await provider.validate(context)
        server.refuse = 503

        with pytest.raises(ProviderError) as failed:
            async with watching(provider, context, key("app")) as stream:
                await stream.change()

    assert failed.value.reason is ErrorReason.BACKEND_ERROR
    assert "CANARY" not in failed.value.message


@pytest.mark.parametrize("status", [200, 302, 401, 404, 429, 503])
async def test_a_store_is_ready_although_nothing_tells_of_changes(provider: InMemory, status: int) -> None:
    async with EventServer.listening() as server:
        server.refuse = status

        validation = await provider.validate(enterprise(server))

    assert validation.state is ValidationState.READY
    assert Operation.SUBSCRIBE not in (validation.operations or ())


async def test_an_event_stream_is_offered(provider: InMemory) -> None:
    async with EventServer.listening() as server:
        validation = await provider.validate(enterprise(server))

    assert Operation.SUBSCRIBE in (validation.operations or ())
