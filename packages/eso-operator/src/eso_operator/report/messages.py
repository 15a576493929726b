"""What reports of all controllers have in common: events, and errors of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from eso_api import conditions
from kubebase.clock import rfc3339
from kuberun.controller import Backoff, Done, Result
from kuberun.errors import ApiError, Conflict, NotFound
from kuberun.events import EventType

READY: Final = conditions.READY

_SOON: Final = 30.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event to record."""

    type: EventType
    reason: str
    message: str
    log: str = field(default="", compare=False)
    """The warning to log with it; empty for none."""


def next_attempt(now: datetime, within: float) -> str | None:
    """Return the time of the next attempt; None for a retry within moments, which is not worth a status write."""
    return rfc3339(now + timedelta(seconds=within)) if within >= _SOON else None


def api_error_text(problem: ApiError) -> str:
    """Return the reason of the API server in one word: its message may quote the request."""
    return f"the API server answered {problem.reason or problem.code}"


def outcome_of(problem: ApiError, name: str, failed: str = "") -> Result:
    """Return the outcome after an error of the API server. `name` is the object's, `failed` names the failed action."""
    if isinstance(problem, NotFound):
        return Done()
    if isinstance(problem, Conflict):
        return Backoff(f"the {name} changed meanwhile")
    return Backoff(f"{failed}: {api_error_text(problem)}" if failed else api_error_text(problem))
