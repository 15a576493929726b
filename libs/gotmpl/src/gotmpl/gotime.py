"""The parts of Go's time package that templates can use: times, the calendar, layouts.

A moment counts nanoseconds since 1970 in UTC and has a zone. The calendar is our own, because Go's has years before 1
and after 9999. This module never reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from gotmpl.durations import SECOND

_DAY = 86400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = -62135510400, 253402214400
"""0001-01-02 and 9999-12-31: Python has no zone rules beyond."""

MONTHS = tuple(
    "January February March April May June July August September October November December".split()  # noqa: SIM905 twelve quoted words are harder to read
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Civil:
    """The local date and time of a moment in its zone."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    weekday: int
    """Monday is 0."""
    year_day: int


def days_before(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a date of the proleptic Gregorian calendar; months count from March inside."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _date(days: int) -> tuple[int, int, int]:
    era, of_era = divmod(days + 719468, 146097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in(month: int, year: int) -> int:
    return 29 if month == 2 and is_leap(year) else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


@dataclass(frozen=True, slots=True)
class Moment:
    nanos: int
    zone: tzinfo = UTC
    zone_name: str = ""
    """Shown for MST; a fixed zone without a name shows its offset."""

    @property
    def civil(self) -> Civil:
        days, rest = divmod(self.nanos // SECOND + self.offset, _DAY)
        year, month, day = _date(days)
        year_day = days - days_before(year, 1, 1) + 1
        return Civil(year, month, day, rest // 3600, rest // 60 % 60, rest % 60, (days + 3) % 7, year_day)

    @property
    def offset(self) -> int:
        """Return the seconds east of UTC."""
        if self.zone is UTC:
            return 0
        return int((self._local.utcoffset() or timedelta()).total_seconds())

    @property
    def _local(self) -> datetime:
        seconds = max(_EARLIEST, min(self.nanos // SECOND, _LATEST))
        return (_EPOCH + timedelta(seconds=seconds)).astimezone(self.zone)

    @property
    def abbreviation(self) -> str:
        if self.zone_name:
            return self.zone_name
        if self.zone is UTC:
            return "UTC"
        if isinstance(self.zone, ZoneInfo):
            return self._local.tzname() or ""
        return _offset(self.offset, "", 2)


ZERO = Moment(-62135596800 * SECOND)
"""0001-01-01T00:00:00Z, Go's zero time."""


def of_seconds(seconds: int) -> Moment:
    return Moment(seconds * SECOND)


def fixed_zone(seconds: int) -> tzinfo:
    return timezone(timedelta(seconds=seconds)) if abs(seconds) < _DAY else UTC


def in_zone(moment: Moment, name: str) -> Moment:
    """Convert the moment to a zone of the tz database; an unknown zone is UTC."""
    if name in {"", "UTC", "Local"}:
        return Moment(moment.nanos)
    try:
        return Moment(moment.nanos, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return Moment(moment.nanos)


ELEMENT = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|2006|-07:00:00|-070000|-07:00|-0700|-07"
    r"|Z07:00:00|Z070000|Z07:00|Z0700|Z07|002|01|02|03|04|05|06|15|PM|pm|(?<=_)2006|__2|_2(?!006)"
    r"|[.,](?:0+|9+)(?![0-9])|1|2|3|4|5"
)
"""The elements of a layout."""


def format_moment(moment: Moment, layout: str) -> str:
    """Format like Time.Format."""
    civil = moment.civil
    return ELEMENT.sub(lambda found: _field(found.group(), moment, civil), layout)


def _field(element: str, moment: Moment, civil: Civil) -> str:
    if element[0] in ".,":
        return _fraction(element, moment.nanos % SECOND)
    write = _FIELDS.get(element)
    if write is not None:
        return write(civil)
    return moment.abbreviation if element == "MST" else _zone(element, moment.offset)


def _year(civil: Civil) -> str:
    return f"-{-civil.year:03d}" if civil.year < 0 else f"{civil.year:04d}"


_FIELDS: dict[str, Callable[[Civil], str]] = {
    "January": lambda civil: MONTHS[civil.month - 1],
    "Jan": lambda civil: MONTHS[civil.month - 1][:3],
    "Monday": lambda civil: DAYS[civil.weekday],
    "Mon": lambda civil: DAYS[civil.weekday][:3],
    "2006": _year,
    "06": lambda civil: f"{abs(civil.year) % 100:02d}",
    "01": lambda civil: f"{civil.month:02d}",
    "1": lambda civil: str(civil.month),
    "02": lambda civil: f"{civil.day:02d}",
    "_2": lambda civil: f"{civil.day:2d}",
    "2": lambda civil: str(civil.day),
    "002": lambda civil: f"{civil.year_day:03d}",
    "__2": lambda civil: f"{civil.year_day:3d}",
    "15": lambda civil: f"{civil.hour:02d}",
    "03": lambda civil: f"{civil.hour % 12 or 12:02d}",
    "3": lambda civil: str(civil.hour % 12 or 12),
    "04": lambda civil: f"{civil.minute:02d}",
    "4": lambda civil: str(civil.minute),
    "05": lambda civil: f"{civil.second:02d}",
    "5": lambda civil: str(civil.second),
    "PM": lambda civil: "PM" if civil.hour >= 12 else "AM",
    "pm": lambda civil: "pm" if civil.hour >= 12 else "am",
}


def _fraction(element: str, nanos: int) -> str:
    digits = f"{nanos:09d}"[: len(element) - 1]
    if element[1] == "0":
        return element[0] + digits
    digits = digits.rstrip("0")
    return element[0] + digits if digits else ""


def _zone(element: str, offset: int) -> str:
    if element[0] == "Z" and offset == 0:
        return "Z"
    colon = ":" if ":" in element else ""
    parts = {3: 1, 5: 2, 6: 2, 7: 3, 9: 3}[len(element)]
    return _offset(offset, colon, parts)


def _offset(offset: int, colon: str, parts: int) -> str:
    sign = "-" if offset < 0 else "+"
    minutes, seconds = divmod(abs(offset), 60)
    shown = [f"{minutes // 60:02d}", f"{minutes % 60:02d}", f"{seconds:02d}"][:parts]
    return sign + colon.join(shown)


def go_string(moment: Moment) -> str:
    """Format like Time.String, without the monotonic part."""
    return format_moment(moment, "2006-01-02 15:04:05.999999999 -0700 MST")
