"""Sync windows: whether a periodic refresh may run now, and when that changes. Pure, in UTC.

A window with an invalid schedule is never open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from eso_api.externalsecret import SyncWindow, SyncWindows
from kubebase import durations
from kubebase.durations import DurationError

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = {
    name: at
    for at, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_DAYS: Final = {name: at for at, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_TERM: Final = re.compile(r"(?P<first>\*|\?|[0-9]+|[a-z]{3})(?:-(?P<last>[0-9]+|[a-z]{3}))?(?:/(?P<step>[0-9]+))?")
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MAX_TEXT: Final = 1024
_HORIZON: Final = timedelta(days=5 * 366)
"""The longest search for the next time. A schedule without a time within five years counts as never.

29 February can be eight years away around 2100; the window is then missed once.
"""


class ScheduleError(ValueError):
    """The text is not a schedule."""


@dataclass(frozen=True, slots=True)
class Every:
    """Fires `period` after the time of the call."""

    period: timedelta

    def after(self, moment: datetime) -> datetime | None:
        """Return the next time, in whole seconds as in the Go operator."""
        return moment.replace(microsecond=0) + self.period


@dataclass(frozen=True, slots=True)
class Cron:
    """Fires at every minute that matches all fields."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """True if days of month and of week are both restricted: then one of the two must match."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time strictly after a moment; None if there is none."""
        if self._never():
            return None
        at = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        end = at + _HORIZON
        while at < end:
            if at.month not in self.months:
                at = _next_month(at)
            elif not self._on_day(at) or (time := self._time_on(at)) is None:
                at = at.replace(hour=0, minute=0) + timedelta(days=1)
            else:
                return at.replace(hour=time[0], minute=time[1])
        return None

    def _never(self) -> bool:
        """Return whether none of its months has any of its days. The search for one would try each day of years."""
        return not self.either_day and min(self.days) > max(_LONGEST[month - 1] for month in self.months)

    def _time_on(self, at: datetime) -> tuple[int, int] | None:
        """Return the first matching hour and minute on that day, at or after that time."""
        if at.hour in self.hours and (left := [minute for minute in self.minutes if minute >= at.minute]):
            return at.hour, min(left)
        later = [hour for hour in self.hours if hour > at.hour]
        return (min(later), min(self.minutes)) if later else None

    def _on_day(self, at: datetime) -> bool:
        by_month, by_week = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week


Schedule = Cron | Every


@lru_cache(maxsize=1024)
def parse_schedule(text: str) -> Schedule:
    """Return the schedule of a text. Raises ScheduleError, which names the wrong part."""
    if len(text) > _MAX_TEXT:
        raise ScheduleError(f"it is longer than {_MAX_TEXT} characters")
    if text.startswith("@every "):
        try:
            period = durations.parse(text.removeprefix("@every ")) // durations.SECOND
        except DurationError as problem:
            raise ScheduleError(str(problem)) from problem
        return Every(timedelta(seconds=max(1, period)))
    fields = _MACROS.get(text, text).lower().split()
    if len(fields) != 5:
        raise ScheduleError(f"{text!r} has {len(fields)} fields; five are needed")
    days, weekdays = _field(fields[2], 1, 31, {}), _field(fields[4], 0, 6, _DAYS)
    return Cron(
        minutes=_field(fields[0], 0, 59, {}),
        hours=_field(fields[1], 0, 23, {}),
        days=days,
        months=_field(fields[3], 1, 12, _MONTHS),
        weekdays=weekdays,
        either_day=not _is_open(fields[2]) and not _is_open(fields[4]),
    )


def _field(text: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    allowed: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ScheduleError(f"{term!r} is not valid in a schedule")
        step = int(match["step"] or 1)
        if match["first"] in "*?":
            first, last = low, high
        else:
            first = _number(match["first"], names)
            # A step without an end runs to the end of the field.
            last = _number(match["last"], names) if match["last"] else high if match["step"] else first
        if not (low <= first <= last <= high and step > 0):
            raise ScheduleError(f"{term!r} is not between {low} and {high}")
        allowed.update(range(first, last + 1, step))
    return frozenset(allowed)


def _number(text: str, names: dict[str, int]) -> int:
    if text.isdigit():
        return int(text)
    if text not in names:
        raise ScheduleError(f"{text!r} is not valid in a schedule")
    return names[text]


def _is_open(text: str) -> bool:
    """Return whether a field of days is unrestricted; a step counts as unrestricted, too."""
    return any(term[0] in "*?" for term in text.split(","))


def _next_month(at: datetime) -> datetime:
    first = at.replace(day=1, hour=0, minute=0)
    return first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)


_EDGE = timedelta(seconds=1)


def may_refresh(windows: SyncWindows | None, now: datetime) -> bool:
    """Return whether a refresh may run: an allow window must be open, or no deny window."""
    if windows is None or not windows.windows or windows.kind not in ("allow", "deny"):
        return True
    opened = any(_is_window_open(window, now) for window in windows.windows)
    return opened if windows.kind == "allow" else not opened


def next_change(windows: SyncWindows | None, now: datetime) -> datetime | None:
    """Return the first time after now at which a window opens or closes; None if there is none."""
    moments = [moment for window in (windows.windows if windows else ()) for moment in _edges(window, now)]
    return min((moment for moment in moments if moment > now), default=None)


def _is_window_open(window: SyncWindow, now: datetime) -> bool:
    """Return whether the window is open; both ends belong to it."""
    found = _parsed_window(window)
    if found is None:
        return False
    schedule, duration = found
    fired = schedule.after(now - duration - _EDGE)
    return fired is not None and fired <= now <= fired + duration


def _edges(window: SyncWindow, now: datetime) -> list[datetime]:
    found = _parsed_window(window)
    if found is None:
        return []
    schedule, duration = found
    running, upcoming = schedule.after(now - duration - _EDGE), schedule.after(now)
    edges = [fired for fired in (upcoming,) if fired is not None]
    if running is not None and running <= now:
        edges.append(running + duration + _EDGE)
    return edges


def _parsed_window(window: SyncWindow) -> tuple[Schedule, timedelta] | None:
    try:
        return parse_schedule(window.schedule), timedelta(
            microseconds=durations.parse(window.duration) / durations.MICROSECOND
        )
    except (ScheduleError, DurationError):
        return None
