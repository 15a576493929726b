"""Change detection by listing: one listing of names and versions per round, shared by all subscriptions of an identity.

    look -> [pause] -> look -> ...   two calls a minute, however many stores and names: a round waits longer, the more
                                     pages it has, up to five minutes

Without a watch no call is made. If a listing is denied or too long, the next attempt is half an hour later.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eso_provider_aws.api import Api
from eso_provider_aws.changes.source import Source
from eso_provider_aws.changes.topics import Look, Scope, State, Topics, scope_of
from eso_sdk.errors import unsupported
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

POLL_SECONDS: Final = 30.0
"""Seconds between two listings, for each page of a listing. `ESO_PROVIDER_AWS_LOOK_SECONDS` overrides it."""
LONGEST_POLL: Final = 300.0
PAGE_SECONDS: Final = 0.2
"""Seconds between two pages of one listing: DescribeParameters is limited to a few calls a second."""
MAX_PAGES: Final = 100
REFUSED_SECONDS: Final = 1800.0
FAILURE_PAUSES: Final = (5.0, 10.0, 30.0, 60.0)
MAX_FAILURES: Final = 5
"""The number of failures in a row after which subscriptions end with the error."""
REMEMBERED: Final = 8
"""The number of listings that a subscription can resume from."""

PASSING: Final = frozenset({ErrorReason.BACKEND_UNAVAILABLE, ErrorReason.BACKEND_TIMEOUT, ErrorReason.RATE_LIMITED})


def look_seconds() -> float:
    """Return the interval between listings: the administrator's setting, at least one second."""
    said = os.environ.get("ESO_PROVIDER_AWS_LOOK_SECONDS", "")
    return max(float(said), 1.0) if said.isdecimal() else POLL_SECONDS


class Looks:
    """The listings of one identity for one service in one region."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.name = uuid.uuid4().hex[:12]
        self._source = source
        self._clock = clock
        self._round = look_seconds()
        self._wanted: list[Topics] = []
        self._seen: BoundedDict[int, Look] = BoundedDict(REMEMBERED)
        self._number = 0
        self._looked_at = float("-inf")
        self._due = float("-inf")
        self._failures = 0
        self._error: ProviderError | None = None
        self._lock = asyncio.Lock()

    @property
    def refusal(self) -> ProviderError | None:
        """Return the error of the last listing while listings are unsupported and paused."""
        error = self._error
        return (
            error if error is not None and error.reason is ErrorReason.UNSUPPORTED_OPERATION and self._waits else None
        )

    @property
    def _waits(self) -> bool:
        return self._clock.monotonic() < self._due

    @contextmanager
    def wanting(self, topics: Topics) -> Iterator[None]:
        """Include these topics in listings inside the block."""
        self._wanted.append(topics)
        try:
            yield
        finally:
            self._wanted.remove(topics)

    def remembered(self, number: int) -> Look | None:
        return self._seen.get(number)

    async def first(self, api: Api) -> Look:
        """Return a listing of all wanted topics that is not older than a round."""
        async with self._lock:
            if self._error is not None and self._waits:
                raise self._error.with_traceback(None)
            newest = self._newest
            fresh = self._clock.monotonic() - self._looked_at < self._round
            if newest is None or not fresh or not _within(scope_of(self._wanted), newest.scope):
                return await self._look(api)
            return newest

    async def after(self, api: Api, seen: Look, *, until: float) -> Look | None:
        """Return the next listing that differs from `seen`; None if there is none before `until`."""
        while self._clock.monotonic() < until:
            newest = self._newest
            if newest is not None and newest is not seen:
                return newest
            due = self._due
            await self._clock.sleep(max(min(due, until) - self._clock.monotonic(), 0.0))
            async with self._lock:
                if refusal := self.refusal:
                    raise refusal.with_traceback(None)
                if self._due == due <= until:  # no other subscription has made a listing in the meantime
                    await self._look_again(api)
        return None

    @property
    def _newest(self) -> Look | None:
        return self._seen.get(self._number)

    async def _look_again(self, api: Api) -> None:
        """Do as `_look`, but tolerate a limited number of transient failures."""
        try:
            await self._look(api)
        except ProviderError as failed:
            if failed.reason not in PASSING or self._failures >= MAX_FAILURES:
                raise

    async def _look(self, api: Api) -> Look:
        scope = scope_of(self._wanted)
        try:
            states, pages = await self._listed(api, scope)
        except ProviderError as failed:
            self._error = self._failed(failed)
            raise self._error from None
        self._failures, self._error = 0, None
        self._looked_at = self._clock.monotonic()
        self._due = self._looked_at + min(self._round * max(pages, 1), max(LONGEST_POLL, self._round))
        newest = self._newest
        if newest is None or newest.states != states or newest.scope != scope:
            self._number += 1
            self._seen[self._number] = newest = Look(self._number, scope, states)
        return newest

    async def _listed(self, api: Api, scope: Scope) -> tuple[dict[str, State], int]:
        states: dict[str, State] = {}
        pages = 0
        if scope.prefixes == ():
            return states, pages
        source = self._source
        async for page in api.pages(source.operation, about=source.about, **source.narrowed(scope)):
            pages += 1
            states |= {name: state for name, state in source.states(page) if scope.covers(name)}
            if page.get("NextToken"):
                if pages >= MAX_PAGES:
                    many = f"{source.about} in {api.region} are too many to look at"
                    raise unsupported(f"{many}; name a queue in changes.queueURL, or rely on refreshInterval")
                await self._clock.sleep(PAGE_SECONDS)
        return states, pages

    def _failed(self, failed: ProviderError) -> ProviderError:
        """Schedule the next attempt and return the error to raise."""
        self._failures += 1
        now = self._clock.monotonic()
        if failed.reason is ErrorReason.PERMISSION_DENIED:
            failed = unsupported(f"{failed.message}, to hear of changes; until then refreshInterval counts")
        lasts = failed.reason is ErrorReason.UNSUPPORTED_OPERATION
        pause = REFUSED_SECONDS if lasts else FAILURE_PAUSES[min(self._failures, len(FAILURE_PAUSES)) - 1]
        self._due = now + max(pause, failed.retry_after)
        return failed


def _within(wanted: Scope, looked: Scope) -> bool:
    if looked.prefixes is None or wanted.prefixes is None:
        return looked.prefixes is None
    return all(map(looked.covers, wanted.prefixes))
