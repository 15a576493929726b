"""Listings of a vault without values: 25 objects to a page, each with its tags and the time of its last change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

from eso_provider_azure.api import Api, vault_itself
from eso_provider_azure.names import Kind
from eso_provider_azure.objects import tags_of
from eso_provider_azure.vault import Vault
from eso_sdk.errors import unsupported
from eso_wire.errors import ErrorReason, ProviderError

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
