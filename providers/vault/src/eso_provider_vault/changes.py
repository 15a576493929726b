"""The differences between two scans of an engine, and the watches that they concern. `watching.py` scans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from eso_provider_vault.documents import Members, at, integer, members, text
from eso_provider_vault.finding import Tree
from eso_provider_vault.paths import Location, locate
from eso_provider_vault.settings import Settings
from eso_sdk.matching import Matcher
from eso_wire.errors import ProviderError
from eso_wire.values import ChangeEvent, ChangeType, FindQuery, WatchItem

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
