"""Changes that Secret Manager publishes to the topics of a secret.

`spec.changes.subscription` of a v2 kind names a subscription to them. All stores of one identity that name the same
subscription share one feed. A message is acknowledged when every store that watches its secret has read the change;
Pub/Sub delivers all others again.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from yarl import URL

from eso_provider_gcp.api import Api, Observe
from eso_provider_gcp.auth import OWN
from eso_provider_gcp.identities import PUBSUB, Identity, base_of
from eso_sdk.errors import invalid_config
from eso_sdk.http import HttpClient, HttpRequest, HttpResponse, HttpSettings, status_error
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, Heartbeat, WatchItem
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

# --- One subscription of Pub/Sub, over its REST interface: pull and acknowledge --------------------------------------

FIELD: Final = "/changes/subscription"
PULL_SECONDS: Final = 100.0
"""Google responds to an empty pull after about 90 seconds."""
BATCH: Final = 100

_UPDATES: Final = frozenset(
    {
        "SECRET_CREATE",
        "SECRET_UPDATE",
        "SECRET_VERSION_ADD",
        "SECRET_VERSION_DESTROY",
        "SECRET_VERSION_DESTROY_SCHEDULED",  # the version is disabled until then
        "SECRET_VERSION_DISABLE",
        "SECRET_VERSION_ENABLE",
    }
)


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to one secret."""

    type: ChangeType
    key: str
    location: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message, and its change; None if it announces none that matters."""

    message_id: str
    change: Change | None
    ack_id: str = field(repr=False)


class Subscription:
    """Calls as one identity."""

    def __init__(self, name: str, identity: Identity, clock: Clock) -> None:
        self.name = name
        self.observe: Observe | None = None
        """Counts calls, for the store that listened last."""
        self._identity = identity
        self._clock = clock
        settings = HttpSettings("Pub/Sub", field=FIELD, seconds=PULL_SECONDS)
        self._http = HttpClient(settings, policy=OWN, clock=clock)

    async def pull(self) -> list[Message]:
        """Wait for messages; return none if there are none for a while."""
        try:
            response = await self._call("pull", {"maxMessages": BATCH}, PULL_SECONDS)
        except ProviderError as failed:
            if failed.reason is ErrorReason.BACKEND_TIMEOUT:
                return []
            raise
        try:
            received = json.loads(response.body or b"{}").get("receivedMessages", [])
            return [_message(each) for each in received]
        except (ValueError, KeyError, AttributeError, TypeError):
            raise ProviderError(ErrorReason.BACKEND_ERROR, f"{self} got a response that is not from Pub/Sub") from None

    async def acknowledge(self, ack_ids: Sequence[str]) -> None:
        if ack_ids:
            await self._call("acknowledge", {"ackIds": list(ack_ids)}, 30.0)

    async def close(self) -> None:
        await self._http.close()

    def __str__(self) -> str:
        return f'subscription "{self.name}"'

    async def _call(self, verb: str, body: Any, seconds: float) -> HttpResponse:
        url = URL(f"{base_of(PUBSUB)}/v1/{self.name}:{verb}")
        content = json.dumps(body).encode()
        for _ in range(2):
            access = await self._identity.access()
            headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
            response = await self._sent(verb, HttpRequest("POST", url, headers, content), seconds)
            if response.status != 401:
                break
            self._identity.discard(access)
        if response.status == 403:
            text = f"{self}: {verb} is denied; grant the identity of the store roles/pubsub.subscriber on it"
            raise ProviderError(ErrorReason.PERMISSION_DENIED, text, backend_code="403")
        if response.status == 404:
            raise invalid_config(FIELD, f"{self} does not exist")
        if problem := status_error(response, "Pub/Sub", self._clock):
            raise problem
        return response

    async def _sent(self, verb: str, request: HttpRequest, seconds: float) -> HttpResponse:
        if self.observe is None:
            return await self._http.send(request, seconds=seconds)
        with self.observe("Pull" if verb == "pull" else "Acknowledge"):
            return await self._http.send(request, seconds=seconds)


def _message(received: Any) -> Message:
    message = received["message"]
    return Message(str(message.get("messageId", "")), _change(message.get("attributes") or {}), str(received["ackId"]))


def _change(attributes: Any) -> Change | None:
    """Read the attributes that Secret Manager sets. The body repeats the secret, and is not needed."""
    kind, name = attributes.get("eventType", ""), str(attributes.get("secretId", ""))
    parent, found, key = name.partition("/secrets/")
    if not found or not (kind in _UPDATES or kind == "SECRET_DELETE"):
        return None
    change = ChangeType.DELETED if kind == "SECRET_DELETE" else ChangeType.UPDATED
    version = str(attributes.get("versionId", "")).rpartition("/")[2]
    return Change(change, key, parent.partition("/locations/")[2], version)


# --- The changes of one subscription under one identity, pulled once for all stores that name it ---------------------
#
# pull -> log -> every stream, from its position        a change that no store watches: acknowledged at once
#      -> pending, until all its listeners have read it -> acknowledged


LOG_ENTRIES: Final = 2000
MAX_PENDING: Final = 4000
"""The limit of messages that are not acknowledged. Pub/Sub delivers the ones beyond it again."""
MAX_FAILURES: Final = 5
PAUSES: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
IDLE_SECONDS: Final = 1.0
"""The pause after an empty pull."""
RECENT_SECONDS: Final = 10.0
"""A stream without a position gets the changes of the last seconds: it may have been opening then."""

_PASSING: Final = frozenset(
    {ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_ERROR}
)
_log = structlog.get_logger("eso_provider_gcp.changes")

Concerned = Callable[[Change], bool]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the order of receipt."""

    position: int
    change: Change
    received: float


@dataclass(slots=True)
class _Pending:
    position: int
    waiting: set[object]
    ack_id: str = field(repr=False)


class Feed:
    """The log and the unacknowledged messages of one subscription."""

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self.subscription = subscription
        self.name = uuid.uuid4().hex[:12]
        self.position = 0
        self.users = 0
        """The stores that name this subscription."""
        self.moved = asyncio.Event()
        """Set and replaced when a change arrives, or the pulling fails."""
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=LOG_ENTRIES)
        self._pending: BoundedDict[str, _Pending] = BoundedDict(MAX_PENDING)
        self._listening: dict[int, tuple[object, Concerned]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self, listener: object, concerned: Concerned) -> Iterator[None]:
        """Pull inside the block. The last listener that leaves stops it."""
        number = id(concerned)
        self._listening[number] = (listener, concerned)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
        try:
            yield
        finally:
            del self._listening[number]
            if not self._listening:
                self._task.cancel()

    def check(self) -> None:
        """Raise the error that ended the pulling, if any."""
        task = self._task
        if task is not None and task.done() and not task.cancelled() and (failed := task.exception()):
            raise failed.with_traceback(None)

    def since(self, position: int) -> list[Entry] | None:
        """Return the changes after a position; None if some of them are forgotten."""
        if not self.position - len(self._entries) <= position <= self.position:
            return None
        return [entry for entry in self._entries if entry.position > position]

    def recent(self) -> int:
        """Return the position before the changes of the last seconds."""
        old = [entry.position for entry in self._entries if entry.received < self._clock.monotonic() - RECENT_SECONDS]
        return old[-1] if old else self.position - len(self._entries)

    async def acknowledge(self, listener: object, position: int) -> None:
        """Acknowledge the messages up to a position for which this was the last listener."""
        ack_ids = []
        for message_id, pending in list(self._pending.items()):
            if pending.position <= position and listener in pending.waiting:
                pending.waiting.discard(listener)
                if not pending.waiting:
                    del self._pending[message_id]
                    ack_ids.append(pending.ack_id)
        await self.subscription.acknowledge(ack_ids)

    def leave(self, listener: object) -> None:
        """Forget a store. Pub/Sub delivers again what only this one had to read."""
        for message_id, pending in list(self._pending.items()):
            pending.waiting.discard(listener)
            if not pending.waiting:
                del self._pending[message_id]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.subscription.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                messages = await self.subscription.pull()
                await self._acknowledge([ack for each in messages if (ack := self._taken(each))])
                failures = 0
            except ProviderError as failed:
                failures += 1
                if failed.reason not in _PASSING or failures >= MAX_FAILURES:
                    raise
                await self._clock.sleep(max(PAUSES[failures - 1], failed.retry_after))
                continue
            if messages:
                self._wake()
            else:
                await self._clock.sleep(IDLE_SECONDS)

    def _taken(self, message: Message) -> str:
        """Record a message; return its acknowledgement if no store waits for it."""
        if known := self._pending.get(message.message_id):
            known.ack_id = message.ack_id  # only the newest one counts
            return ""
        change = message.change
        if change is None:
            return message.ack_id
        self.position += 1
        self._entries.append(Entry(self.position, change, self._clock.monotonic()))
        waiting = {listener for listener, concerned in self._listening.values() if concerned(change)}
        if waiting:
            self._pending[message.message_id] = _Pending(self.position, waiting, message.ack_id)
        return "" if waiting else message.ack_id

    async def _acknowledge(self, ack_ids: list[str]) -> None:
        try:
            await self.subscription.acknowledge(ack_ids)
        except ProviderError as failed:
            _log.warning("messages not acknowledged; Pub/Sub redelivers them", reason=failed.reason.value)

    def _wake(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._wake()


# ---------------------------------------------------------------------------------------------------------------------
# The change stream of one store. Its tokens are `FEED POSITION`: the feed of a process, and a position in its log.


class Watcher:
    """Reports the changes that a subscription announces."""

    def __init__(self, api: Api, identity: Identity, subscription: str) -> None:
        self._api = api
        name = subscription if "/" in subscription else f"projects/{api.project}/subscriptions/{subscription}"
        feeds = api.runtime.feeds
        key = (identity.key, name)
        feed = feeds.get(key)
        if feed is None:
            feeds[key] = feed = Feed(Subscription(name, identity, api.clock), api.clock)
        self._feed: Feed = feed
        self._feed.users += 1

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield changes of the watched keys, without end."""
        feed, topics = self._feed, _Topics(items, self._api.location)
        feed.subscription.observe = self._api.observe
        with feed.listening(self, topics.concerned):
            position = self._position(resume_token) if resume_token else feed.recent()
            if position is None:
                # Another process has read this subscription: what it reported is not known here.
                position = feed.position
                yield ChangeEvent(ChangeType.RESYNC, topics.all_ids, resume_token=self._token(position))
            yield Heartbeat(self._api.clock.now(), self._token(position))
            while True:
                moved = feed.moved
                entries = feed.since(position)
                if entries is None:
                    position = feed.position
                    yield ChangeEvent(ChangeType.RESYNC, topics.all_ids, resume_token=self._token(position))
                for entry in entries or ():
                    position = entry.position
                    if ids := topics.watching(entry.change):
                        yield ChangeEvent(
                            entry.change.type,
                            ids,
                            entry.change.version,
                            self._api.clock.now(),
                            resume_token=self._token(position),
                        )
                feed.check()
                if position == feed.position:
                    await moved.wait()

    async def acknowledged(self, resume_token: str) -> None:
        if (position := self._position(resume_token)) is not None:
            await self._feed.acknowledge(self, position)

    async def close(self) -> None:
        """Leave the feed; the last store closes it."""
        self._feed.leave(self)
        self._feed.users -= 1
        if not self._feed.users:
            feeds = self._api.runtime.feeds
            for key in [key for key, feed in feeds.items() if feed is self._feed]:
                del feeds[key]
            await self._feed.close()

    def _token(self, position: int) -> str:
        return f"{self._feed.name} {position}"

    def _position(self, token: str) -> int | None:
        """Return the position that a token of this feed names; None if it is of another one, or forgotten."""
        name, _, position = token.partition(" ")
        if name != self._feed.name or not position.isdecimal() or self._feed.since(int(position)) is None:
            return None
        return int(position)


class _Topics:
    """The watched keys and queries of one stream."""

    def __init__(self, items: Sequence[WatchItem], location: str) -> None:
        self.all_ids = tuple(item.watch_id for item in items)
        self._location = location
        self._by_key: dict[str, list[str]] = {}
        self._queries: list[tuple[str, Matcher]] = []
        for item in items:
            if item.ref is not None:
                self._by_key.setdefault(item.ref.key, []).append(item.watch_id)
            else:
                # A message has no labels, so a query by labels is notified of every secret.
                self._queries.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp))))

    def concerned(self, change: Change) -> bool:
        return bool(self.watching(change))

    def watching(self, change: Change) -> tuple[str, ...]:
        if change.location != self._location:
            return ()
        found = [watch_id for watch_id, matcher in self._queries if matcher.matches(change.key)]
        return (*self._by_key.get(change.key, ()), *found)
