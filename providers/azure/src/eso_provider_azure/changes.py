"""Reports changes of secrets, keys and certificates, with their tags, by listing each kind that is watched.

With a queue (`queue.py`), an event causes the listings; without one, time does.

A place in a stream is the time of the last change in the listing of each kind, by the clock of the vault. A stream that
resumes there reports everything that changed since, at whichever replica. Only the last event of a round has the new
place: if a stream breaks before it, all events of the round are reported again.
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
from eso_provider_azure.queue import Bell
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
Place = Mapping[Kind, datetime]


class Watcher:
    """Watches the objects of one vault."""

    def __init__(self, api: Api, bell: Bell | None = None) -> None:
        self._api = api
        self._bell = bell
        self._listings = listings_of(api.vault)

    @property
    def is_refused(self) -> bool:
        """Return whether the identity may list nothing of what is watched: then the store cannot report changes."""
        return bool(self._listings) and len(self._refusals()) == len(self._listings)

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield the changes since the token, then those of each listing."""
        topics, clock, known = Topics(items), self._api.clock, place_of(resume_token)
        if resume_token and not known:
            yield ChangeEvent(ChangeType.RESYNC, observed_at=clock.now())
        listed = await self._newer(topics.kinds, {})
        place = {kind: known.get(kind) or _just_before(listing) for kind, listing in listed.items()}
        for event in _placed(topics.missed(known, place, listed), place, _place(listed)):
            yield event
        yield Heartbeat(clock.now(), token_of(_place(listed)))
        while True:
            await self._wait(listed)
            before, listed = listed, await self._newer(topics.kinds, listed)
            if self._bell is not None:
                await self._bell.settle(_begun(listed))
            for event in _placed(topics.differences(before, listed), _place(before), _place(listed)):
                yield event
            yield Heartbeat(clock.now(), token_of(_place(listed)))

    def conditions(self) -> tuple[ConditionReport, ...]:
        """Return what keeps some changes from being reported; empty if nothing does."""
        found: list[ConditionReport] = []
        refusals = self._refusals()
        if refusals and not self.is_refused:
            words = "; ".join(each.message for each in refusals)
            found.append(ConditionReport("ChangeListing", "False", "ListRefused", words))
        trouble = self._bell.trouble if self._bell is not None else None
        if trouble is not None:
            words = f"{trouble.message}; until then the vault is listed"
            found.append(ConditionReport("ChangeQueue", "False", "QueueRefused", words))
        return tuple(found)

    def _refusals(self) -> list[ProviderError]:
        now = self._api.clock.monotonic()
        return [refusal for each in self._listings.values() if (refusal := each.refusal(now))]

    async def _newer(self, kinds: Iterable[Kind], seen: Listed) -> dict[Kind, Listing]:
        """Return a new listing of each kind. A kind that the identity may not list is left out, unless all are."""
        found: dict[Kind, Listing] = {}
        refusal: ProviderError | None = None
        rung_at = self._bell.rung_at if self._bell is not None else None
        for kind in kinds:
            listings = self._listings.setdefault(kind, Listings(kind))
            try:
                found[kind] = await listings.newer(self._api, seen.get(kind), rung_at)
            except ProviderError as failed:
                if failed.reason is not ErrorReason.UNSUPPORTED_OPERATION:
                    raise
                refusal = failed
        if refusal is not None and not found:
            raise refusal
        return found

    async def _wait(self, listed: Listed) -> None:
        """Wait for the next listings: for their time, or for an event of the queue."""
        clock, bell = self._api.clock, self._bell
        pages = sum(listing.pages for listing in listed.values())
        rest = max(pause(), PAGE_SECONDS * pages if pages > len(listed) else 0.0)
        if bell is None:
            await clock.sleep(rest)
            return
        begun, every = clock.monotonic(), min(POLL_QUEUE_SECONDS, rest)
        while True:
            await bell.poll(every)
            limit = rest if bell.trouble is not None else max(rest, QUIET_SECONDS)
            is_rung = bell.rung_at is not None and bell.rung_at > _begun(listed)
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

    def missed(self, known: Place, place: Place, listed: Listed) -> Iterator[ChangeEvent]:
        """Yield what changed since a place. `known` are the kinds whose place a former stream has told."""
        for kind, listing in listed.items():
            absent = self._absent(kind, listing) if kind in known else ()
            yield from self.events(kind, [*listing.since(place[kind]), *absent], (None, listing))

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


def token_of(place: Place) -> str:
    """Return a place as text: `KIND=TIME` for each kind."""
    return " ".join(f"{kind.value}={moment.astimezone(UTC).isoformat()}" for kind, moment in sorted(place.items()))


def place_of(token: str) -> dict[Kind, datetime]:
    """Return the place that a token names; empty if it names none."""
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


def _placed(events: Iterable[ChangeEvent], before: Place, after: Place) -> Iterator[ChangeEvent]:
    """Give the last event of a round the new place, and the others the former one."""
    found = list(events)
    for number, event in enumerate(found, 1):
        yield replace(event, resume_token=token_of(after if number == len(found) else before))


def _place(listed: Listed) -> dict[Kind, datetime]:
    return {kind: listing.latest for kind, listing in listed.items()}


def _just_before(listing: Listing) -> datetime:
    return listing.at - timedelta(seconds=READ_TO_WATCH_SECONDS)


def _begun(listed: Listed) -> datetime:
    return min(listing.at for listing in listed.values())
