"""How long the removal of pushed values is tried before it is given up, for each PushSecret and store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from eso_operator.controllers.patience import Limit
from eso_operator.memory import Memory
from eso_operator.report.reporter import TerminatingNamespaces
from kubebase.clock import Clock
from kubebase.meta import ObjectKey, ObjectMeta


@dataclass(frozen=True, slots=True)
class RemovalLimits:
    """`gone`: the store or its credentials do not exist. `failing`: everything else, if the PushSecret waits for it.

    A kind that is turned off is not a failure: the removal waits until it is on again.
    """

    gone: Limit = field(default=Limit(4, 5.0))
    failing: Limit = field(default=Limit(15, 1800.0))


class Trial(Enum):
    """The kind of a failed removal, which decides when the value is abandoned."""

    STALE = "stale"
    FINAL = "final"
    GONE = "gone"
    OFF = "off"
    """The kind of the store is turned off by its feature gate."""


class Attempts(NamedTuple):
    """The number of failed attempts, and the time (monotonic) of the first one."""

    made: int
    since: float


NOTHING_TRIED: Final[Mapping[str, Attempts]] = MappingProxyType({})


class Tries(Protocol):
    """The fields of a record that are used here."""

    uid: str
    tried: Mapping[str, Attempts]
    """Failed removals, by store."""


class Patience:
    """Counts failed attempts for each object and store."""

    def __init__(
        self, clock: Clock, limits: RemovalLimits, memory: Memory[Tries], terminating: TerminatingNamespaces
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._memory = memory
        self._terminating = terminating

    def is_over(self, push: ObjectMeta, store: str, trial: Trial) -> bool:
        """Count one more failure. Return whether the values are abandoned now.

        An object that lives on can wait as long as its store exists. A deletion waits as long as the kind of the store
        is turned off, unless it blocks the deletion of a namespace.
        """
        now, record = self._clock.monotonic(), self._memory.of(push.key, push.uid)
        count, since = record.tried.get(store, Attempts(0, now))
        record.tried = {**record.tried, store: Attempts(count + 1, since)}
        if trial is Trial.STALE or (trial is Trial.OFF and self._terminating.ending(push.namespace) is None):
            return False
        limit = self._limits.gone if trial is Trial.GONE else self._limits.failing
        return limit.is_over(count + 1, now - since)

    def forget(self, key: ObjectKey) -> None:
        """Begin to count again: everything was removed."""
        if (record := self._memory.find(key)) is not None:
            record.tried = NOTHING_TRIED

    def __len__(self) -> int:
        """Return the number of objects with failed removals."""
        return sum(1 for _, record in self._memory.items() if record.tried)
