"""What to do with a GeneratorState, and when to give up. Pure.

| deadline | being deleted | |
|---|---|---|
| none | no | kept, until its owner is deleted |
| ahead | no | kept until then |
| past | no | deleted; what it stands for is cleaned up before it goes |
| any | yes, with our finalizer | cleaned up, then let go |
| any | yes, without | nothing: it is not ours to hold |

A provider, or anything else that is needed, may never come back. A state must not hold its namespace for ever, so it is
let go after a while, and an event names what stays behind. The time counts from the deletion, so that a restart of the
operator does not start it again; attempts count from the restart, so that nothing is let go untried. In a namespace
that is being deleted nothing comes back, so there is nothing to wait for. A generator without a clean-up operation has
nothing to clean up: its states are let go at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.stores.target import Reason, ResolutionError
from eso_operator.sync.due import moment
from eso_operator.sync.ledger import FINALIZER
from eso_operator.sync.limit import Limit
from eso_wire.errors import ErrorReason, ProviderError
from kuberun.clock import parse_rfc3339

Trouble = ResolutionError | ProviderError


@dataclass(frozen=True, slots=True)
class Keep:
    """`seconds` until its deadline; None when it has none."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Its time is over."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """It is being deleted, `waited` seconds already."""

    waited: float


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing of ours."""


Decision = Keep | Delete | CleanUp | Ignore


class Home(Enum):
    """The namespace of a state."""

    STAYS = "stays"
    ENDS = "ends"
    """It is being deleted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`hopeless`: what is needed does not exist, or cannot do it. `failing`: everything else."""

    hopeless: Limit = field(default=Limit(5, 600.0))
    failing: Limit = field(default=Limit(10, 86_400.0))


_HOPELESS: Final = frozenset(
    {
        Reason.NOT_FOUND,
        Reason.CONFIG_NOT_FOUND,
        Reason.CREDENTIALS_NOT_FOUND,
        Reason.CROSS_NAMESPACE,
        Reason.INVALID_CONFIG,
        Reason.MALFORMED,
        Reason.NOT_SEALED,
        Reason.UNKNOWN_KIND,
        ErrorReason.UNSUPPORTED_OPERATION,
    }
)


def has_no_cleanup(trouble: Trouble) -> bool:
    """Whether the provider serves this kind of generator without an operation that cleans up."""
    return trouble.reason is Reason.NOT_IMPLEMENTED


def decide(state: GeneratorState, now: datetime) -> Decision:
    """What is to be done now."""
    meta = state.metadata
    if meta.deletion_timestamp is not None:
        if FINALIZER not in meta.finalizers:
            return Ignore()
        return CleanUp((now - parse_rfc3339(meta.deletion_timestamp)).total_seconds())
    deadline = moment(state.spec.garbage_collection_deadline)
    if deadline is None:
        return Keep()
    left = (deadline - now).total_seconds()
    return Keep(left) if left > 0 else Delete()


@dataclass(frozen=True, slots=True)
class Tried:
    """How often in this process, seconds since the deletion, and what becomes of the namespace."""

    attempts: int
    waited: float
    home: Home = Home.STAYS


def is_over(trouble: Trouble, tried: Tried, limits: Limits) -> bool:
    """Whether enough has been tried."""
    hopeless = trouble.reason in _HOPELESS
    if hopeless and tried.home is Home.ENDS:
        return True
    limit = limits.hopeless if hopeless else limits.failing
    return limit.is_over(tried.attempts, tried.waited)
