"""The suite's results for providers whose backend keeps events until they are deleted: correct ones, and others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from eso_conformance import CaseResult, Profile, Target, Verdict, run
from eso_conformance.fixture import Fixture, from_plain
from eso_conformance.subject import Identity
from eso_sdk.errors import unavailable
from eso_sdk.provider import Pushed
from eso_sdk.testing.scripted import SCRIPTED, Script
from eso_sdk.testing.server import CLIENT_ID, ProviderServer
from eso_wire.values import ChangeEvent, ChangeType, PushItem, PushOutcome, WatchItem

GOES_ON = "acknowledge: goes on with the stream after an acknowledgement"
IGNORES = "acknowledge: ignores an acknowledgement whose token it does not know"
REPEATS_NOTHING = "acknowledge: does not repeat what was acknowledged when a stream is taken up again"


@dataclass
class Mailbox:
    """A queue: every push adds a message, and each stream receives all messages that are not yet consumed."""

    messages: dict[str, str] = field(default_factory=dict)
    """Keys by message id, in order."""
    count: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def push(self, _: Any, item: PushItem) -> Pushed:
        self.count += 1
        self.messages[f"m{self.count}"] = item.remote.key
        self.news.set()
        self.news = asyncio.Event()
        return Pushed(PushOutcome.CREATED)

    async def subscribe(self, _: Any, items: Sequence[WatchItem], token: str) -> AsyncIterator[ChangeEvent]:
        del token  # it acknowledges nothing
        watches = {item.ref.key: item.watch_id for item in items if item.ref is not None}
        describe_error: set[str] = set()
        while True:
            news = self.news
            for message, key in [each for each in self.messages.items() if each[0] not in describe_error]:
                describe_error.add(message)
                if key in watches:
                    yield ChangeEvent(ChangeType.UPDATED, (watches[key],), resume_token=message)
            await news.wait()

    async def acknowledged(self, _: Any, token: str) -> None:
        if token not in self.messages:
            return
        for message in list(self.messages):
            del self.messages[message]
            if message == token:
                return


class Hoarding(Mailbox):
    """Takes nothing off."""

    async def acknowledged(self, _: Any, token: str) -> None:
        del token


class Failing(Mailbox):
    """Cannot take anything off. The SDK keeps that from the stream."""

    async def acknowledged(self, _: Any, token: str) -> None:
        raise unavailable(f"the queue is gone at {token}")


class Nameless(Mailbox):
    """Its places have no names."""

    async def subscribe(self, _: Any, items: Sequence[WatchItem], token: str) -> AsyncIterator[ChangeEvent]:
        async for event in super().subscribe(_, items, token):
            yield ChangeEvent(event.type, event.watch_ids)


class Forgetful(Mailbox):
    """Knows no place of an earlier stream."""

    async def subscribe(self, _: Any, items: Sequence[WatchItem], token: str) -> AsyncIterator[ChangeEvent]:
        if token:
            yield ChangeEvent(ChangeType.RESYNC, resume_token=token)
        async for event in super().subscribe(_, items, token):
            yield event


async def tried(mailbox: Mailbox) -> dict[str, CaseResult]:
    """The results of the profile, by case."""
    script = Script.new(push=mailbox.push, subscribe=mailbox.subscribe, acknowledged=mailbox.acknowledged)
    known: Fixture = from_plain({"kinds": [{"kind": "Scripted", "spec": {"script": script.name}}]})
    async with ProviderServer(SCRIPTED) as server:
        client = server.authority.leaf(CLIENT_ID)
        target = Target(server.address, Identity(client.ca, client.certificate, client.key.reveal()))
        return {str(one.case): one async for one in run(target, [Profile.SUBSCRIBE], known)}


@pytest.mark.parametrize(
    ("mailbox", "verdict", "why"),
    [
        pytest.param(Mailbox, Verdict.PASSED, "", id="one that takes off what is acknowledged"),
        pytest.param(Hoarding, Verdict.FAILED, "comes again", id="one that takes nothing off"),
        pytest.param(Failing, Verdict.FAILED, "comes again", id="one that fails to take anything off"),
        pytest.param(Nameless, Verdict.NOT_APPLICABLE, "gives no resume tokens", id="one that cannot resume"),
        pytest.param(Forgetful, Verdict.NOT_APPLICABLE, "asks for a resync", id="one that asks for a resync"),
    ],
)
async def test_an_acknowledged_event_does_not_come_again(
    mailbox: Callable[[], Mailbox], verdict: Verdict, why: str
) -> None:
    found = (await tried(mailbox()))[REPEATS_NOTHING]

    assert (found.verdict, why in found.why) == (verdict, True), found.why


async def test_a_queue_that_keeps_everything_keeps_its_streams_too() -> None:
    """So it is what comes again that the suite holds against it, and nothing else."""
    results = await tried(Hoarding())

    assert [name for name, one in results.items() if one.verdict is Verdict.FAILED] == [REPEATS_NOTHING]


async def test_a_provider_without_tokens_is_still_tried_with_one_it_cannot_know() -> None:
    results = await tried(Nameless())

    assert results[IGNORES].verdict is Verdict.PASSED
    assert results[GOES_ON].verdict is Verdict.NOT_APPLICABLE
    assert "nothing to acknowledge" in results[GOES_ON].why
