"""Several processes share the objects: each shard of them is held by the process that holds the shard's Lease.

    membership -> assigned shards -> take the Lease, settle, work -> drain, release the Lease

Three kinds of Leases:
- NAME-member-…: one for each process. It says that the process lives (`membership.py`), and exists before the process
  takes any other Lease.
- NAME-shard-0, NAME-shard-1, …: only the holder works on the objects of the shard. This is an election for each shard
  (`leader.py`), with the same guarantee: two processes never work on one shard.
- NAME: held by all processes with the same number of shards together, and by the leader if there is a single shard.
  Processes that disagree about the number of shards therefore never work at the same time: those that come later wait
  until the others are gone. This also holds for every other operator that uses a Lease of that name. Only the last
  member releases it, if no other process has joined since.

When a process joins or leaves, `shards.assigned` gives shards to other processes. The holder then takes no further
objects of such a shard, lets running reconciles finish, and releases the Lease. The next holder waits for a moment, so
that its caches have the last writes of the former holder, and then looks at every object of the shard.

A process that loses a Lease which it wants to keep ends, like a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import ObjectKey
from kubebase.plainlogs import structlog
from kuberun.controller import Controller
from kuberun.leader import LeaderElection, LeadershipLostError, LeaseSettings, new_identity
from kuberun.membership import MemberLeases, Membership
from kuberun.permit import Permit
from kuberun.shards import Placement, assigned, by_namespace, shard_of

Belongs = Callable[[str], bool]
"""Returns whether a place belongs to a certain shard."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ShardSettings:
    shards: int
    label: str
    """The label of the Leases of members."""
    drain: float = 25.0
    """Seconds for which the reconciles of a shard may run on before it is handed over."""


@dataclass(slots=True, eq=False)
class _Tenure:
    """The time during which this process wants to hold one shard."""

    election: LeaderElection
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
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
            crew=str(settings.shards),
            label=settings.label,
            identity=self.identity,
            clock=clock,
            settings=self._timing,
        )
        self._tenures: dict[int, _Tenure] = {}
        self._territories: list[_Territory] = []
        self._listeners: list[Callable[[Belongs], None]] = []

    @property
    def leading(self) -> bool:
        """Return whether processes with this number of shards may work."""
        return self._layout.leading

    @property
    def held(self) -> frozenset[int]:
        """Return the shards on which this process works."""
        return frozenset(shard for shard, tenure in self._tenures.items() if tenure.admits and self.leads(shard))

    @property
    def leases(self) -> dict[str, Permit]:
        """Return for each shard the name of its Lease, and whether this process holds it."""
        return {self._name(shard): self._permit(shard) for shard in range(self._settings.shards)}

    def leads(self, shard: int) -> bool:
        """Return whether this process may write for the objects of a shard right now."""
        tenure = self._tenures.get(shard)
        return tenure is not None and tenure.election.leading and self.leading

    def term(self, shard: int) -> int:
        """Return the number of our term as the holder of a shard; 0 if we do not want it."""
        tenure = self._tenures.get(shard)
        return 0 if tenure is None else tenure.election.term

    def add(self, controller: Controller, placement: Placement = by_namespace) -> None:
        """Restrict the controller to objects of the shards that this process holds. Call this before `run`."""
        territory = _Territory(self, controller, placement)
        controller.restrict(territory)
        self._territories.append(territory)

    def on_let_go(self, listener: Callable[[Belongs], None]) -> None:
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
        for tenure in self._tenures.values():
            await tenure.election.release()
        self._tenures.clear()
        if await self._members.leave():
            await self._layout.release(shared=True)

    # --- one shard ----------------------------------------------------------------------------------------------------

    def _rearrange(self, group: asyncio.TaskGroup) -> None:
        wanted = assigned(self._settings.shards, self._members.live)
        for shard, member in wanted.items():
            tenure = self._tenures.get(shard)
            if member == self.identity and tenure is None:
                tenure = self._tenures[shard] = _Tenure(self._election_of(shard))
                group.create_task(self._serve(shard, tenure))
            elif member != self.identity and tenure is not None:
                tenure.unwanted.set()

    async def _serve(self, shard: int, tenure: _Tenure) -> None:
        """Hold one shard until another process should have it. Releases nothing if it is cancelled."""
        async with asyncio.TaskGroup() as group:
            competing = group.create_task(tenure.election.run())
            if await self._acquired(tenure):
                self._gain(shard, tenure)
                await tenure.unwanted.wait()
                await self._let_go(shard, tenure)
            competing.cancel()
            await asyncio.wait({competing})  # a late renewal must not undo the release
            await tenure.election.release()
        del self._tenures[shard]
        self._members.changed.set()  # the shard may have been assigned to us again meanwhile

    async def _acquired(self, tenure: _Tenure) -> bool:
        """Return whether we got the Lease, and caches had time to catch up, before the shard was unwanted."""
        acquired = asyncio.ensure_future(tenure.election.wait_acquired())
        unwanted = asyncio.ensure_future(tenure.unwanted.wait())
        try:
            await asyncio.wait({acquired, unwanted}, return_when=asyncio.FIRST_COMPLETED)
            if acquired.done():
                await self._clock.sleep(self._timing.retry_period)
            return not unwanted.done()
        finally:
            acquired.cancel()
            unwanted.cancel()

    def _gain(self, shard: int, tenure: _Tenure) -> None:
        tenure.admits = True
        _log.info("shard gained", shard=shard, held=sorted(self.held))
        for territory in self._territories:
            territory.look_at(shard)

    async def _let_go(self, shard: int, tenure: _Tenure) -> None:
        """Finish the work on a shard: start no further reconciles, wait for running ones, and forget its objects."""
        tenure.admits = False
        for territory in self._territories:
            territory.drop(shard)
        if not await self._vacated(shard, self._settings.drain):
            for territory in self._territories:
                territory.cancel(shard)
            await self._vacated(shard, self._timing.retry_period)  # its writes are refused once the Lease is released
        for listener in self._listeners:
            listener(lambda place: self.shard_of(place) == shard)
        _log.info("shard handed over", shard=shard, held=sorted(self.held))

    async def _vacated(self, shard: int, seconds: float) -> bool:
        """Return whether no reconcile of the shard runs any more, at the latest after that time."""
        try:
            async with Deadline(self._clock, seconds):
                for territory in self._territories:
                    await territory.vacated(shard)
        except TimeoutError:
            return False
        return True

    def shard_of(self, place: str) -> int:
        return shard_of(place, self._settings.shards)

    def admits(self, shard: int) -> bool:
        tenure = self._tenures.get(shard)
        return tenure is not None and tenure.admits

    def _permit(self, shard: int) -> Permit:
        return lambda: self.leads(shard)

    def _name(self, shard: int) -> str:
        return f"{self._key.name}-shard-{shard}"

    def _election_of(self, shard: int) -> LeaderElection:
        """Compete for a shard, from what we have seen of its Lease: it may have expired already."""
        name = self._name(shard)
        election = self._election(name, self.identity, self._members.labels)
        if (seen := self._members.seen(name)) is not None:
            election.saw(seen.version, seen.at)
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


class _Territory:
    """The objects of one controller that belong to our shards."""

    def __init__(self, sharding: Sharding, controller: Controller, placement: Placement) -> None:
        self._sharding = sharding
        self._controller = controller
        self._placement = placement
        self._permits = list(sharding.leases.values())

    def admits(self, key: ObjectKey) -> bool:
        return self._sharding.admits(self._shard_of(key))

    def permit(self, key: ObjectKey) -> Permit:
        return self._permits[self._shard_of(key)]

    def look_at(self, shard: int) -> None:
        self._controller.look_at(lambda key: self._shard_of(key) == shard)

    def drop(self, shard: int) -> None:
        self._controller.queue.drop(lambda key: self._shard_of(key) == shard)

    async def vacated(self, shard: int) -> None:
        await self._controller.vacated(lambda key: self._shard_of(key) == shard)

    def cancel(self, shard: int) -> None:
        self._controller.cancel(lambda key: self._shard_of(key) == shard)

    def _shard_of(self, key: ObjectKey) -> int:
        return self._sharding.shard_of(self._placement(key))


def _leaves(group: BaseExceptionGroup[LeadershipLostError]) -> Iterator[LeadershipLostError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
