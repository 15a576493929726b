"""When an ExternalSecret reads its backend again: refresh policy, interval, sync windows. Pure.

    CreatedOnce    until it has synced once
    OnChange       and again when the object, or a ConfigMap or Secret with its templates, changes
    Periodic       and again after every interval, before values expire, or after an announced change; in its windows

An object that is not due waits for an exact timer or for a change; nothing polls. Values are not kept, so a changed
template is rendered after a read of the backend: it counts as a change of the object. After a restart, overdue
refreshes are spread over some time, each object always at the same point in it; all others keep their exact time. An
object in a loop (`loops.py`) waits longer.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from eso_api.externalsecret import ExternalSecret
from eso_operator.controllers.due import Due, NotDue
from eso_operator.controllers.externalsecret.schedule import LastSync, current_version, interval_of
from eso_operator.controllers.externalsecret.snapshot import Snapshot
from eso_operator.controllers.externalsecret.windows import may_refresh, next_change
from kuberun.workqueue import until_phase

LONGEST_SPREAD: Final = 300.0
"""The maximum number of seconds over which overdue refreshes are spread; otherwise a quarter of their interval."""
_LONGEST_TURN: Final = timedelta(seconds=LONGEST_SPREAD)


def turn_of(es: ExternalSecret, last: LastSync, now: datetime) -> datetime | None:
    """Return when a refresh that is overdue at the first reconcile may run; None if it is not overdue."""
    interval = interval_of(es)
    if last.at is None or interval <= 0 or now - last.at < timedelta(seconds=interval):
        return None
    spread = min(interval / 4, LONGEST_SPREAD)
    return now + timedelta(seconds=until_phase(es.metadata.uid, spread, now.timestamp()))


def refresh_due(snapshot: Snapshot) -> Due | NotDue:
    """Return whether the backend must be read now."""
    es, last = snapshot.es, snapshot.last
    if not last.version or last.at is None:
        return Due("it never synced")
    match es.spec.refresh_policy:
        case "CreatedOnce":
            return NotDue("it is created once", None)
        case "OnChange":
            return _changed(snapshot) or NotDue("it did not change", None)
        case _:
            return _periodic(snapshot, last.at)


def _changed(snapshot: Snapshot) -> Due | None:
    if snapshot.last.version != current_version(snapshot.es):
        return Due("it changed")
    return Due("a template changed") if snapshot.new_templates else None


def _periodic(snapshot: Snapshot, at: datetime) -> Due | NotDue:
    es, now, interval = snapshot.es, snapshot.now, interval_of(snapshot.es)
    if interval <= 0:
        return NotDue("an interval of 0 reads once", None)
    if (changed := _changed(snapshot)) is not None:
        return changed
    if at > now:
        return Due("its last refresh lies in the future")
    due = at + timedelta(seconds=interval * snapshot.stretch)
    if snapshot.last.renew_at is not None:
        due = min(due, snapshot.last.renew_at)
    if snapshot.turn is not None and snapshot.turn - now <= _LONGEST_TURN:  # else the clock was set back
        due = max(due, snapshot.turn)
    if snapshot.notified_at is not None:
        due = now
    if snapshot.held_until is not None and snapshot.held_until - now <= _LONGEST_TURN:
        due = max(due, snapshot.held_until)
    if due > now:
        return NotDue("it is fresh", (due - now).total_seconds())
    if not may_refresh(es.spec.sync_windows, now):
        opens = next_change(es.spec.sync_windows, now)
        return NotDue("its sync windows are closed", (opens - now).total_seconds() if opens is not None else None)
    return Due("its interval has passed" if snapshot.notified_at is None else "its backend changed")
