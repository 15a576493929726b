"""Whether something is to be done now: what reconcilers of both directions decide first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kuberun.clock import parse_rfc3339


@dataclass(frozen=True, slots=True)
class Due:
    """Do it now."""

    why: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Nothing to do: an outcome, too. `after` is the seconds until that changes by itself; None if it never does."""

    why: str
    after: float | None


def moment(written: str | None) -> datetime | None:
    """A time that stands on an object, where anybody can write it: what is no point in time was never written."""
    try:
        read = parse_rfc3339(written or "")
    except ValueError:
        return None
    return read if read.tzinfo is not None else None
