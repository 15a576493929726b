"""Sync windows: whether a periodic refresh may run now, and when that changes. Pure, in UTC.

A window with an invalid schedule is never open.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from eso_api import durations
from eso_api.durations import DurationError
from eso_api.externalsecret import SyncWindow, SyncWindows
from eso_operator.controllers.externalsecret.cron import Schedule, ScheduleError, parse_schedule

_EDGE = timedelta(seconds=1)


def may_refresh(windows: SyncWindows | None, now: datetime) -> bool:
    """Return whether a refresh may run: an allow window must be open, or no deny window."""
    if windows is None or not windows.windows or windows.kind not in ("allow", "deny"):
        return True
    opened = any(_is_open(window, now) for window in windows.windows)
    return opened if windows.kind == "allow" else not opened


def next_change(windows: SyncWindows | None, now: datetime) -> datetime | None:
    """Return the first time after now at which a window opens or closes; None if there is none."""
    moments = [moment for window in (windows.windows if windows else ()) for moment in _edges(window, now)]
    return min((moment for moment in moments if moment > now), default=None)


def _is_open(window: SyncWindow, now: datetime) -> bool:
    """Return whether the window is open; both ends belong to it."""
    found = _read(window)
    if found is None:
        return False
    schedule, duration = found
    fired = schedule.after(now - duration - _EDGE)
    return fired is not None and fired <= now <= fired + duration


def _edges(window: SyncWindow, now: datetime) -> list[datetime]:
    found = _read(window)
    if found is None:
        return []
    schedule, duration = found
    running, upcoming = schedule.after(now - duration - _EDGE), schedule.after(now)
    edges = [fired for fired in (upcoming,) if fired is not None]
    if running is not None and running <= now:
        edges.append(running + duration + _EDGE)
    return edges


def _read(window: SyncWindow) -> tuple[Schedule, timedelta] | None:
    try:
        return parse_schedule(window.schedule), timedelta(
            microseconds=durations.parse(window.duration) / durations.MICROSECOND
        )
    except (ScheduleError, DurationError):
        return None
