"""The processes that share the work: each keeps a Lease of its own and looks at all Leases of the group.

A Lease of a member says only that the process lives. It gives no right to write; the Leases of shards do
(`sharding.py`). So a member that is wrongly seen as dead or alive moves shards too early or too late, but two processes
never work on one shard.

As in an election, only monotonic time measured in this process counts: a member lives until its Lease has not changed
for its whole duration. Leases of members that died long ago are deleted.

Members form a crew if they agree on how the work is divided. A process sees only members of its own crew.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, Kind, ObjectKey, Page, version_of
from kubebase.plainlogs import structlog
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
class Seen:
    """The last change of a Lease that this process has seen, on its monotonic clock."""

    holder: str
    version: str
    at: float


class Membership:
    def __init__(
        self,
        leases: MemberLeases,
        group: ObjectKey,
        *,
        crew: str,
        label: str,
        identity: str,
        clock: Clock,
        settings: LeaseSettings,
    ) -> None:
        """Prepare to join a crew of `group`. All Leases of the group have the label `label` with its name."""
        self.identity = identity
        self.labels = {label: group.name}
        self.live: frozenset[str] = frozenset()
        """The members that live, this process included; empty before the first look."""
        self.changed = asyncio.Event()
        """Set when `live` changes. The reader clears it."""
        self.joined = asyncio.Event()
        """Set when our Lease exists, so that every other process can see it."""
        self._leases = leases
        self._selection = Selection(group.namespace, label_selector=f"{label}={group.name}")
        digest = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        self._every_crew = f"{group.name}-member-"
        self._crew = f"{self._every_crew}{crew}-"
        self._key = ObjectKey(group.namespace, self._crew + digest)
        self._clock = clock
        self._settings = settings
        self._own: JsonObject | None = None
        self._seen: dict[str, Seen] = {}

    def seen(self, name: str) -> Seen | None:
        """Return what is known about a Lease of the group."""
        return self._seen.get(name)

    async def run(self) -> NoReturn:
        """Renew our Lease and look at the others, until cancelled."""
        while True:
            try:
                async with Deadline(self._clock, self._settings.renew_deadline / 2):
                    await self._renew()
                    self._look(await self._leases.list(LEASES, self._selection))
                    await self._tidy()
            except (ApiError, OSError) as error:
                _log.warning("members not seen", group=str(self._key), error=type(error).__name__)
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
        return not any(name.startswith(self._crew) for name in _by_name(left))

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
            self._own = await self._leases.get(LEASES, self._key)  # an earlier write whose answer was lost
        if self._own is not None:
            self.joined.set()

    def _look(self, page: Page[JsonObject]) -> None:
        now = self._clock.monotonic()
        leases = _by_name(page)
        for name, lease in leases.items():
            known, version = self._seen.get(name), version_of(lease)
            if known is None or known.version != version:
                holder = (lease.get("spec") or {}).get("holderIdentity") or ""
                self._seen[name] = Seen(holder, version, now)
        for name in self._seen.keys() - leases.keys():
            del self._seen[name]
        crew = [seen for name, seen in self._seen.items() if name.startswith(self._crew)]
        live = {seen.holder for seen in crew if now < seen.at + self._settings.duration}
        self._live(frozenset(live - {""} | {self.identity}))

    def _live(self, live: frozenset[str]) -> None:
        if live != self.live:
            _log.info("members changed", members=sorted(live), gone=sorted(self.live - live))
            self.live = live
            self.changed.set()

    async def _tidy(self) -> None:
        longest = self._settings.duration * _FORGOTTEN_AFTER
        for name, seen in list(self._seen.items()):
            if name.startswith(self._every_crew) and self._clock.monotonic() >= seen.at + longest:
                key = ObjectKey(self._key.namespace, name)
                await self._leases.delete(LEASES, key, DeleteOptions(resource_version=seen.version))


def _by_name(page: Page[JsonObject]) -> dict[str, JsonObject]:
    return {obj["metadata"]["name"]: obj for obj in page.items if isinstance(obj, dict)}
