"""What a caller wants of a store: the operations it is going to use, and which gates hold for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eso_wire.values import Operation


class Gate(StrEnum):
    """Which kinds of gate can stop this caller while the store is not ready."""

    FULL = "full"
    """The flood gate of v1 stores and the gating policy of v2 stores: whoever reads."""
    POLICY = "policy"
    """Only the gating policy of v2 stores: whoever pushes or cleans up."""
    OFF = "off"
    """None: the store's own validation, which is what opens the gate again."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a caller is going to do."""

    operations: frozenset[Operation] = frozenset()
    gate: Gate = Gate.FULL

    @property
    def removes_only(self) -> bool:
        """Nothing new comes into being: allowed even while the store is being deleted, which may wait for just that."""
        removals = {Operation.DELETE, Operation.EXISTS, Operation.CLEANUP}
        return bool(self.operations) and self.operations <= removals


VALIDATION = Need(gate=Gate.OFF)


def reading(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.FULL)


def pushing(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.POLICY)
