"""Several processes share the objects: each shard of them is held by the process that holds the shard's Lease.

    membership -> assigned shards -> take the Lease, wait, work -> drain, release the Lease

Three kinds of Leases:
- NAME-member-…: one for each process. It says that the process lives (`membership.py`), and exists before the process
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
from typing import Final

import structlog

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import ObjectKey
from kuberun.controller import Controller
from kuberun.leader import LeaderElection, LeadershipLostError, LeaseSettings, new_identity
from kuberun.membership import MemberLeases, Membership
from kuberun.permit import Permit

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

_log = structlog.get_logger(__name__)


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
        leases: MemberLeases,
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
