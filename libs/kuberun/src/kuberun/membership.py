"""The processes that share the work: each renews a Lease of its own and observes all Leases of the group.

A Lease of a member says only that the process lives. It gives no right to write; the Leases of shards do
(`sharding.py`). So a member that is wrongly taken for dead or alive moves shards too early or too late, but two
processes never work on one shard.

As in an election, only monotonic time measured in this process counts: a member lives until its Lease has not changed
for its whole duration. Leases of members that died long ago are deleted.

A layout is how the work is divided: the number of shards. A process observes only members with its own layout.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

import structlog

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, Kind, ObjectKey, Page, version_of
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.leader import LEASES, Leases, LeaseSettings, micro_time
from kuberun.requests import DeleteOptions, Selection

_FORGOTTEN_AFTER: Final = 4
"""Durations after which the Lease of a dead member is deleted."""

_log = structlog.get_logger(__name__)


class MemberLeases(Leases, Protocol):
    """The verbs that membership needs; `kuberun.client.Client` has them."""

    async def list(self, kind: Kind[JsonObject], selection: Selection, /) -> Page[JsonObject]: ...
    async def delete(self, kind: Kind[JsonObject], key: ObjectKey, options: DeleteOptions, /) -> None: ...


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """The last change of a Lease that this process has observed, and when, on its monotonic clock."""

    holder: str
    version: str
    at: float


class Membership:
    def __init__(
        self,
        leases: MemberLeases,
        group: ObjectKey,
        *,
        layout: str,
        label: str,
        identity: str,
        clock: Clock,
        settings: LeaseSettings,
    ) -> None:
        """Prepare to join `group`. All Leases of the group have the label `label` with its name."""
        self.identity = identity
        self.labels = {label: group.name}
        self.live: frozenset[str] = frozenset()
        """The members that live, this process included; empty before the first observation."""
        self.changed = asyncio.Event()
        """Set when `live` changes. The reader clears it."""
        self.joined = asyncio.Event()
        """Set when our Lease exists, so that every other process can observe it."""
        self._leases = leases
        self._selection = Selection(group.namespace, label_selector=f"{label}={group.name}")
        digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        self._group_prefix = f"{group.name}-member-"
        self._layout_prefix = f"{self._group_prefix}{layout}-"
        self._key = ObjectKey(group.namespace, self._layout_prefix + digest)
        self._clock = clock
        self._settings = settings
        self._own: JsonObject | None = None
        self._observed: dict[str, ObservedLease] = {}

    def observed(self, name: str) -> ObservedLease | None:
        """Return what is known about a Lease of the group."""
        return self._observed.get(name)

    async def run(self) -> NoReturn:
        """Renew our Lease and observe the others, until cancelled."""
        while True:
            try:
                async with Deadline(self._clock, self._settings.renew_deadline / 2):
                    await self._renew()
                    self._observe(await self._leases.list(LEASES, self._selection))
                    await self._delete_expired()
            except (ApiError, OSError) as error:
                _log.warning("members not observed", group=str(self._key), error=type(error).__name__)
            await self._clock.sleep(self._settings.retry_period)

    async def leave(self) -> bool:
        """Delete our Lease, so that the others take over our shards at once. Return whether we were the last member.

        A member whose Lease still exists counts, dead or alive: it may work for as long as its other Leases last.
        """
        try:
            async with Deadline(self._clock, self._settings.retry_period):
                await self._delete_own()
                left = await self._leases.list(LEASES, self._selection)
        except (ApiError, OSError) as error:
            _log.warning("membership not ended", lease=str(self._key), error=type(error).__name__)
            return False
        return not any(name.startswith(self._layout_prefix) for name in _by_name(left))

    async def _delete_own(self) -> None:
        try:
            await self._leases.delete(LEASES, self._key, DeleteOptions())
        except NotFound:
            return

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._settings.duration,
            "renewTime": micro_time(self._clock.now()),
        }
        try:
            if self._own is None:
                metadata = {"namespace": self._key.namespace, "name": self._key.name, "labels": self.labels}
                self._own = await self._leases.create(LEASES, {"metadata": metadata, "spec": spec})
            else:
                self._own = await self._leases.update(LEASES, {**self._own, "spec": spec})
        except NotFound:
            self._own = None  # deleted: created again next time
        except (AlreadyExists, Conflict):
            self._own = await self._leases.get(LEASES, self._key)  # an earlier write whose response was lost
        if self._own is not None:
            self.joined.set()

    def _observe(self, page: Page[JsonObject]) -> None:
        now = self._clock.monotonic()
        leases = _by_name(page)
        for name, lease in leases.items():
            known, version = self._observed.get(name), version_of(lease)
            if known is None or known.version != version:
                holder = (lease.get("spec") or {}).get("holderIdentity") or ""
                self._observed[name] = ObservedLease(holder, version, now)
        for name in self._observed.keys() - leases.keys():
            del self._observed[name]
        layout = [observed for name, observed in self._observed.items() if name.startswith(self._layout_prefix)]
        live = {observed.holder for observed in layout if now < observed.at + self._settings.duration}
        self._set_live(frozenset(live - {""} | {self.identity}))

    def _set_live(self, live: frozenset[str]) -> None:
        if live != self.live:
            _log.info("members changed", members=sorted(live), gone=sorted(self.live - live))
            self.live = live
            self.changed.set()

    async def _delete_expired(self) -> None:
        longest = self._settings.duration * _FORGOTTEN_AFTER
        for name, observed in list(self._observed.items()):
            if name.startswith(self._group_prefix) and self._clock.monotonic() >= observed.at + longest:
                key = ObjectKey(self._key.namespace, name)
                await self._leases.delete(LEASES, key, DeleteOptions(resource_version=observed.version))


def _by_name(page: Page[JsonObject]) -> dict[str, JsonObject]:
    return {obj["metadata"]["name"]: obj for obj in page.items if isinstance(obj, dict)}
