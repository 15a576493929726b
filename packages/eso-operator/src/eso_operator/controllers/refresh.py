"""When work is due: what ExternalSecrets and PushSecrets say about it, and what is remembered of their last sync. Pure.

The minimum refresh interval: shorter intervals are raised to it, and the condition of the object reports this. The spec
stays unchanged and valid. An interval of 0, which means never, is not short.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from eso_api.common import POLL
from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PushSecret
from eso_operator.targets.metadata import synced_version
from kubebase import durations
from kubebase.clock import parse_rfc3339
from kubebase.durations import DurationError

FLUSH_SECONDS: Final = 300.0
"""Work that changed nothing is written into the status at most this often."""
SHORTEST_INTERVAL: Final = 1.0
_DEFAULT_INTERVAL: Final = 3600.0
_FIELD: Final = "spec.refreshInterval"

Refreshed = TypeVar("Refreshed", ExternalSecret, PushSecret)


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


@dataclass(frozen=True, slots=True)
class RetryLimit:
    """A failing operation is abandoned when both are exceeded: the number of attempts, and the time."""

    attempts: int
    seconds: float

    def is_over(self, attempts: int, waited: float) -> bool:
        return attempts >= self.attempts and waited >= self.seconds


@dataclass(frozen=True, slots=True)
class LastSync:
    """The last successful sync of an ExternalSecret: its time, and the version of the object."""

    at: datetime | None
    version: str
    renew_at: datetime | None = None
    """When values must be read or generated again because they expire; None if they do not expire."""


def last_sync(es: ExternalSecret) -> LastSync:
    """Return the last sync according to the status."""
    status = es.status
    return LastSync(moment(status.refresh_time), status.synced_resource_version, moment(status.renew_time))


def moment(written: str | None) -> datetime | None:
    """Return a time from a field of an object that any user can write; None if it is not a valid time."""
    try:
        read = parse_rfc3339(written or "")
    except ValueError:
        return None
    return read if read.tzinfo is not None else None


def current_version(found: ExternalSecret | PushSecret) -> str:
    """Return the version of an object that a sync records: it changes with spec, labels and annotations."""
    meta = found.metadata
    return synced_version(meta.generation, meta.labels, meta.annotations)


def interval_of(found: ExternalSecret | PushSecret) -> float:
    """Return the seconds between refreshes; an invalid interval counts as the default."""
    try:
        return durations.seconds(found.spec.refresh_interval, field=_FIELD)
    except DurationError:
        return _DEFAULT_INTERVAL


def refreshes_by_itself(es: ExternalSecret) -> bool:
    """Return whether time or its backend can cause a refresh, not only a change of the object."""
    return es.spec.refresh_policy not in ("CreatedOnce", "OnChange") and interval_of(es) > 0


def watches_changes(es: ExternalSecret) -> bool:
    """Return whether it refreshes when a provider announces a change."""
    return refreshes_by_itself(es) and es.spec.refresh_trigger != POLL


def with_min_interval(found: Refreshed, shortest: float) -> Refreshed:
    """Return the object with its effective interval: its own, or the minimum."""
    if not _is_too_short(found.spec.refresh_interval, shortest):
        return found
    spec = msgspec.structs.replace(found.spec, refresh_interval=_rendered(shortest))
    return msgspec.structs.replace(found, spec=spec)


def interval_note(interval: int | str, shortest: float) -> str:
    """Return the note for the condition; empty if the interval is long enough."""
    if not _is_too_short(interval, shortest):
        return ""
    used = _rendered(shortest)
    return f"{_FIELD} {interval} is shorter than this operator allows: {used} is used (--min-refresh-interval)"


def _is_too_short(interval: int | str, shortest: float) -> bool:
    try:
        return 0 < durations.seconds(interval, field=_FIELD) < shortest
    except DurationError:
        return False


def _rendered(seconds: float) -> str:
    return durations.render(int(seconds * durations.SECOND))
