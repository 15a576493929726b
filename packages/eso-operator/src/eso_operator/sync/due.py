"""Whether something is to be done now: what reconcilers of both directions decide first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Due:
    """Do it now."""

    why: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Nothing to do: an outcome, too. `after` is the seconds until that changes by itself; None if it never does."""

    why: str
    after: float | None
