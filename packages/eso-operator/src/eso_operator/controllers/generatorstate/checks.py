"""The action for a GeneratorState, and when to give up. Pure.

| deadline | being deleted | |
|---|---|---|
| none | no | kept, until its owner is deleted |
| in the future | no | kept until then |
| in the past | no | deleted, which leads to the clean-up |
| any | yes, with our finalizer | cleaned up, then the finalizer is removed |
| any | yes, without | ignored |

A provider, or another dependency, may never return. A state must not block its namespace forever, so it is abandoned
after a while, and an event names the values that stay. The time counts from the deletion, so that a restart of the
operator does not restart it; attempts count from the restart, so that every state is tried at least once. In a
namespace that is being deleted no dependency returns, so there is no wait. A generator without a clean-up operation has
nothing to clean up: its states are released at once. A generator whose kind is turned off comes back: its states wait
for it without a limit, and in a namespace that is being deleted as long as for a provider that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from eso_api.generators.generatorstate import GeneratorState
from eso_operator.controllers.refresh import RetryLimit, moment
from eso_operator.generators.ledger import FINALIZER
from eso_operator.stores.resolved import Reason, ResolutionError
from eso_wire.errors import ErrorReason, ProviderError
from kubebase.clock import parse_rfc3339

Trouble = ResolutionError | ProviderError


@dataclass(frozen=True, slots=True)
class Hold:
    """`seconds` until its deadline; None when it has none."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The state is being deleted, since `waited` seconds."""

    waited: float


@dataclass(frozen=True, slots=True)
class Ignore:
    """The state is not ours."""


Decision = Hold | Delete | CleanUp | Ignore


@dataclass(frozen=True, slots=True)
class CleanupLimits:
    """`hopeless`: a dependency does not exist, or the operation is not supported. `failing`: any other failure."""

    hopeless: RetryLimit = field(default=RetryLimit(5, 600.0))
    failing: RetryLimit = field(default=RetryLimit(10, 86_400.0))


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
    """Return whether the provider serves this kind of generator without a clean-up operation."""
    return trouble.reason is Reason.NOT_IMPLEMENTED


def is_off(trouble: Trouble) -> bool:
    """Return whether the kind of the generator is turned off by its feature gate."""
    return trouble.reason is Reason.FEATURE_DISABLED


def decide(state: GeneratorState, now: datetime) -> Decision:
    """Return the action for a state."""
    meta = state.metadata
    if meta.deletion_timestamp is not None:
        if FINALIZER not in meta.finalizers:
            return Ignore()
        return CleanUp((now - parse_rfc3339(meta.deletion_timestamp)).total_seconds())
    deadline = moment(state.spec.garbage_collection_deadline)
    if deadline is None:
        return Hold()
    left = (deadline - now).total_seconds()
    return Hold(left) if left > 0 else Delete()


@dataclass(frozen=True, slots=True)
class Tried:
    """Attempts in this process, seconds since the deletion, and whether the namespace is being deleted."""

    attempts: int
    waited: float
    terminating: bool = False


def is_over(trouble: Trouble, tried: Tried, limits: CleanupLimits) -> bool:
    """Return whether the limits are reached."""
    if is_off(trouble) and not tried.terminating:
        return False
    hopeless = trouble.reason in _HOPELESS
    if hopeless and tried.terminating:
        return True
    limit = limits.hopeless if hopeless else limits.failing
    return limit.is_over(tried.attempts, tried.waited)
