"""When an ExternalSecret reads its backend again: refresh policy, interval, sync windows. Pure.

    CreatedOnce    until it has synced once
    OnChange       and again whenever the object changes
    Periodic       and again after every interval, inside its windows

What is not due waits on an exact timer, or on a change; nothing polls.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from eso_api import durations
from eso_api.externalsecret import ExternalSecret
from eso_operator.externalsecret.windows import may_refresh, next_change
from eso_operator.targets.hashes import synced_version
from kuberun.clock import parse_rfc3339

DEFAULT_INTERVAL: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Due:
    """Read the backend now."""

    why: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """Nothing to read. `after` is the seconds until that changes by itself; None if it never does."""

    why: str
    after: float | None


@dataclass(frozen=True, slots=True)
class LastSync:
    """The last successful sync: when, and of which version of the object."""

    at: datetime | None
    version: str


def last_sync(es: ExternalSecret) -> LastSync:
    """What the status says."""
    status = es.status
    return LastSync(parse_rfc3339(status.refresh_time) if status.refresh_time else None, status.synced_resource_version)


def current_version(es: ExternalSecret) -> str:
    meta = es.metadata
    return synced_version(meta.generation, meta.labels, meta.annotations)


def interval_of(es: ExternalSecret) -> float:
    """Seconds between refreshes; an interval that cannot be read counts as the default."""
    try:
        return durations.seconds(es.spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return DEFAULT_INTERVAL


def refresh_due(es: ExternalSecret, last: LastSync, now: datetime) -> Due | NotDue:
    """Whether the backend is to be read now."""
    if not last.version or last.at is None:
        return Due("it never synced")
    changed = last.version != current_version(es)
    match es.spec.refresh_policy:
        case "CreatedOnce":
            return NotDue("it is created once", None)
        case "OnChange":
            return Due("it changed") if changed else NotDue("it did not change", None)
        case _:
            return _periodic(es, last.at, changed, now)


def _periodic(es: ExternalSecret, at: datetime, changed: bool, now: datetime) -> Due | NotDue:  # noqa: FBT001 - a fact
    interval = interval_of(es)
    if interval <= 0:
        return NotDue("an interval of 0 reads once", None)
    if changed:
        return Due("it changed")
    if at > now:
        return Due("its last refresh lies in the future")
    due = at + timedelta(seconds=interval)
    if due > now:
        return NotDue("it is fresh", (due - now).total_seconds())
    if not may_refresh(es.spec.sync_windows, now):
        opens = next_change(es.spec.sync_windows, now)
        return NotDue("its sync windows are closed", (opens - now).total_seconds() if opens is not None else None)
    return Due("its interval has passed")
