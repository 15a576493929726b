"""When a PushSecret pushes: on its own changes, on changes of its dependencies, after every interval. Pure.

    interval 0     once for each version of the object
    otherwise      and again when a source, a template or the set of stores changes, and after every interval
    either         when another PushSecret overwrote a value and no longer pushes there

A PushSecret that is not due waits for an exact timer or for a change, without polling.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eso_api import durations
from eso_api.pushsecret import PushSecret
from eso_operator.controllers.due import Due, NotDue, moment
from eso_operator.controllers.pushsecret.memory import LastPush
from eso_operator.controllers.pushsecret.snapshot import PushSnapshot
from eso_operator.report.messages import READY
from eso_operator.targets.metadata import synced_version
from kuberun.conditions import ConditionStatus, find_condition

DEFAULT_INTERVAL: Final = 3600.0
SOURCE_DELETED: Final = "SourceDeleted"


def current_version(push: PushSecret) -> str:
    meta = push.metadata
    return synced_version(meta.generation, meta.labels, meta.annotations)


def interval_of(push: PushSecret) -> float:
    """Return the seconds between pushes; an invalid interval counts as the default."""
    try:
        return durations.seconds(push.spec.refresh_interval, field="spec.refreshInterval")
    except durations.DurationError:
        return DEFAULT_INTERVAL


def refreshed_at(push: PushSecret) -> datetime | None:
    """Return the last refresh time of the status."""
    return moment(push.status.refresh_time)


def changed(push: PushSecret) -> bool:
    """Return whether the object changed since the last push."""
    return push.status.synced_resource_version != current_version(push)


def refresh_due(snapshot: PushSnapshot) -> Due | NotDue:
    """Return why a push is due, or when it will be."""
    push = snapshot.push
    if changed(push):
        return Due("it changed")
    if snapshot.unrecorded:
        return Due("what it pushed is not on record")
    ready = find_condition(push.status.conditions, READY)
    if ready is not None and ready.status == ConditionStatus.FALSE:
        if ready.reason != SOURCE_DELETED:
            return Due("its last push failed")
        return Due("its source is back") if snapshot.sources else NotDue("its source is deleted", None)
    if snapshot.freed:
        return Due("a value that another PushSecret overwrote is free again")
    if interval_of(push) <= 0:
        return NotDue("an interval of 0 pushes once", None)
    if (why := _difference(snapshot)) is not None:
        return Due(why)
    return _by_time(snapshot)


def last_at(push: PushSecret, remembered: LastPush | None) -> datetime | None:
    """Return the later of the remembered and the recorded time."""
    times = [at for at in (refreshed_at(push), remembered.at if remembered else None) if at is not None]
    return max(times, default=None)


def _difference(snapshot: PushSnapshot) -> str | None:
    """Return the first known difference since the last push."""
    push, remembered = snapshot.push, snapshot.remembered
    source = push.spec.selector.secret
    # A selector that matches nothing is not an error, so it counts only if something was pushed.
    if source is not None and not snapshot.sources and (source.name or push.status.synced_push_secrets):
        return "its source is gone"
    if remembered is None:
        written = refreshed_at(push)
        born = [seen.created_at for seen in snapshot.sources if seen.created_at is not None]
        return "its source is a new one" if written and any(at > written for at in born) else None
    if source is not None and snapshot.source_marks != remembered.sources:
        return "its source changed"
    if snapshot.new_templates:
        return "a template changed"
    return "its stores changed" if snapshot.store_marks != remembered.stores else None


def _by_time(snapshot: PushSnapshot) -> Due | NotDue:
    at, now = last_at(snapshot.push, snapshot.remembered), snapshot.now
    if at is None:
        return Due("it never pushed")
    if at > now:
        return Due("its last push lies in the future")
    due = at + timedelta(seconds=interval_of(snapshot.push))
    if (renew_at := _renew_at(snapshot)) is not None:
        due = min(due, renew_at)
    if due > now:
        return NotDue("it is fresh", (due - now).total_seconds())
    return Due("its interval has passed")


def _renew_at(snapshot: PushSnapshot) -> datetime | None:
    """Return the time at which generated values must be renewed: remembered, or recorded by an earlier process."""
    if snapshot.remembered is not None:
        return snapshot.remembered.renew_at
    return moment(snapshot.push.status.renew_time)
