"""Reports changes of secrets, keys and certificates, with their tags, by listing each kind that is watched.

With a queue (`queue.py`), an event causes the listings; without one, time does.

A position in a stream is the time of the last change in the listing of each kind, by the clock of the vault. A stream
that resumes there reports everything that changed since, at whichever replica. Only the last event of a round has the
new position: if a stream breaks before it, all events of the round are reported again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from eso_provider_azure.api import Api
from eso_provider_azure.listings import Listing, Listings, listings_of, pause
from eso_provider_azure.names import Kind, Name
from eso_provider_azure.queue import POLL_SECONDS as POLL_QUEUE_SECONDS
from eso_provider_azure.queue import EventQueue
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, ConditionReport, FindQuery, Heartbeat, WatchItem

PAGE_SECONDS: Final = 2.0
"""A listing of many pages is repeated less often: 4,000 calls in 10 s are the limit of all users of a vault."""
READ_TO_WATCH_SECONDS: Final = 65.0
"""A value may have been read this long before its watch opened; five seconds are for clocks that differ."""
QUIET_SECONDS: Final = 300.0
"""Seconds between two listings while a queue reports no event."""

Listed = Mapping[Kind, Listing]
Position = Mapping[Kind, datetime]


class Watcher:
    """Watches the objects of one vault."""

    def __init__(self, api: Api, queue: EventQueue | None = None) -> None:
        self._api = api
        self._queue = queue
        self._listings = listings_of(api.vault)

    @property
    def is_refused(self) -> bool:
        """Return whether the identity may list nothing of what is watched: then the store cannot report changes."""
        return bool(self._listings) and len(self._refusals()) == len(self._listings)

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield the changes since the token, then those of each listing."""
        topics, clock, known = Topics(items), self._api.clock, position_of(resume_token)
        if resume_token and not known:
            yield ChangeEvent(ChangeType.RESYNC, observed_at=clock.now())
        listed = await self._newer(topics.kinds, {})
        position = {kind: known.get(kind) or _just_before(listing) for kind, listing in listed.items()}
        for event in _with_positions(topics.missed(known, position, listed), position, _position(listed)):
            yield event
        yield Heartbeat(clock.now(), token_of(_position(listed)))
        while True:
            await self._wait(listed)
            before, listed = listed, await self._newer(topics.kinds, listed)
            if self._queue is not None:
                await self._queue.acknowledge(_begun(listed))
            for event in _with_positions(topics.differences(before, listed), _position(before), _position(listed)):
                yield event
            yield Heartbeat(clock.now(), token_of(_position(listed)))

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return why some changes are not reported; empty if all are."""
        found: list[ConditionReport] = []
        refusals = self._refusals()
        if refusals and not self.is_refused:
            message = "; ".join(each.message for each in refusals)
            found.append(ConditionReport("ChangeListing", "False", "ListRefused", message))
        error = self._queue.error if self._queue is not None else None
        if error is not None:
            message = f"{error.message}; until then the vault is listed"
            found.append(ConditionReport("ChangeQueue", "False", "QueueRefused", message))
        return tuple(found)

    def _refusals(self) -> list[ProviderError]:
        now = self._api.clock.monotonic()
        return [refusal for each in self._listings.values() if (refusal := each.refusal(now))]

    async def _newer(self, kinds: Iterable[Kind], known: Listed) -> dict[Kind, Listing]:
        """Return a new listing of each kind. A kind that the identity may not list is left out, unless all are."""
        found: dict[Kind, Listing] = {}
        refusal: ProviderError | None = None
        rung_at = self._queue.rung_at if self._queue is not None else None
        for kind in kinds:
            listings = self._listings.setdefault(kind, Listings(kind))
            try:
                found[kind] = await listings.newer(self._api, known.get(kind), rung_at)
            except ProviderError as failed:
                if failed.reason is not ErrorReason.UNSUPPORTED_OPERATION:
                    raise
                refusal = failed
        if refusal is not None and not found:
            raise refusal
        return found

    async def _wait(self, listed: Listed) -> None:
        """Wait for the next listings: for their time, or for an event of the queue."""
        clock, queue = self._api.clock, self._queue
        pages = sum(listing.pages for listing in listed.values())
        rest = max(pause(), PAGE_SECONDS * pages if pages > len(listed) else 0.0)
        if queue is None:
            await clock.sleep(rest)
            return
        begun, every = clock.monotonic(), min(POLL_QUEUE_SECONDS, rest)
        while True:
            await queue.poll(every)
            limit = rest if queue.error is not None else max(rest, QUIET_SECONDS)
            is_rung = queue.rung_at is not None and queue.rung_at > _begun(listed)
            if is_rung or clock.monotonic() - begun >= limit:
                return
            await clock.sleep(every)


class Topics:
    """The watches of a subscription."""

    def __init__(self, items: Sequence[WatchItem]) -> None:
        self._by_name: dict[Name, list[str]] = {}
        self._searches: list[tuple[str, Matcher]] = []
        for item in items:
            self._add(item)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that are watched, in a fixed order; a search is for secrets."""
        watched = {name.kind for name in self._by_name} | ({Kind.SECRET} if self._searches else set())
        return tuple(kind for kind in Kind if kind in watched) or (Kind.SECRET,)

    def _add(self, item: WatchItem) -> None:
        if item.ref is None:
            query = FindQuery(name_regexp=item.name_regexp, tags=item.tags)
            self._searches.append((item.watch_id, Matcher(query)))
            return
        try:
            name = Name.parse(item.ref.key)
        except ProviderError:
            return  # a key that no read accepts never changes
        self._by_name.setdefault(name, []).append(item.watch_id)

    def missed(self, known: Position, position: Position, listed: Listed) -> Iterator[ChangeEvent]:
        """Yield what changed since a position. `known` are the kinds whose position a former stream reported."""
        for kind, listing in listed.items():
            absent = self._absent(kind, listing) if kind in known else ()
            yield from self.events(kind, [*listing.since(position[kind]), *absent], (None, listing))

    def differences(self, before: Listed, after: Listed) -> Iterator[ChangeEvent]:
        """Yield what changed between two listings of each kind."""
        for kind in sorted(before.keys() & after.keys()):
            old, new = before[kind], after[kind]
            yield from self.events(kind, new.changed(old), (old, new))

    def _absent(self, kind: Kind, listing: Listing) -> Iterator[str]:
        """Yield the watched names that are not listed: they may have been deleted while no stream was open."""
        watched = sorted(each.name for each in self._by_name if each.kind is kind)
        yield from (name for name in watched if name not in listing.states)

    def events(self, kind: Kind, names: Iterable[str], pair: tuple[Listing | None, Listing]) -> Iterator[ChangeEvent]:
        """Yield one event for each changed name that is watched. `pair` are the listings before and after."""
        before, after = pair
        for name in names:
            new = after.states.get(name)
            states = [new, before.states.get(name) if before else None]
            tags = [state.tags for state in states if state is not None]
            ids = list(self._by_name.get(Name(kind, name), ()))
            if kind is Kind.SECRET:
                ids += [watch for watch, matcher in self._searches if any(matcher.matches(name, each) for each in tags)]
            if ids:
                change = ChangeType.DELETED if new is None else ChangeType.UPDATED
                yield ChangeEvent(change, tuple(ids), observed_at=after.at)


def token_of(position: Position) -> str:
    """Return a position as text: `KIND=TIME` for each kind."""
    return " ".join(f"{kind.value}={moment.astimezone(UTC).isoformat()}" for kind, moment in sorted(position.items()))


def position_of(token: str) -> dict[Kind, datetime]:
    """Return the position that a token names; empty if it names none."""
    found: dict[Kind, datetime] = {}
    for part in token.split():
        kind, is_named, text = part.rpartition("=")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return {}
        if moment.tzinfo is None or (is_named and kind not in tuple(Kind)):
            return {}
        # Tokens of releases that watched secrets only have one time without a kind.
        found[Kind(kind) if is_named else Kind.SECRET] = moment
    return found


def _with_positions(events: Iterable[ChangeEvent], before: Position, after: Position) -> Iterator[ChangeEvent]:
    """Give the last event of a round the new position, and the others the former one."""
    found = list(events)
    for number, event in enumerate(found, 1):
        yield replace(event, resume_token=token_of(after if number == len(found) else before))


def _position(listed: Listed) -> dict[Kind, datetime]:
    return {kind: listing.latest for kind, listing in listed.items()}


def _just_before(listing: Listing) -> datetime:
    return listing.at - timedelta(seconds=READ_TO_WATCH_SECONDS)


def _begun(listed: Listed) -> datetime:
    return min(listing.at for listing in listed.values())
