"""Reports changes of secrets by listing them without their values: 25 to a page, with the time of their last change.

With a queue (`queue.py`), an event causes the listing; without one, time does.

A place in a stream is the time of the last change in a listing, by the clock of the vault. A stream that resumes there
reports everything that changed since, at whichever replica. A certificate shows in the list, because each one has a
secret. Changes of keys do not show; keys are read at the interval only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from weakref import WeakKeyDictionary

from eso_provider_azure.api import Api, vault_itself
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import tags_of
from eso_provider_azure.queue import POLL_SECONDS as POLL_QUEUE_SECONDS
from eso_provider_azure.queue import Bell
from eso_provider_azure.vault import Vault
from eso_sdk.errors import unsupported
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, ConditionReport, FindQuery, Heartbeat, WatchItem

POLL_SECONDS: Final = 30.0
"""Seconds between two listings; `ESO_PROVIDER_AZURE_LOOK_SECONDS` overrides it."""
PAGE_SECONDS: Final = 2.0
"""A listing of many pages is repeated less often: 4,000 calls in 10 s are the limit of all users of a vault."""
READ_TO_WATCH_SECONDS: Final = 65.0
"""A value may have been read this long before its watch opened; five seconds are for clocks that differ."""
QUIET_SECONDS: Final = 300.0
"""Seconds between two listings while a queue reports no event."""
REFUSED_SECONDS: Final = 1800.0
"""Seconds until an identity without the right to list tries again."""
MAX_SECRETS: Final = 20_000


@dataclass(frozen=True, slots=True)
class State:
    """A secret in a listing."""

    updated: datetime
    enabled: bool
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """All secrets at one time."""

    at: datetime
    states: Mapping[str, State]
    pages: int
    before: frozenset[tuple[str, datetime]] = frozenset()
    """Names and times of the former listing."""

    @property
    def latest(self) -> datetime:
        """Return the time of the last change, by the clock of the vault."""
        return max((state.updated for state in self.states.values()), default=self.at)

    @property
    def token(self) -> str:
        return self.latest.astimezone(UTC).isoformat()

    def changed(self, before: Listing) -> Iterator[str]:
        """Yield the names that differ.

        Times have seconds: the last change of a listing may be followed by another with the same time, so it is
        reported once more.
        """
        latest = before.latest
        for name in sorted(before.states.keys() | self.states.keys()):
            old, new = before.states.get(name), self.states.get(name)
            if old != new or (old and old.updated == latest and (name, latest) not in before.before):
                yield name

    def since(self, moment: datetime) -> Iterator[str]:
        """Yield the names that changed after a moment."""
        yield from (name for name, state in sorted(self.states.items()) if state.updated >= moment)


class Listings:
    """The listings of one vault, shared by all streams of an identity."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._newest: Listing | None = None
        self._refusal: ProviderError | None = None
        self._refused_until = float("-inf")

    def refusal(self, now: float) -> ProviderError | None:
        """Return the error of a listing that the identity may not make."""
        return self._refusal if now < self._refused_until else None

    async def newer(self, api: Api, than: Listing | None, after: datetime | None = None) -> Listing:
        """Return a listing that began after an event; the newest one serves everyone who has not seen it."""
        async with self._lock:
            if refusal := self.refusal(api.clock.monotonic()):
                raise refusal
            newest = self._newest
            recent = newest is not None and _age(newest, api) < _pause() / 2 and (after is None or newest.at >= after)
            if newest is not None and newest is not than and recent:
                return newest
            former = newest.states.items() if newest is not None else ()
            try:
                self._newest = await _listed(api, frozenset((name, state.updated) for name, state in former))
            except ProviderError as failed:
                raise self._failed(failed, api) from None
            return self._newest

    def _failed(self, failed: ProviderError, api: Api) -> ProviderError:
        if failed.reason is not ErrorReason.PERMISSION_DENIED:
            return failed
        self._refusal = unsupported(f"{failed.message}, to report changes; until then refreshInterval counts")
        self._refused_until = api.clock.monotonic() + REFUSED_SECONDS
        return self._refusal


_LISTINGS: Final[WeakKeyDictionary[Vault, Listings]] = WeakKeyDictionary()


class Watcher:
    """Watches the secrets of one vault."""

    def __init__(self, api: Api, bell: Bell | None = None) -> None:
        self._api = api
        self._bell = bell
        self._listings = _LISTINGS.setdefault(api.vault, Listings())

    @property
    def is_refused(self) -> bool:
        """Return whether the identity may not list, so that the store cannot report changes at present."""
        return self._listings.refusal(self._api.clock.monotonic()) is not None

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield the changes since the token, then those of each listing."""
        topics, clock, place = Topics(items), self._api.clock, _moment(resume_token)
        if resume_token and place is None:
            yield ChangeEvent(ChangeType.RESYNC, observed_at=clock.now())
        listing = await self._listings.newer(self._api, None)
        missed = place or listing.at - timedelta(seconds=READ_TO_WATCH_SECONDS)
        for event in topics.events(listing.since(missed), None, listing):
            yield event
        for event in topics.events(topics.absent(listing) if place else (), None, listing):
            yield event
        yield Heartbeat(clock.now(), listing.token)
        while True:
            await self._wait(listing)
            before, listing = listing, await self._listings.newer(self._api, listing, self._rung_at)
            if self._bell is not None:
                await self._bell.settle(listing.at)
            for event in topics.events(listing.changed(before), before, listing):
                yield event
            yield Heartbeat(clock.now(), listing.token)

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return the condition of the queue; empty if it works."""
        trouble = self._bell.trouble if self._bell is not None else None
        if trouble is None:
            return ()
        words = f"{trouble.message}; until then the vault is listed"
        return (ConditionReport("ChangeQueue", "False", "QueueRefused", words),)

    @property
    def _rung_at(self) -> datetime | None:
        return self._bell.rung_at if self._bell is not None else None

    async def _wait(self, listing: Listing) -> None:
        """Wait for the next listing: for its time, or for an event of the queue."""
        clock, bell = self._api.clock, self._bell
        pause = max(_pause(), PAGE_SECONDS * listing.pages if listing.pages > 1 else 0.0)
        if bell is None:
            await clock.sleep(pause)
            return
        begun = clock.monotonic()
        every = min(POLL_QUEUE_SECONDS, pause)
        while True:
            await bell.poll(every)
            limit = pause if bell.trouble is not None else max(pause, QUIET_SECONDS)
            is_rung = bell.rung_at is not None and bell.rung_at > listing.at
            if is_rung or clock.monotonic() - begun >= limit:
                return
            await clock.sleep(every)


async def _listed(api: Api, before: frozenset[tuple[str, datetime]]) -> Listing:
    at, states, count = api.clock.now(), dict[str, State](), 0
    listed = api.vault.secrets.list_properties_of_secrets().by_page()
    async for page in api.pages(vault_itself(api.vault, "GetSecrets"), listed):
        count += 1
        for each in page:
            states[each.name] = State(each.updated_on or at, bool(each.enabled), tags_of(each))
        if len(states) > MAX_SECRETS:
            raise unsupported(f"a vault with more than {MAX_SECRETS} secrets cannot be watched by listing it")
    return Listing(at, states, count, before)


def _age(listing: Listing, api: Api) -> float:
    return (api.clock.now() - listing.at).total_seconds()


class Topics:
    """The watches of a subscription."""

    def __init__(self, items: Sequence[WatchItem]) -> None:
        self._by_name: dict[str, list[str]] = {}
        self._searches: list[tuple[str, Matcher]] = []
        for item in items:
            self._add(item)

    def _add(self, item: WatchItem) -> None:
        if item.ref is None:
            query = FindQuery(name_regexp=item.name_regexp, tags=item.tags)
            self._searches.append((item.watch_id, Matcher(query)))
            return
        try:
            name = Name.parse(item.ref.key)
        except ProviderError:
            return  # a key that no read accepts never changes
        if name.kind is not Kind.KEY:
            self._by_name.setdefault(name.name, []).append(item.watch_id)

    def absent(self, listing: Listing) -> Iterator[str]:
        """Yield the watched names that are not listed: they may have been deleted while no stream was open."""
        yield from (name for name in sorted(self._by_name) if name not in listing.states)

    def events(self, names: Iterable[str], before: Listing | None, after: Listing) -> Iterator[ChangeEvent]:
        """Yield one event for each changed name that is watched."""
        for name in names:
            new = after.states.get(name)
            states = [new, before.states.get(name) if before else None]
            tags = [state.tags for state in states if state is not None]
            ids = list(self._by_name.get(name, ()))
            ids += [watch for watch, matcher in self._searches if any(matcher.matches(name, each) for each in tags)]
            if ids:
                kind = ChangeType.DELETED if new is None else ChangeType.UPDATED
                yield ChangeEvent(kind, tuple(ids), observed_at=after.at, resume_token=after.token)


def _pause() -> float:
    said = os.environ.get("ESO_PROVIDER_AZURE_LOOK_SECONDS", "")
    return max(float(said), 1.0) if said.isdecimal() else POLL_SECONDS


def _moment(token: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(token)
    except ValueError:
        return None
    return found if found.tzinfo else None
