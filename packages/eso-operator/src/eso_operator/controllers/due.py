"""Whether work is due: the first decision of the reconcilers of ExternalSecrets and PushSecrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kubebase.clock import parse_rfc3339

FLUSH_SECONDS: Final = 300.0
"""Work that changed nothing is written into the status at most this often."""


@dataclass(frozen=True, slots=True)
class Due:
    """Do it now."""

    why: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Nothing is due; also an outcome.

    `after` is the number of seconds until it is; None if only a change makes it due.
    """

    why: str
    after: float | None


def moment(written: str | None) -> datetime | None:
    """Return a time from a field of an object that any user can write; None if it is not a valid time."""
    try:
        read = parse_rfc3339(written or "")
    except ValueError:
        return None
    return read if read.tzinfo is not None else None
