"""The memory of the process: one table of records for each controller. Made once, by `wiring.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eso_operator.controllers.externalsecret.record import ExternalSecretRecord
from eso_operator.controllers.fanout.controller import ParentRecord
from eso_operator.controllers.generatorstate.controller import StateRecord
from eso_operator.controllers.memory import Record
from eso_operator.controllers.pushsecret.record import PushSecretRecord
from eso_operator.memory import Memory
from eso_operator.telemetry.subsystems import Subsystem
from kubebase.meta import ObjectKey
from kuberun.workqueue import ReconcileRequest, WorkQueue

LOOK_AGAIN_SECONDS: Final = 300.0
"""An evicted object is looked at after this time. Not at once, because with more objects than records every look evicts
another record."""


@dataclass(frozen=True, slots=True)
class Memories:
    """The tables by kind of object."""

    external_secrets: Memory[ExternalSecretRecord] = field(default_factory=lambda: Memory(ExternalSecretRecord))
    push_secrets: Memory[PushSecretRecord] = field(default_factory=lambda: Memory(PushSecretRecord))
    generator_states: Memory[StateRecord] = field(default_factory=lambda: Memory(StateRecord))
    cluster_external_secrets: Memory[ParentRecord] = field(default_factory=lambda: Memory(ParentRecord))
    cluster_push_secrets: Memory[ParentRecord] = field(default_factory=lambda: Memory(ParentRecord))
    by_controller: Mapping[Subsystem, Memory[Record]] = field(init=False)
    """All of them; stores and classes have no fields of their own."""

    def __post_init__(self) -> None:
        own: dict[Subsystem, Memory[Record]] = {
            Subsystem.EXTERNAL_SECRET: self.external_secrets,
            Subsystem.PUSH_SECRET: self.push_secrets,
            Subsystem.GENERATOR_STATE: self.generator_states,
            Subsystem.CLUSTER_EXTERNAL_SECRET: self.cluster_external_secrets,
            Subsystem.CLUSTER_PUSH_SECRET: self.cluster_push_secrets,
        }
        others = {subsystem: Memory(Record) for subsystem in Subsystem if subsystem not in own}
        object.__setattr__(self, "by_controller", own | others)

    def parents(self, subsystem: Subsystem) -> Memory[ParentRecord]:
        """Return the table of one kind that is fanned out."""
        if subsystem is Subsystem.CLUSTER_EXTERNAL_SECRET:
            return self.cluster_external_secrets
        return self.cluster_push_secrets


def look_again(memory: Memory[Record], queue: WorkQueue) -> None:
    """Have evicted objects looked at again, which restores their records: the indexes no longer point to them."""

    def requeue(key: ObjectKey) -> None:
        queue.add(ReconcileRequest(key, "its record was evicted"), after=LOOK_AGAIN_SECONDS)

    memory.on_evict(requeue)
