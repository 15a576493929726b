"""What can come of validating a store. `outcome.py` says what happens then."""

from __future__ import annotations

from dataclasses import dataclass

from eso_wire.values import ConditionReport, Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of the provider behind a store once it has been reached."""

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
    """A cluster-scoped store with the credentials of whoever uses it: nobody can say before somebody does."""

    answer: Answer
    message: str


@dataclass(frozen=True, slots=True)
class Unverified:
    """The provider cannot tell whether the configuration works, and says why."""

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
    """The backend wants to be left alone for a while; it says nothing about the store."""

    message: str
    retry_after: float


Verdict = Valid | Referent | Unverified | Broken | Throttled
