"""The state of all objects, kept current: an informer for each kind that can be listed, and the Leases of operators.

`eso status --watch` and the dashboard show it. A kind that cannot be listed is a gap, and is tried again.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final, NoReturn

from eso_tools.status.operators import NOT_READ, read_operators
from eso_tools.status.overview import (
    MAX_ROWS,
    OVERVIEW_KINDS,
    AnyKind,
    CachedObjects,
    Missing,
    Overview,
    Row,
    gap_of,
    gather,
    row_of,
)
from eso_tools.times import span
from kubebase.clock import Clock
from kubebase.meta import Malformed, ObjectKey, version_of
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.requests import Selection

_LEASE_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 10.0
"""Kinds that could not be listed are tried again after this time."""
_SYNC_SECONDS: Final = 30.0
"""A kind that was not read within this time counts as a gap until it is."""
_STALE_SECONDS: Final = 10.0
"""A watch may be interrupted for this long before readers are told: most interruptions end within a second or two."""


class FollowedObjects:
    """The objects of one namespace, or of all. `changed` is set by every change; its waiter clears it."""

    def __init__(self, client: Client, clock: Clock, namespace: str = "", *, core_namespace: str = "") -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._core_namespace = core_namespace
        self._informers: dict[AnyKind, Informer[Any]] = {}
        self._started: dict[AnyKind, float] = {}
        self._gaps: dict[AnyKind, Missing] = {}
        self._rows: dict[tuple[AnyKind, ObjectKey], tuple[str, Row]] = {}
        self.operators = NOT_READ
        self.changed = asyncio.Event()
        self.read = asyncio.Event()
        """Set when every kind was read once or is a gap."""

    async def run(self, *, fail_fast: bool = False) -> NoReturn:
        """Follow until cancelled. With `fail_fast`, raise ApiError if nothing can be listed at the start."""
        async with asyncio.TaskGroup() as group:
            tried = float("-inf")
            while True:
                if self._clock.monotonic() - tried >= _RETRY_SECONDS:
                    await self._start_missing(group, fail_fast=fail_fast)
                    tried = self._clock.monotonic()
                operators = await read_operators(
                    self._client, self._clock.now(), self._namespace, core_namespace=self._core_namespace
                )
                if operators != self.operators or not self.read.is_set():
                    self.operators = operators
                    self.changed.set()
                self.read.set()
                await self._clock.sleep(_LEASE_SECONDS)

    async def overview(self) -> Overview:
        """Return the rows of all objects. A row is made again only if its object has changed."""
        overview = await gather(
            CachedObjects({custom: each.cache for custom, each in self._informers.items()}, self._all_gaps()),
            row=self._row,
        )
        if len(self._rows) > 2 * MAX_ROWS:  # deleted objects
            self._rows.clear()
        return overview

    def objects(self, *kinds: AnyKind) -> list[tuple[AnyKind, Any]]:
        """Return the objects of these kinds that fit their type."""
        known = [(custom, self._informers[custom]) for custom in kinds if custom in self._informers]
        return [(custom, obj) for custom, informer in known for obj in informer.cache.objects()]

    def stale(self) -> str:
        """Return why the objects are not current, as a sentence; empty while they are."""
        if not self.read.is_set() or not all(informer.synced for informer in self._informers.values()):
            return "The objects are still being read. This page does not show all of them yet."
        age = self._age()
        return (
            ""
            if age < _STALE_SECONDS
            else f"The API server does not answer. This page shows the state of {span(age)} ago."
        )

    def as_of(self) -> datetime:
        """Return the time whose state is known."""
        return self._clock.now() - timedelta(seconds=self._age())

    def _age(self) -> float:
        return max((each.age for each in self._informers.values() if each.unreachable), default=0.0)

    def _row(self, custom: AnyKind, obj: Any) -> Row:
        key, version = (custom, obj.metadata.key), version_of(obj)
        known = self._rows.get(key)
        if known is None or known[0] != version or isinstance(obj, Malformed):
            known = self._rows[key] = (version, row_of(custom, obj))
        return known[1]

    def _all_gaps(self) -> dict[AnyKind, Missing]:
        late = self._clock.monotonic() - _SYNC_SECONDS
        unread = {
            custom: Missing.UNREADABLE
            for custom, informer in self._informers.items()
            if not informer.synced and self._started[custom] < late
        }
        return {**self._gaps, **unread}

    async def _start_missing(self, group: asyncio.TaskGroup, *, fail_fast: bool) -> None:
        """Start the informers of kinds that can be listed now; record why the others cannot."""
        started: list[Informer[Any]] = []
        for custom in OVERVIEW_KINDS:
            if custom in self._informers:
                continue
            try:
                gap = await gap_of(self._client, custom, self._namespace)
            except ApiError:
                if fail_fast and not self._informers:
                    raise
                gap = Missing.UNREADABLE
            if gap is not None:
                self._gaps[custom] = gap
                continue
            self._gaps.pop(custom, None)
            source = self._client.source(custom.kind(), Selection(self._namespace if custom.namespaced else ""))
            informer: Informer[Any] = Informer(source, clock=self._clock, name=custom.crd_name)
            self._informers[custom], self._started[custom] = informer, self._clock.monotonic()
            started.append(informer)
            group.create_task(informer.run())
            group.create_task(self._notice_changes(informer))
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                for informer in started:
                    await informer.wait_synced()
        except TimeoutError:
            return  # it is a gap until it is read

    async def _notice_changes(self, informer: Informer[Any]) -> None:
        subscription = informer.subscribe()
        while True:
            await subscription.take()
            self.changed.set()
