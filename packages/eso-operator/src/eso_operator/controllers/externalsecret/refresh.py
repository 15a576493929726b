"""The refresh schedule that an ExternalSecret asks for, and its last sync. Pure.

`checks.refresh_due` decides with these values whether a refresh is due; `eso why` shows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eso_api import durations
from eso_api.externalsecret import ExternalSecret
from eso_api.policies import POLL
from eso_operator.controllers.due import moment
from eso_operator.targets.metadata import synced_version

_DEFAULT_INTERVAL: Final = 3600.0


@dataclass(frozen=True, slots=True)
class LastSync:
    """The last successful sync: its time, and the version of the object."""

    at: datetime | None
    version: str
    renew_at: datetime | None = None
    """When values must be read or generated again because they expire; None if they do not expire."""


def last_sync(es: ExternalSecret) -> LastSync:
    """Return the last sync according to the status."""
    status = es.status
    return LastSync(moment(status.refresh_time), status.synced_resource_version, moment(status.renew_time))


def current_version(es: ExternalSecret) -> str:
    meta = es.metadata
    return synced_version(meta.generation, meta.labels, meta.annotations)


def interval_of(es: ExternalSecret) -> float:
    """Return the seconds between refreshes; an invalid interval counts as the default."""
    try:
        return durations.seconds(es.spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return _DEFAULT_INTERVAL


def refreshes_by_itself(es: ExternalSecret) -> bool:
    """Return whether time or its backend can cause a refresh, not only a change of the object."""
    return es.spec.refresh_policy not in ("CreatedOnce", "OnChange") and interval_of(es) > 0


def watches_changes(es: ExternalSecret) -> bool:
    """Return whether it refreshes when a provider announces a change."""
    return refreshes_by_itself(es) and es.spec.refresh_trigger != POLL
