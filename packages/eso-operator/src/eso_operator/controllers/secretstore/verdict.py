"""The verdicts of a validation. `outcome.py` maps each to a report."""

from __future__ import annotations

from dataclasses import dataclass

from eso_wire.values import ConditionReport, Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """The known facts about the provider of a store that was reached."""

    operations: frozenset[Operation]
    maintenance: str = ""
    conditions: tuple[ConditionReport, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Valid:
    """The provider accepted the configuration."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Referent:
    """A cluster-scoped store with the credentials of its caller: it can only be validated when it is used."""

    answer: Answer
    message: str


@dataclass(frozen=True, slots=True)
class Unverified:
    """The provider cannot determine whether the configuration works, and gives the reason."""

    answer: Answer
    message: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The store cannot be used. `cause` is the machine-readable reason, `message` says what, where and what to do."""

    cause: str
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttled:
    """The backend throttles calls; the verdict about the store is unknown."""

    message: str
    retry_after: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """The provider is starting, so nothing is known about the store yet. It is broken if that takes `seconds`."""

    cause: str
    message: str
    seconds: float


Verdict = Valid | Referent | Unverified | Broken | Throttled | Waiting
