"""The right to work: one leader, or shards of the objects that several replicas hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

import structlog

from eso_api.crd import MEMBER_LABEL
from eso_operator.settings import LeaderSettings, Settings
from eso_operator.telemetry.subsystems import Subsystem
from eso_operator.wiring_controllers import ByKind, Memories
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, ObjectKey
from kuberun.client import Client
from kuberun.controller import Controller
from kuberun.errors import ApiError, NotFound
from kuberun.leader import LEASES, LeaderElection, LeaseSettings, micro_time, new_identity
from kuberun.permit import Permit
from kuberun.sharding import Belongs, Sharding, ShardKeyFunction, ShardSettings, by_namespace, same_shard

_HEARTBEAT_SECONDS: Final = 10.0
_HEARTBEAT_DURATION: Final = 30
_RELEASE_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)

_PLACEMENTS: Final[Mapping[Subsystem, ShardKeyFunction]] = {Subsystem.PUSH_SECRET: same_shard}
"""Kinds that are not divided by namespace. PushSecrets of all namespaces may write to one place of a store, and the
process remembers which of them has written what."""


def election_of(settings: Settings, client: Client, clock: Clock) -> LeaderElection | Sharding | None:
    leader = settings.leader
    if not leader.enabled:
        return None
    timing = _timing(leader)
    key = ObjectKey(settings.core_namespace, leader.lease)
    if leader.shards == 1:
        labels = {MEMBER_LABEL: leader.lease}
        return LeaderElection(client, key, clock=clock, identity=new_identity(), settings=timing, labels=labels)
    return Sharding(client, key, ShardSettings(leader.shards, MEMBER_LABEL), clock=clock, lease_settings=timing)


class Heartbeat:
    """A Lease that says that an operator without leader election works. It gives no right, and may fail to be written.

    `eso status` reads it: without it, the objects of an operator that has stopped would look ready forever.
    """

    def __init__(self, settings: Settings, leases: Client, clock: Clock) -> None:
        self._key = ObjectKey(settings.core_namespace, f"{settings.leader.lease}-heartbeat")
        self._labels = {MEMBER_LABEL: settings.leader.lease}
        self._identity = new_identity()
        self._leases = leases
        self._clock = clock
        self._lease: JsonObject | None = None
        self._failures = 0

    async def run(self) -> NoReturn:
        """Renew the Lease until cancelled, and release it then."""
        try:
            while True:
                await self._write(self._identity, _HEARTBEAT_DURATION, within=_HEARTBEAT_SECONDS)
                await self._clock.sleep(_HEARTBEAT_SECONDS)
        finally:
            if self._lease is not None:
                await self._write("", 1, within=_RELEASE_SECONDS)

    async def _write(self, holder: str, duration: int, *, within: float) -> None:
        renewed = {"leaseDurationSeconds": duration, "renewTime": micro_time(self._clock.now())}
        spec = {**renewed, "holderIdentity": holder} if holder else renewed
        try:
            async with Deadline(self._clock, within):
                await self._replace(spec)
        except (ApiError, OSError) as error:
            self._lease = None
            self._failures += 1
            if self._failures == 2:  # a single failure does not let the Lease expire
                _log.warning("heartbeat not written", lease=str(self._key), error=type(error).__name__)
        else:
            self._failures = 0

    async def _replace(self, spec: JsonObject) -> None:
        try:
            current: JsonObject = {} if self._lease else await self._leases.get(LEASES, self._key)
            found = self._lease or current
        except NotFound:
            metadata = {"namespace": self._key.namespace, "name": self._key.name, "labels": self._labels}
            self._lease = await self._leases.create(LEASES, {"metadata": metadata, "spec": spec})
        else:
            self._lease = await self._leases.update(LEASES, {**found, "spec": spec})


def leases_of(settings: Settings, election: LeaderElection | Sharding | None) -> Mapping[str, Permit]:
    """Return the name of each Lease that gives the right to work, and whether this process has it."""
    match election:
        case None:
            return {}
        case Sharding():
            return election.leases
        case LeaderElection():
            return {settings.leader.lease: lambda: election.leading}


def divide(sharding: Sharding, controllers: ByKind, others: Iterable[Controller], memories: Memories) -> None:
    """Restrict the controllers to the shards of this process, and forget the objects of a shard that it gives away."""
    for subsystem, controller in controllers.items():
        sharding.add(controller, _PLACEMENTS.get(subsystem, by_namespace))
    for controller in others:
        sharding.add(controller)
    sharding.on_shard_released(lambda belongs: _forget(memories, belongs))


def _forget(memories: Memories, belongs: Belongs) -> None:
    """Forget what another replica may change from now on."""
    for subsystem, memory in memories.by_controller.items():
        shard_key_of = _PLACEMENTS.get(subsystem, by_namespace)
        for key in [key for key, _ in memory.items() if belongs(shard_key_of(key))]:
            memory.forget(key)


def _timing(leader: LeaderSettings) -> LeaseSettings:
    return LeaseSettings(
        duration=max(round(leader.lease_duration), 1),
        renew_deadline=leader.renew_deadline,
        retry_period=leader.retry_period,
    )
