"""Several processes share the objects: each shard of them is held by the process that holds the shard's Lease.

    membership -> assigned shards -> take the Lease, wait, work -> drain, release the Lease

Three kinds of Leases:
- NAME-member-…: one for each process. It says that the process lives (`Membership`), and exists before the process
  takes any other Lease.
- NAME-shard-0, NAME-shard-1, …: only the holder works on the objects of the shard. This is an election for each shard
  (`leader.py`), with the same guarantee: two processes never work on one shard.
- NAME: held by all processes with the same number of shards together, and by the leader if there is a single shard.
  Processes that disagree about the number of shards therefore never work at the same time: those that come later wait
  until the others are gone. This also holds for every other operator that uses a Lease of that name. Only the last
  member releases it, if no other process has joined since.

When a process joins or leaves, `assigned` gives shards to other processes. The holder then takes no further
objects of such a shard, lets running reconciles finish, and releases the Lease. The next holder waits for a moment, so
that its caches have the last writes of the former holder, and then reconciles every object of the shard.

A process that loses the Lease of an assigned shard ends, like a leader.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

import structlog

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, ObjectKey, Page, version_of
from kuberun.client import Client
from kuberun.controller import Controller
from kuberun.errors import AlreadyExists, ApiError, Conflict, NotFound
from kuberun.leader import LEASES, LeaderElection, LeadershipLostError, LeaseSettings, micro_time, new_identity
from kuberun.permit import Permit
from kuberun.requests import DeleteOptions, Selection

# --- The processes that share the work: each renews a Lease of its own and observes all Leases of the group -----------
# A Lease of a member says only that the process lives. It gives no right to write; the Leases of shards do. So a
# member that is wrongly taken for dead or alive moves shards too early or too late, but two processes never work on
# one shard.
#
# As in an election, only monotonic time measured in this process counts: a member lives until its Lease has not changed
# for its whole duration. Leases of members that died long ago are deleted.
#
# A layout is how the work is divided: the number of shards. A process observes only members with its own layout.


_FORGOTTEN_AFTER: Final = 4
"""Durations after which the Lease of a dead member is deleted."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """The last change of a Lease that this process has observed, and when, on its monotonic clock."""

    holder: str
    version: str
    at: float


class Membership:
    def __init__(
        self,
        leases: Client,
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


ShardKeyFunction = Callable[[ObjectKey], str]
"""Returns the shard key of an object. Objects with the same key belong to the same shard."""

_CACHED_KEYS: Final = 65_536
"""Shard keys whose shard is cached: more than a cluster has namespaces."""


def by_namespace(key: ObjectKey) -> str:
    """Divide objects by their namespace; all cluster-scoped objects belong to one shard."""
    return key.namespace


def same_shard(_: ObjectKey) -> str:
    """Put all objects of a kind on the shard of the cluster-scoped objects, because they are coordinated in memory."""
    return ""


@lru_cache(_CACHED_KEYS)
def shard_of(shard_key: str, shards: int) -> int:
    """Return the shard of a key. With one shard more, only the keys that the new shard wins move."""
    return max(range(shards), key=lambda shard: _score(shard_key, str(shard)))


def assigned(shards: int, members: Iterable[str]) -> Mapping[int, str]:
    """Return the member for each shard. No member has more than its share, rounded up; empty without members."""
    candidates = sorted(set(members))
    if not candidates:
        return {}
    share = math.ceil(shards / len(candidates))
    load: Counter[str] = Counter()
    found = {}
    for shard in range(shards):
        free = [member for member in candidates if load[member] < share]
        winner = max(free, key=lambda member: _score(str(shard), member))
        load[winner] += 1
        found[shard] = winner
    return found


def _score(thing: str, candidate: str) -> bytes:
    return hashlib.blake2b(f"{candidate}\n{thing}".encode(), digest_size=8).digest()


Belongs = Callable[[str], bool]
"""Returns whether a shard key belongs to a certain shard."""


@dataclass(frozen=True, slots=True)
class ShardSettings:
    shards: int
    label: str
    """The label of the Leases of members."""
    drain: float = 25.0
    """Seconds for which the reconciles of a shard may run on before it is handed over."""


@dataclass(slots=True, eq=False)
class _LeaseHolder:
    """One shard that is assigned to this process: its election, and whether we work on it."""

    election: LeaderElection
    unassigned: asyncio.Event = field(default_factory=asyncio.Event)
    admits: bool = False
    """Whether reconciles of the shard may start."""


class Sharding:
    """The shards that this process holds. It is the `Election` of a manager."""

    def __init__(
        self,
        leases: Client,
        key: ObjectKey,
        settings: ShardSettings,
        *,
        clock: Clock,
        identity: str | None = None,
        lease_settings: LeaseSettings | None = None,
    ) -> None:
        self.identity = identity or new_identity()
        self._leases = leases
        self._key = key
        self._settings = settings
        self._clock = clock
        self._timing = lease_settings or LeaseSettings()
        self._layout = self._election(key.name, f"{settings.shards} shards", {})
        self._members = Membership(
            leases,
            key,
            layout=str(settings.shards),
            label=settings.label,
            identity=self.identity,
            clock=clock,
            settings=self._timing,
        )
        self._holders: dict[int, _LeaseHolder] = {}
        self._assignments: list[ShardAssignment] = []
        self._listeners: list[Callable[[Belongs], None]] = []

    @property
    def leading(self) -> bool:
        """Return whether processes with this number of shards may work."""
        return self._layout.leading

    @property
    def held(self) -> frozenset[int]:
        """Return the shards on which this process works."""
        return frozenset(shard for shard, holder in self._holders.items() if holder.admits and self.leads(shard))

    @property
    def leases(self) -> dict[str, Permit]:
        """Return for each shard the name of its Lease, and whether this process holds it."""
        return {self._name(shard): self._permit(shard) for shard in range(self._settings.shards)}

    def leads(self, shard: int) -> bool:
        """Return whether this process may write for the objects of a shard right now."""
        holder = self._holders.get(shard)
        return holder is not None and holder.election.leading and self.leading

    def term(self, shard: int) -> int:
        """Return the number of our term as the holder of a shard; 0 if it is not assigned to us."""
        holder = self._holders.get(shard)
        return 0 if holder is None else holder.election.term

    def add(self, controller: Controller, shard_key_of: ShardKeyFunction = by_namespace) -> None:
        """Restrict the controller to objects of the shards that this process holds. Call this before `run`."""
        assignment = ShardAssignment(self, controller, shard_key_of)
        controller.restrict(assignment.admits, assignment.permit)
        self._assignments.append(assignment)

    def on_shard_released(self, listener: Callable[[Belongs], None]) -> None:
        """Call the listener when a shard was drained, before another process may take it."""
        self._listeners.append(listener)

    async def wait_acquired(self) -> None:
        await self._layout.wait_acquired()

    async def run(self) -> None:
        """Take, keep and hand over shards until cancelled. Raises LeadershipLostError when a Lease is lost."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._members.run())
                await self._members.joined.wait()
                group.create_task(self._layout.run())
                await self._layout.wait_acquired()
                while True:
                    await self._members.changed.wait()
                    self._members.changed.clear()
                    self._rearrange(group)
        except* LeadershipLostError as lost:
            raise next(_leaves(lost)) from None

    async def release(self) -> None:
        """Release everything. Call this after all work has stopped."""
        for holder in self._holders.values():
            await holder.election.release()
        self._holders.clear()
        if await self._members.leave():
            await self._layout.release(shared=True)

    # --- one shard ----------------------------------------------------------------------------------------------------

    def _rearrange(self, group: asyncio.TaskGroup) -> None:
        desired = assigned(self._settings.shards, self._members.live)
        for shard, member in desired.items():
            holder = self._holders.get(shard)
            if member == self.identity and holder is None:
                holder = self._holders[shard] = _LeaseHolder(self._election_of(shard))
                group.create_task(self._hold(shard, holder))
            elif member != self.identity and holder is not None:
                holder.unassigned.set()

    async def _hold(self, shard: int, holder: _LeaseHolder) -> None:
        """Hold one shard until another process should have it. Releases nothing if it is cancelled."""
        async with asyncio.TaskGroup() as group:
            competing = group.create_task(holder.election.run())
            if await self._acquired(holder):
                self._start_work(shard, holder)
                await holder.unassigned.wait()
                await self._hand_over(shard, holder)
            competing.cancel()
            await asyncio.wait({competing})  # a late renewal must not undo the release
            await holder.election.release()
        del self._holders[shard]
        self._members.changed.set()  # the shard may have been assigned to us again meanwhile

    async def _acquired(self, holder: _LeaseHolder) -> bool:
        """Return whether we got the Lease, and caches had time to catch up, before the shard was reassigned."""
        acquired = asyncio.ensure_future(holder.election.wait_acquired())
        unassigned = asyncio.ensure_future(holder.unassigned.wait())
        try:
            await asyncio.wait({acquired, unassigned}, return_when=asyncio.FIRST_COMPLETED)
            if acquired.done():
                await self._clock.sleep(self._timing.retry_period)
            return not unassigned.done()
        finally:
            acquired.cancel()
            unassigned.cancel()

    def _start_work(self, shard: int, holder: _LeaseHolder) -> None:
        holder.admits = True
        _log.info("shard gained", shard=shard, held=sorted(self.held))
        for assignment in self._assignments:
            assignment.reconcile_all(shard)

    async def _hand_over(self, shard: int, holder: _LeaseHolder) -> None:
        """Finish the work on a shard: start no further reconciles, wait for running ones, and forget its objects."""
        holder.admits = False
        for assignment in self._assignments:
            assignment.drop(shard)
        if not await self._drained(shard, self._settings.drain):
            for assignment in self._assignments:
                assignment.cancel(shard)
            await self._drained(shard, self._timing.retry_period)  # its writes are refused once the Lease is released
        for listener in self._listeners:
            listener(lambda shard_key: self.shard_of(shard_key) == shard)
        _log.info("shard handed over", shard=shard, held=sorted(self.held))

    async def _drained(self, shard: int, seconds: float) -> bool:
        """Return whether no reconcile of the shard runs any more, at the latest after that time."""
        try:
            async with Deadline(self._clock, seconds):
                for assignment in self._assignments:
                    await assignment.wait_drained(shard)
        except TimeoutError:
            return False
        return True

    def shard_of(self, shard_key: str) -> int:
        return shard_of(shard_key, self._settings.shards)

    def admits(self, shard: int) -> bool:
        holder = self._holders.get(shard)
        return holder is not None and holder.admits

    def _permit(self, shard: int) -> Permit:
        return lambda: self.leads(shard)

    def _name(self, shard: int) -> str:
        return f"{self._key.name}-shard-{shard}"

    def _election_of(self, shard: int) -> LeaderElection:
        """Compete for a shard, beginning with our last observation of its Lease, which may have expired already."""
        name = self._name(shard)
        election = self._election(name, self.identity, self._members.labels)
        if (lease := self._members.observed(name)) is not None:
            election.observed(lease.version, lease.at)
        return election

    def _election(self, name: str, identity: str, labels: Mapping[str, str]) -> LeaderElection:
        return LeaderElection(
            self._leases,
            ObjectKey(self._key.namespace, name),
            clock=self._clock,
            identity=identity,
            settings=self._timing,
            labels=labels,
        )


class ShardAssignment:
    """Restricts one controller to the objects of our shards."""

    def __init__(self, sharding: Sharding, controller: Controller, shard_key_of: ShardKeyFunction) -> None:
        self._sharding = sharding
        self._controller = controller
        self._shard_key_of = shard_key_of
        self._permits = list(sharding.leases.values())

    def admits(self, key: ObjectKey) -> bool:
        return self._sharding.admits(self._shard_of(key))

    def permit(self, key: ObjectKey) -> Permit:
        return self._permits[self._shard_of(key)]

    def reconcile_all(self, shard: int) -> None:
        self._controller.reconcile_all(lambda key: self._shard_of(key) == shard)

    def drop(self, shard: int) -> None:
        self._controller.queue.drop(lambda key: self._shard_of(key) == shard)

    async def wait_drained(self, shard: int) -> None:
        await self._controller.wait_drained(lambda key: self._shard_of(key) == shard)

    def cancel(self, shard: int) -> None:
        self._controller.cancel(lambda key: self._shard_of(key) == shard)

    def _shard_of(self, key: ObjectKey) -> int:
        return self._sharding.shard_of(self._shard_key_of(key))


def _leaves(group: BaseExceptionGroup[LeadershipLostError]) -> Iterator[LeadershipLostError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
