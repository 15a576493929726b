"""The capabilities of a store: ReadOnly, WriteOnly or ReadWrite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from eso_wire.values import Operation

READ_ONLY, WRITE_ONLY, READ_WRITE = "ReadOnly", "WriteOnly", "ReadWrite"

_READS: Final = frozenset(
    {Operation.GET, Operation.GET_MAP, Operation.FIND_BY_NAME, Operation.FIND_BY_TAGS, Operation.FIND_BY_PATH}
)
_WRITES: Final = frozenset({Operation.PUSH, Operation.PUSH_WHOLE_SECRET})


def capabilities_of(operations: Iterable[Operation]) -> str:
    """Return ReadOnly, WriteOnly or ReadWrite; empty if it neither reads nor writes, such as a generator."""
    known = frozenset(operations)
    match (bool(known & _READS), bool(known & _WRITES)):
        case (True, True):
            return READ_WRITE
        case (True, False):
            return READ_ONLY
        case (False, True):
            return WRITE_ONLY
        case _:
            return ""


def spelled(operations: Iterable[Operation]) -> Sequence[str]:
    """Return the operations for `status.operations`, sorted, so that equal sets are equal lists."""
    return sorted(operation.value for operation in operations)
