"""Change detection by listing: one listing of names and versions per round, shared by all subscriptions of an identity.

    list -> [pause] -> list -> ...   two calls a minute, however many stores and names: a round waits longer, the more
                                     pages it has, up to five minutes

| service | call | entries of a page |
|---|---|---|
| Secrets Manager | ListSecrets | 100 |
| Parameter Store | DescribeParameters, which shows no tags and no labels | 50 |

Without a watch no call is made. If a listing is denied or too long, the next attempt is half an hour later.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from eso_provider_aws.api import Api
from eso_provider_aws.changes.events import (
    CURRENT,
    Listing,
    Naming,
    Scope,
    State,
    Topics,
    parameter_names,
    scope_of,
    secret_names,
)
from eso_provider_aws.clients import PARAMETER_STORE, SECRETS_MANAGER
from eso_sdk.errors import unsupported
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock


@dataclass(frozen=True, slots=True)
class Source:
    """The listing call of one service and the parsing of its pages."""

    service: str
    operation: str
    about: str
    naming: Naming
    narrowed: Callable[[Scope], dict[str, Any]]
    """Returns the parameters of the listing call."""
    states: Callable[[dict[str, Any]], Iterator[tuple[str, State]]]
    """Returns the state of each name on a page."""


def _secret_filter(scope: Scope) -> dict[str, Any]:
    parameters: dict[str, Any] = {"MaxResults": 100}
    if scope.prefixes:
        parameters["Filters"] = [{"Key": "name", "Values": list(scope.prefixes)}]
    return parameters


def _secret_states(page: dict[str, Any]) -> Iterator[tuple[str, State]]:
    for entry in page.get("SecretList", ()):
        if entry.get("DeletedDate") is None:
            yield entry["Name"], _secret_state(entry)


def _secret_state(entry: dict[str, Any]) -> State:
    """Return the state of a secret, without descriptions, policies and pending versions, which readers cannot read."""
    changed = entry.get("LastChangedDate") or entry.get("CreatedDate")
    stamp = changed.timestamp() if changed is not None else 0.0
    versions = {stage: each for each, stages in (entry.get("SecretVersionsToStages") or {}).items() for stage in stages}
    if CURRENT in versions:
        versions[""] = versions[CURRENT]
    tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags") or ()}
    return State(versions, "" if versions else str(stamp), tags, stamp)


SECRETS: Final = Source(
    service=SECRETS_MANAGER,
    operation="ListSecrets",
    about="the secrets",
    naming=secret_names,
    narrowed=_secret_filter,
    states=_secret_states,
)


def _parameter_filter(scope: Scope) -> dict[str, Any]:
    parameters: dict[str, Any] = {"MaxResults": 50}
    if scope.prefixes:
        parameters["ParameterFilters"] = [{"Key": "Name", "Option": "BeginsWith", "Values": list(scope.prefixes)}]
    return parameters


def _parameter_states(page: dict[str, Any]) -> Iterator[tuple[str, State]]:
    for entry in page.get("Parameters", ()):
        version = str(entry.get("Version", ""))
        changed = entry.get("LastModifiedDate")
        stamp = changed.timestamp() if changed is not None else 0.0
        yield entry["Name"], State({"": version}, version, None, stamp)


PARAMETERS: Final = Source(
    service=PARAMETER_STORE,
    operation="DescribeParameters",
    about="the parameters",
    naming=parameter_names,
    narrowed=_parameter_filter,
    states=_parameter_states,
)


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


def poll_seconds() -> float:
    """Return the interval between listings: the administrator's setting, at least one second."""
    setting = os.environ.get("ESO_PROVIDER_AWS_LOOK_SECONDS", "")
    return max(float(setting), 1.0) if setting.isdecimal() else POLL_SECONDS


class Listings:
    """The listings of one identity for one service in one region."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.name = uuid.uuid4().hex[:12]
        self._source = source
        self._clock = clock
        self._round = poll_seconds()
        self._topics: list[Topics] = []
        self._recent: BoundedDict[int, Listing] = BoundedDict(REMEMBERED)
        self._number = 0
        self._listed_at = float("-inf")
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
    def including(self, topics: Topics) -> Iterator[None]:
        """Include these topics in listings inside the block."""
        self._topics.append(topics)
        try:
            yield
        finally:
            self._topics.remove(topics)

    def remembered(self, number: int) -> Listing | None:
        return self._recent.get(number)

    async def first(self, api: Api) -> Listing:
        """Return a listing of all topics that is not older than a round."""
        async with self._lock:
            if self._error is not None and self._waits:
                raise self._error.with_traceback(None)
            newest = self._newest
            fresh = self._clock.monotonic() - self._listed_at < self._round
            if newest is None or not fresh or not _within(scope_of(self._topics), newest.scope):
                return await self._list(api)
            return newest

    async def after(self, api: Api, known: Listing, *, until: float) -> Listing | None:
        """Return the next listing that differs from `known`; None if there is none before `until`."""
        while self._clock.monotonic() < until:
            newest = self._newest
            if newest is not None and newest is not known:
                return newest
            due = self._due
            await self._clock.sleep(max(min(due, until) - self._clock.monotonic(), 0.0))
            async with self._lock:
                if refusal := self.refusal:
                    raise refusal.with_traceback(None)
                if self._due == due <= until:  # no other subscription has made a listing in the meantime
                    await self._list_again(api)
        return None

    @property
    def _newest(self) -> Listing | None:
        return self._recent.get(self._number)

    async def _list_again(self, api: Api) -> None:
        """Do as `_list`, but tolerate a limited number of transient failures."""
        try:
            await self._list(api)
        except ProviderError as failed:
            if failed.reason not in PASSING or self._failures >= MAX_FAILURES:
                raise

    async def _list(self, api: Api) -> Listing:
        scope = scope_of(self._topics)
        try:
            states, pages = await self._listed(api, scope)
        except ProviderError as failed:
            self._error = self._failed(failed)
            raise self._error from None
        self._failures, self._error = 0, None
        self._listed_at = self._clock.monotonic()
        self._due = self._listed_at + min(self._round * max(pages, 1), max(LONGEST_POLL, self._round))
        newest = self._newest
        if newest is None or newest.states != states or newest.scope != scope:
            self._number += 1
            self._recent[self._number] = newest = Listing(self._number, scope, states)
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
                    many = f"{source.about} in {api.region} are too many to list"
                    raise unsupported(f"{many}; name a queue in changes.queueURL, or rely on refreshInterval")
                await self._clock.sleep(PAGE_SECONDS)
        return states, pages

    def _failed(self, failed: ProviderError) -> ProviderError:
        """Schedule the next attempt and return the error to raise."""
        self._failures += 1
        now = self._clock.monotonic()
        if failed.reason is ErrorReason.PERMISSION_DENIED:
            failed = unsupported(f"{failed.message}, to detect changes; until then only refreshInterval applies")
        lasts = failed.reason is ErrorReason.UNSUPPORTED_OPERATION
        pause = REFUSED_SECONDS if lasts else FAILURE_PAUSES[min(self._failures, len(FAILURE_PAUSES)) - 1]
        self._due = now + max(pause, failed.retry_after)
        return failed


def _within(inner: Scope, outer: Scope) -> bool:
    if outer.prefixes is None or inner.prefixes is None:
        return outer.prefixes is None
    return all(map(outer.covers, inner.prefixes))
