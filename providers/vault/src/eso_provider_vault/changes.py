"""Changes of keys: watches, and which of them an event or the difference of two scans concerns."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from eso_provider_vault.api import Api
from eso_provider_vault.reading import Finder, Tree
from eso_provider_vault.replies import Members, NotJsonError, at, integer, members, parse, text
from eso_provider_vault.settings import Location, Settings, locate
from eso_sdk.errors import unsupported
from eso_sdk.http import HttpStatusError, url_of
from eso_sdk.matching import Matcher
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, Heartbeat, WatchItem

# --- The differences between two scans of an engine, and the watches that they concern. ----------

SKEW_SECONDS: Final = 5.0
"""The maximum clock difference of server and provider, for changes that happen while a subscription opens."""

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")

Key = tuple[str, str]
"""Mount and key."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one key in a scan."""

    version: int
    stamp: str
    """The time of its last change, in the server's time; sorts as text."""
    deleted: bool = False
    custom: Members = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Overview:
    """All keys of one scan."""

    states: Mapping[Key, State]

    @property
    def latest(self) -> str:
        return max((state.stamp for state in self.states.values()), default="")


def overview_of(root: Location, tree: Tree, *, now: datetime) -> Overview:
    """Read a scan of detailed metadata."""
    about, today = tree.about or {}, _stamp(now)
    below = f"{root.key}/" if root.key else ""
    return Overview({(root.mount, f"{below}{key}"): _state(about.get(key, {}), today) for key in tree.keys})


def merged(overviews: Iterable[Overview]) -> Overview:
    return Overview({key: state for overview in overviews for key, state in overview.states.items()})


class Topics:
    """The watches of a subscription, by key and folder."""

    def __init__(self, items: Sequence[WatchItem], settings: Settings) -> None:
        self._settings = settings
        self._items = items
        self._keys: dict[str, Key] = {}
        self._by_key: dict[Key, list[str]] = {}
        self._searches: list[tuple[str, Matcher, Mapping[str, str]]] = []
        for item in items:
            self._add(item)

    def _add(self, item: WatchItem) -> None:
        if item.ref is None:
            # A name wins over tags, as in a search.
            tags = {} if item.name_regexp else item.tags
            self._searches.append((item.watch_id, Matcher(FindQuery(name_regexp=item.name_regexp)), tags))
            return
        try:
            location = locate(item.ref.key, self._settings)
        except ProviderError:
            return  # a key that no read accepts never changes
        key = (location.mount, location.key)
        self._keys[item.watch_id] = key
        self._by_key.setdefault(key, []).append(item.watch_id)

    def roots(self) -> list[Location]:
        """Return the folders that contain all watched keys, one for each mount."""
        if self._settings.mount and (self._searches or not self._by_key):
            return [Location(self._settings.mount, "")]
        folders: dict[str, list[list[str]]] = {}
        for mount, key in self._by_key:
            folders.setdefault(mount, []).append(key.split("/")[:-1])
        return [Location(mount, "/".join(_common(paths))) for mount, paths in folders.items()]

    def watching(self, mount: str, key: str, customs: Sequence[Members] | None) -> tuple[str, ...]:
        """Return the watches that a change of this key concerns.

        `customs` are its metadata before and after, if known.
        """
        found = list(self._by_key.get((mount, key), ()))
        name = key if self._settings.mount else f"{mount}/{key}"
        if self._settings.mount in ("", mount):
            for watch_id, matcher, tags in self._searches:
                if matcher.matches(name) and (customs is None or any(_carries(custom, tags) for custom in customs)):
                    found.append(watch_id)
        return tuple(found)

    def changes(self, before: Overview, after: Overview, *, now: datetime) -> Iterator[ChangeEvent]:
        """Yield one event for each key that differs."""
        for key in sorted(before.states.keys() | after.states.keys()):
            old, new = before.states.get(key), after.states.get(key)
            if old == new:
                continue
            customs = [state.custom for state in (old, new) if state is not None]
            if ids := self.watching(*key, customs):
                yield _event(new, ids, now)

    def missed(self, overview: Overview, *, since: str, elapsed: float, now: datetime) -> Iterator[ChangeEvent]:
        """Yield the changes since a stream ended, or while this one opened.

        A surplus event is harmless; a missing one is not.
        """
        recent = since or _stamp(now - timedelta(seconds=elapsed + SKEW_SECONDS))
        for item in self._items:
            if item.ref is None:
                if since:
                    yield ChangeEvent(ChangeType.UPDATED, (item.watch_id,), observed_at=now)
                continue
            key = self._keys.get(item.watch_id)
            if key is None:
                continue
            state = overview.states.get(key)
            absent = state is None or state.deleted
            if item.known_version:
                changed = absent or state is None or str(state.version) != item.known_version
            else:
                changed = (absent and bool(since)) or (state is not None and state.stamp > recent)
            if changed:
                yield _event(state, (item.watch_id,), now)


def _event(state: State | None, ids: tuple[str, ...], now: datetime) -> ChangeEvent:
    if state is None or state.deleted:
        return ChangeEvent(ChangeType.DELETED, ids, observed_at=now)
    return ChangeEvent(ChangeType.UPDATED, ids, str(state.version), now)


def _state(about: Members, now: str) -> State:
    version = integer(about, "current_version") or 0
    current = at(about, "versions", str(version))
    deletion = _sortable(text(current, "deletion_time"))
    if deletion > now:
        deletion = ""  # delete_version_after: the version exists until that time
    stamps = (_sortable(text(about, "updated_time")), _sortable(text(current, "created_time")), deletion)
    gone = bool(deletion) or at(current, "destroyed") is True or not version
    return State(version, max(stamps), gone, members(about.get("custom_metadata")))


def _sortable(time: str) -> str:
    """Return a time with all nine digits, so that texts sort as times do."""
    found = _TIME.fullmatch(time)
    return f"{found[1]}.{(found[2] or '').ljust(9, '0')}Z" if found else ""


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z"


def _carries(custom: Members, tags: Mapping[str, str]) -> bool:
    return all(custom.get(name) == value for name, value in tags.items())


def _common(paths: Sequence[list[str]]) -> list[str]:
    """Return the folders that all paths begin with."""
    shortest = min(paths, key=len)
    for depth, folder in enumerate(shortest):
        if any(path[depth] != folder for path in paths):
            return shortest[:depth]
    return shortest


# ---------------------------------------------------------------------------------------------------------------------
# Change notification: from Vault Enterprise's event stream, or from a cheap scan of all versions every few seconds.
#
#     events   websocket `sys/events/subscribe/kv-v2/*`; a break means a reconnect, and that everything is read again
#     scan     one SCAN of detailed metadata a round (OpenBao): 1,000 unchanged keys cost one request, not 1,000
#
# A server with neither (Vault without Enterprise), a token that may use neither, and version 1 engines offer no
# subscription. The working source is detected once for each session.


POLL_SECONDS: Final = 10.0
"""The interval between scans. A subscription costs six requests a minute, however many keys it watches."""
RECONNECT_SECONDS: Final = (1.0, 2.0, 5.0, 15.0, 30.0)
MAX_FAILURES: Final = 5
"""The number of failed scans or connections in a row after which the stream ends with the error."""

_EVENTS: Final = "sys/events/subscribe/kv-v2/*"
_PROBE: Final = "external-secrets-looks-whether-it-may-scan"
_DELETIONS: Final = frozenset({"kv-v2/data-delete", "kv-v2/metadata-delete"})
_TOKEN: Final = "scan "  # noqa: S105 - a position in a stream

ChangeSource = Literal["events", "scan", "none"]
_PASSING: Final = frozenset(
    {ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.RATE_LIMITED, ErrorReason.BACKEND_ERROR}
)


class Watcher:
    """Reports the changes of one engine."""

    def __init__(self, api: Api, finder: Finder) -> None:
        self._api = api
        self._finder = finder
        self._change_source: ChangeSource | None = None

    async def change_source(self) -> ChangeSource:
        """Return how this server reports changes; detected once."""
        if self._change_source is None:
            self._change_source = await self._detect()
        return self._change_source

    async def subscribe(self, items: Sequence[WatchItem], resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        """Yield changes of the watched keys, without end."""
        topics = Topics(items, self._api.settings)
        match await self.change_source():
            case "events":
                stream = self._listen(topics, resume_token)
            case "scan":
                stream = self._poll(topics, resume_token)
            case "none":
                raise unsupported(
                    "this server has neither an event stream nor SCAN that the token may use; grant scan on"
                    " detailed-metadata, or rely on refreshInterval"
                )
        async for event in stream:
            yield event

    async def _detect(self) -> ChangeSource:
        if self._api.settings.version == "v1":
            return "none"
        # A server with events responds to a plain request with "upgrade required", other servers with 404.
        reply = await self._api.probe("GET", _EVENTS, call="SubscribeEvents")
        if reply.status in (400, 426) and not reply.mentions("unsupported path"):
            return "events"
        if reply.status == 429 or reply.status >= 500:
            raise await self._api.refused(reply, _EVENTS)
        mount = self._api.settings.mount
        scanned = await self._finder.scan(Location(mount, _PROBE), detailed=True) if mount else None
        return "none" if scanned is None else "scan"

    # --- scan --------------------------------------------------------------------------------------------------------

    async def _poll(self, topics: Topics, resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        begun = self._api.clock.monotonic()
        before = await self._overview(topics)
        if resume_token and not resume_token.startswith(_TOKEN):
            yield ChangeEvent(ChangeType.RESYNC, resume_token=_token(before))
        since = resume_token.removeprefix(_TOKEN) if resume_token.startswith(_TOKEN) else ""
        elapsed = self._api.clock.monotonic() - begun
        for event in topics.missed(before, since=since, elapsed=elapsed, now=self._api.clock.now()):
            yield event
        yield Heartbeat(self._api.clock.now(), _token(before))
        failures = 0
        while True:
            await self._api.clock.sleep(POLL_SECONDS if not failures else _pause(failures))
            try:
                after = await self._overview(topics)
            except ProviderError as failed:
                failures += 1
                if failures >= MAX_FAILURES or failed.reason not in _PASSING:
                    raise
                continue
            failures = 0
            for event in topics.changes(before, after, now=self._api.clock.now()):
                yield replace(event, resume_token=_token(after))
            before = after

    async def _overview(self, topics: Topics) -> Overview:
        overviews = []
        for root in topics.roots():
            tree = await self._finder.scan(root, detailed=True)
            if tree is None:
                raise unsupported(f"the token may no longer scan {self._api.endpoint(root.folder)}; grant scan again")
            overviews.append(overview_of(root, tree, now=self._api.clock.now()))
        return merged(overviews)

    # --- events ------------------------------------------------------------------------------------------------------

    async def _listen(self, topics: Topics, resume_token: str) -> AsyncIterator[ChangeEvent | Heartbeat]:
        failures = 0
        resync = bool(resume_token)
        while True:
            try:
                async for event in self._connected(topics, resync=resync):
                    failures = 0
                    yield event
            except ProviderError as failed:
                failures += 1
                if failures >= MAX_FAILURES or failed.reason not in _PASSING:
                    raise
            # The server does not store events for us, so everything that changed while we were disconnected must be
            # read again.
            resync = True
            await self._api.clock.sleep(_pause(failures))

    async def _connected(self, topics: Topics, *, resync: bool) -> AsyncIterator[ChangeEvent | Heartbeat]:
        connection = self._api.connection
        scheme, _, rest = connection.url(_EVENTS, {"json": "true"}).partition(":")
        url = url_of(f"{'wss' if scheme == 'https' else 'ws'}:{rest}")
        headers = connection.headers(await self._api.token(), self._api.settings.namespace)
        try:
            async with connection.http.websocket(url, headers) as socket:
                yield Heartbeat(self._api.clock.now())
                if resync:
                    yield ChangeEvent(ChangeType.RESYNC)
                async for message in socket:
                    if (event := self._event(message.data, topics)) is not None:
                        yield event
        except HttpStatusError as refused:
            if refused.status == 403:
                await self._api.renew()
            raise

    def _event(self, message: object, topics: Topics) -> ChangeEvent | None:
        """Return the event of one message for our watches; None if it concerns none."""
        try:
            event = parse(message.encode() if isinstance(message, str) else b"")
        except NotJsonError:
            return None
        kind = text(event, "data", "event_type")
        about = at(event, "data", "event", "metadata")
        mount = text(event, "data", "plugin_info", "mount_path").strip("/")
        key = _key_in(text(about, "data_path") or text(about, "path"), mount)
        if not key or text(about, "modified") == "false":
            return None
        ids = topics.watching(mount, key, None)
        if not ids:
            return None
        change = ChangeType.DELETED if kind in _DELETIONS else ChangeType.UPDATED
        return ChangeEvent(change, ids, text(about, "current_version"), self._api.clock.now())


def _key_in(path: str, mount: str) -> str:
    """Return the key of an event's path `MOUNT/data/KEY`; the path may name any part of the engine."""
    _, found, inside = f"/{path}".partition(f"/{mount}/")
    return inside.partition("/")[2] if found and mount else ""


def _token(overview: Overview) -> str:
    return f"{_TOKEN}{overview.latest}"


def _pause(failures: int) -> float:
    return RECONNECT_SECONDS[min(max(failures - 1, 0), len(RECONNECT_SECONDS) - 1)]
