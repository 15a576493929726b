"""The right to work: one leader, or shards of the objects that several replicas hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from eso_operator.process.controllers import Controllers
from eso_operator.process.memory import Memories
from eso_operator.process.settings import LeaderSettings, Settings
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.clock import Clock
from kubebase.meta import ObjectKey
from kuberun.client import Client
from kuberun.controller import Controller
from kuberun.leader import LeaderElection, LeaseSettings, new_identity
from kuberun.permit import Permit
from kuberun.sharding import Belongs, Sharding, ShardSettings
from kuberun.shards import Placement, by_namespace, together

MEMBER_LABEL: Final = "external-secrets.io/replica-of"

_PLACEMENTS: Final[Mapping[Subsystem, Placement]] = {Subsystem.PUSH_SECRET: together}
"""Kinds that are not divided by namespace. PushSecrets of all namespaces may write to one place of a store, and the
process remembers which of them has written what."""


def election_of(settings: Settings, client: Client, clock: Clock) -> LeaderElection | Sharding | None:
    leader = settings.leader
    if not leader.enabled:
        return None
    timing = _timing(leader)
    key = ObjectKey(settings.core_namespace, leader.lease)
    if leader.shards == 1:
        return LeaderElection(client, key, clock=clock, identity=new_identity(), settings=timing)
    return Sharding(client, key, ShardSettings(leader.shards, MEMBER_LABEL), clock=clock, lease_settings=timing)


def leases_of(settings: Settings, election: LeaderElection | Sharding | None) -> Mapping[str, Permit]:
    """Return the name of each Lease that gives the right to work, and whether this process has it."""
    match election:
        case None:
            return {}
        case Sharding():
            return election.leases
        case LeaderElection():
            return {settings.leader.lease: lambda: election.leading}


def divide(sharding: Sharding, controllers: Controllers, others: Iterable[Controller], memories: Memories) -> None:
    """Restrict the controllers to the shards of this process, and forget the objects of a shard that it gives away."""
    for subsystem, controller in controllers.items():
        sharding.add(controller, _PLACEMENTS.get(subsystem, by_namespace))
    for controller in others:
        sharding.add(controller)
    sharding.on_let_go(lambda belongs: _forget(memories, belongs))


def _forget(memories: Memories, belongs: Belongs) -> None:
    """Forget what another replica may change from now on."""
    for subsystem, memory in memories.by_controller.items():
        placement = _PLACEMENTS.get(subsystem, by_namespace)
        for key in [key for key, _ in memory.items() if belongs(placement(key))]:
            memory.forget(key)


def _timing(leader: LeaderSettings) -> LeaseSettings:
    return LeaseSettings(
        duration=max(round(leader.lease_duration), 1),
        renew_deadline=leader.renew_deadline,
        retry_period=leader.retry_period,
    )
