"""The needs of a caller: the operations that it will use on a store, and the gates that apply to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eso_wire.kinds import Operation


class Gate(StrEnum):
    """The gates that stop this caller while the store is not ready."""

    FULL = "full"
    """The flood gate of v1 stores and the gating policy of v2 stores; for reads."""
    POLICY = "policy"
    """Only the gating policy of v2 stores applies; for pushes and clean-ups."""
    OFF = "off"
    """No gate applies; for the validation of the store, which opens the gate again."""


@dataclass(frozen=True, slots=True)
class Need:
    """The operations that a caller will use, and its gate."""

    operations: frozenset[Operation] = frozenset()
    gate: Gate = Gate.FULL

    @property
    def removes_only(self) -> bool:
        """Return whether the caller only removes values.

        This is allowed while the store is being deleted, because the deletion may wait for it.
        """
        removals = {Operation.DELETE, Operation.EXISTS, Operation.CLEANUP}
        return bool(self.operations) and self.operations <= removals


VALIDATION = Need(gate=Gate.OFF)


def reading(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.FULL)


def pushing(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.POLICY)
