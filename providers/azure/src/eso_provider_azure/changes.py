"""Reports changes of secrets, keys and certificates, with their tags, by listing each kind that is watched.

With a queue, an event causes the listings; without one, time does.

A position in a stream is the time of the last change in the listing of each kind, by the clock of the vault. A stream
that resumes there reports everything that changed since, at whichever replica. Only the last event of a round has the
new position: if a stream breaks before it, all events of the round are reported again.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from html import unescape
from typing import Any, Final
from weakref import WeakKeyDictionary

from yarl import URL

from eso_provider_azure.identities import CLOUDS, BoundIdentity
from eso_provider_azure.vault import Api, Kind, Name, Vault, tags_of, vault_itself
from eso_sdk.errors import invalid_config, unsupported
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, status_error
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, ConditionReport, FindQuery, Heartbeat, WatchItem
from kubebase.clock import Clock

# ---------------------------------------------------------------------------------------------------------------------
# A storage queue with the Event Grid events of a vault. An event is only a reason to list the vault at once.
#
#     poll:    receive messages, which hides them for a minute
#     acknowledge:  delete them, after a listing that began later
#
# A message that is not acknowledged is delivered again, and causes one more listing. The listing always reports what
# changed, so that a lost or foreign message does no harm.


POLL_QUEUE_SECONDS: Final = 5.0
"""Seconds between two reads of the queue: storage queues do not let callers wait for a message."""
RETRY_SECONDS: Final = 600.0
"""Seconds until a queue that failed is read again; until then the vault is listed as without a queue."""
SCOPE: Final = "https://storage.azure.com/.default"
FIELD: Final = "/changes/queueURL"

_VERSION: Final = "2021-12-02"
_HIDDEN_SECONDS: Final = "60"
_MOST: Final = "32"
_MAX_HELD: Final = 1024
_MESSAGE: Final = re.compile(
    rb"<QueueMessage>.*?<MessageId>([\w-]+)</MessageId>.*?<PopReceipt>([^<]+)</PopReceipt>.*?</QueueMessage>", re.DOTALL
)
_PATH: Final = re.compile(r"/[a-z0-9](-?[a-z0-9]){2,62}")


def check_queue(url: str, environment: str) -> None:
    """Refuse a URL that is not a queue of this cloud: it is sent a token."""
    if environment not in CLOUDS:
        raise invalid_config(FIELD, f"queues are not supported in {environment}")
    try:
        parts = URL(url)
        host = parts.host or ""
    except ValueError:
        raise invalid_config(FIELD, "is not a URL") from None
    fits = parts.scheme == "https" and parts.explicit_port is None and not parts.query_string and parts.user is None
    domain = CLOUDS[environment].queues
    if not fits or not host.endswith(f".{domain}") or not _PATH.fullmatch(parts.path):
        raise invalid_config(FIELD, f"write the URL of a queue, as https://ACCOUNT.{domain}/NAME")


class EventQueue:
    """Tells when a vault should be listed. Shared by all streams of an identity that name the same queue."""

    def __init__(self, url: str, credential: BoundIdentity, client: HttpClient, clock: Clock) -> None:
        self.rung_at: datetime | None = None
        self.users = 0
        self.error: ProviderError | None = None
        self._url = URL(url)
        self._credential = credential
        self._client = client
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next = float("-inf")
        self._held: list[tuple[str, str]] = []

    async def poll(self, every: float) -> None:
        """Look into the queue, unless another stream has just done so."""
        async with self._lock:
            if self._clock.monotonic() < self._next:
                return
            self._next = self._clock.monotonic() + every / 2
            try:
                await self._receive()
                self.error = None
            except ProviderError as failed:
                self.error = failed
                self._next = self._clock.monotonic() + max(RETRY_SECONDS, failed.retry_after)

    async def acknowledge(self, listed_at: datetime) -> None:
        """Delete the messages that came before a listing began."""
        if self.rung_at is None or listed_at < self.rung_at:
            return
        held, self._held = self._held, []
        with suppress(ProviderError):  # what is left is delivered again
            for message, receipt in held:
                await self._sent("DELETE", self._url / "messages" / message % {"popreceipt": receipt})

    async def close(self) -> None:
        await self._client.close()

    async def _receive(self) -> None:
        parameters = {"numofmessages": _MOST, "visibilitytimeout": _HIDDEN_SECONDS}
        response = await self._sent("GET", self._url / "messages" % parameters)
        if error := self._error(response):
            raise error
        found = [(name.decode(), unescape(receipt.decode())) for name, receipt in _MESSAGE.findall(response.body)]
        if found:
            self._held = [*self._held, *found][-_MAX_HELD:]
            self.rung_at = self._clock.now()

    async def _sent(self, method: str, url: URL) -> HttpResponse:
        token = await self._credential.token()
        headers = {
            "Authorization": f"Bearer {token.token}",
            "x-ms-version": _VERSION,
            "x-ms-date": format_datetime(self._clock.now(), usegmt=True),
        }
        return await self._client.send(HttpRequest(method, url, headers))

    def _error(self, response: HttpResponse) -> ProviderError | None:
        subject = f"queue {self._url}"
        if response.status in (401, 403):
            message = f'{subject} is denied; grant the role "Storage Queue Data Message Processor"'
            return ProviderError(ErrorReason.PERMISSION_DENIED, message, backend_code=str(response.status))
        if response.status == 404:
            return ProviderError(
                ErrorReason.CONFIG_NOT_FOUND, f"{subject} does not exist; create it, or correct {FIELD}"
            )
        return status_error(response, subject, self._clock)


# ---------------------------------------------------------------------------------------------------------------------
# Listings of a vault without values: 25 objects to a page, each with its tags and the time of its last change.


POLL_SECONDS: Final = 30.0
"""Seconds between two listings; `ESO_PROVIDER_AZURE_LOOK_SECONDS` overrides it."""
REFUSED_SECONDS: Final = 1800.0
"""Seconds until an identity without the right to list tries again."""
MAX_OBJECTS: Final = 20_000
"""The limit for each kind of objects."""

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class State:
    """An object in a listing."""

    updated: datetime
    enabled: bool
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of one kind at one time."""

    at: datetime
    states: Mapping[str, State]
    pages: int
    before: frozenset[tuple[str, datetime]] = frozenset()
    """Names and times of the former listing."""

    @property
    def latest(self) -> datetime:
        """Return the time of the last change, by the clock of the vault."""
        return max((state.updated for state in self.states.values()), default=self.at)

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
    """The listings of one kind of objects of a vault, shared by all streams of an identity."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._lock = asyncio.Lock()
        self._newest: Listing | None = None
        self._refusal: ProviderError | None = None
        self._refused_until = float("-inf")

    def refusal(self, now: float) -> ProviderError | None:
        """Return the error of a listing that the identity may not make."""
        return self._refusal if now < self._refused_until else None

    async def newer(self, api: Api, than: Listing | None, after: datetime | None = None) -> Listing:
        """Return a listing that began after an event; the newest one serves every caller that does not have it."""
        async with self._lock:
            if refusal := self.refusal(api.clock.monotonic()):
                raise refusal
            newest = self._newest
            recent = newest is not None and _age(newest, api) < pause() / 2 and (after is None or newest.at >= after)
            if newest is not None and newest is not than and recent:
                return newest
            former = newest.states.items() if newest is not None else ()
            try:
                before = frozenset((name, state.updated) for name, state in former)
                self._newest = await _listed(api, self._kind, before)
            except ProviderError as failed:
                raise self._failed(failed, api) from None
            return self._newest

    def _failed(self, failed: ProviderError, api: Api) -> ProviderError:
        if failed.reason is not ErrorReason.PERMISSION_DENIED:
            return failed
        self._refusal = unsupported(f"{failed.message}, to report changes; until then refreshInterval counts")
        self._refused_until = api.clock.monotonic() + REFUSED_SECONDS
        return self._refusal


_KNOWN: Final[WeakKeyDictionary[Vault, dict[Kind, Listings]]] = WeakKeyDictionary()


def listings_of(vault: Vault) -> dict[Kind, Listings]:
    """Return the listings of a vault so far, by kind."""
    return _KNOWN.setdefault(vault, {})


def pause() -> float:
    """Return the seconds between two listings."""
    setting = os.environ.get("ESO_PROVIDER_AZURE_LOOK_SECONDS", "")
    return max(float(setting), 1.0) if setting.isdecimal() else POLL_SECONDS


async def _listed(api: Api, kind: Kind, before: frozenset[tuple[str, datetime]]) -> Listing:
    at, states, count = api.clock.now(), dict[str, State](), 0
    async for page in api.pages(vault_itself(api.vault, kind), _pages(api.vault, kind)):
        count += 1
        for each in page:
            # Objects that were last changed years ago have no time of change.
            updated = each.updated_on or each.created_on or _LONG_AGO
            states[each.name] = State(updated, bool(each.enabled), tags_of(each))
        if len(states) > MAX_OBJECTS:
            raise unsupported(f"a vault with more than {MAX_OBJECTS} {kind.label}s cannot be watched by listing it")
    return Listing(at, states, count, before)


def _pages(vault: Vault, kind: Kind) -> Any:
    match kind:
        case Kind.SECRET:
            return vault.secrets.list_properties_of_secrets().by_page()
        case Kind.KEY:
            return vault.keys.list_properties_of_keys().by_page()
        case Kind.CERTIFICATE:
            return vault.certificates.list_properties_of_certificates().by_page()


def _age(listing: Listing, api: Api) -> float:
    return (api.clock.now() - listing.at).total_seconds()


# --- Reports changes of secrets, keys and certificates, with their tags, by listing each kind that is watched --------


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
