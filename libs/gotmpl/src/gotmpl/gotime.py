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

# --- Go's time.Duration as text: `1h30m` ------------------------------------------------------------------------------

SECOND = 1_000_000_000
MAX_LENGTH = 1000
_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)(?![^.0-9])")
_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_UNIT = re.compile(r"[^.0-9]*")


def parse_duration(text: str) -> int | None:
    """Parse a duration to nanoseconds like time.ParseDuration; None if it is invalid."""
    body = text[1:] if text[:1] in {"+", "-"} else text
    if len(body) > MAX_LENGTH:
        return None
    if body == "0":
        return 0
    total = at = 0
    while at < len(body):
        found = _PART.match(body, at)
        if found is None or not (found[1] or found[2]):
            return None
        unit = _UNITS[found[3]]
        total += int(found[1] or 0) * unit + int(found[2] or 0) * unit // 10 ** len(found[2] or "")
        at = found.end()
    if not body or total >= 2**63:
        return None
    return -total if text[0] == "-" else total


def duration_problem(text: str) -> tuple[str, str]:
    """Return Go's message for an invalid duration up to the quoted part, and the unknown unit."""
    body = text[1:] if text[:1] in {"+", "-"} else text
    at = 0
    while at < len(body) and (found := _PART.match(body, at)) and (found[1] or found[2]):
        at = found.end()
    amount = _AMOUNT.match(body, at)
    if amount is None:
        return "time: invalid duration ", ""
    found = _UNIT.match(body, amount.end())
    unit = found.group() if found else ""
    if not unit:
        return "time: missing unit in duration ", ""
    return ("time: unknown unit ", unit) if unit not in _UNITS else ("time: invalid duration ", "")


def format_duration(nanos: int) -> str:
    """Format nanoseconds like Duration.String."""
    if nanos == 0:
        return "0s"
    sign, rest = ("-", -nanos) if nanos < 0 else ("", nanos)
    if rest < SECOND:
        unit, size = ("ns", 1) if rest < 1000 else ("µs", 1000) if rest < 10**6 else ("ms", 10**6)
        return sign + _decimal(rest, size) + unit
    minutes, seconds = divmod(rest, 60 * SECOND)
    text = _decimal(seconds, SECOND) + "s"
    if minutes:
        text = f"{minutes % 60}m{text}"
    if minutes >= 60:
        text = f"{minutes // 60}h{text}"
    return sign + text


def _decimal(value: int, size: int) -> str:
    whole, part = divmod(value, size)
    if not part:
        return str(whole)
    return f"{whole}.{str(part).rjust(len(str(size)) - 1, '0').rstrip('0')}"


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


# --- time.Parse: text to moment by a layout, with Go's order of checks and Go's messages ------------------------------


class TimeError(ValueError):
    """Either a `message` for a value out of range, or the layout `element` that does not match `rest` of the text."""

    def __init__(self, element: str, rest: str, message: str = "") -> None:
        super().__init__(message or "cannot parse")
        self.element, self.rest, self.message = element, rest, message


def parse_moment(layout: str, text: str) -> Moment:
    """Parse as time.Parse in UTC."""
    return _TimeReader(layout, text).moment()


class _MismatchError(Exception):
    """The text does not match a layout element."""


class _RangeError(Exception):
    """A number is well formed but out of range."""


class _TimeReader:
    def __init__(self, layout: str, text: str) -> None:
        self._layout = layout
        self._rest = text
        self.values: dict[str, int] = {}
        self._half = ""
        self._zone: tzinfo | None = None
        self._zone_name = ""
        self._following = ""

    def moment(self) -> Moment:
        tokens = list(ELEMENT.finditer(self._layout))
        position = 0
        for number, token in enumerate(tokens):
            self._skip(self._layout[position : token.start()])
            position = token.end()
            self._following = tokens[number + 1].group() if number + 1 < len(tokens) else ""
            if number + 1 < len(tokens) and tokens[number + 1].start() != position:
                self._following = ""
            held = self._rest
            try:
                self._read(token.group())
            except _RangeError as exc:
                raise TimeError(token.group(), self._rest, f": {exc} out of range") from None
            except _MismatchError:
                raise TimeError(token.group(), held) from None
        self._skip(self._layout[position:])
        if self._rest:
            raise TimeError("", self._rest, ": extra text: ")
        return self._assembled()

    def _skip(self, prefix: str) -> None:
        """Skip literal text of the layout; one space matches any number of them, and none at the end."""
        at = 0
        while at < len(prefix):
            if prefix[at] == " ":
                if self._rest and self._rest[0] != " ":
                    raise TimeError(prefix, self._rest)
                at += len(prefix[at:]) - len(prefix[at:].lstrip(" "))
                self._rest = self._rest.lstrip(" ")
            elif not self._rest or self._rest[0] != prefix[at]:
                raise TimeError(prefix, self._rest)
            else:
                at += 1
                self._rest = self._rest[1:]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._rest)
        if found is None:
            raise _MismatchError
        self._rest = self._rest[found.end() :]
        return found.group()

    def _read(self, element: str) -> None:
        read = _READERS.get(element)
        if read is not None:
            read(self)
        elif element[0] in ".,":
            self._fraction(element)
        elif element == "MST":
            self._name()
        else:
            self._offset(element)

    def number(self, name: str, pattern: re.Pattern[str], low: int, high: int) -> None:
        self.values[name] = int(self._take(pattern))
        if not low <= self.values[name] <= high:
            raise _RangeError(name)

    def match_name(self, name: str, names: tuple[str, ...]) -> None:
        for number, each in enumerate(names, 1):
            if self._rest[: len(each)].lower() == each.lower():
                self.values[name] = number
                self._rest = self._rest[len(each) :]
                return
        raise _MismatchError

    def short_year(self) -> None:
        year = int(self._take(_TWO))
        self.values["year"] = year + (1900 if year >= 69 else 2000)

    def half(self, pattern: re.Pattern[str]) -> None:
        self._half = self._take(pattern).upper()

    def second(self, pattern: re.Pattern[str]) -> None:
        self.number("second", pattern, 0, 59)
        if _FRACTION.match(self._rest) and self._following[:1] not in {".", ","}:
            self._nanos(self._take(_FRACTION))

    def _fraction(self, element: str) -> None:
        if element[1] == "9":
            if _FRACTION.match(self._rest):
                self._nanos(self._take(_FRACTION))
            return
        piece = self._rest[: len(element)]
        if not re.fullmatch(r"[.,][0-9]+", piece) or len(piece) < len(element):
            raise _MismatchError
        self._rest = self._rest[len(element) :]
        self._nanos(piece)

    def _nanos(self, piece: str) -> None:
        self.values["nanos"] = int(piece[1:10].ljust(9, "0"))

    def _offset(self, element: str) -> None:
        if element[0] == "Z" and self._rest.startswith("Z"):
            self._rest = self._rest[1:]
            self._zone = UTC
            return
        found = _OFFSETS[element[1:]].match(self._rest)
        if found is None:
            raise _MismatchError
        self._rest = self._rest[len(element) :]
        sign, *parts = found.groups()
        numbers = [int(part) for part in parts]
        for name, value, most in zip(("hour", "minute", "second"), numbers, (24, 60, 60), strict=False):
            if value > most:
                raise _RangeError(f"time zone offset {name}")
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        total = (hours * 60 + minutes) * 60 + seconds
        self.values["offset"] = -total if sign == "-" else total

    def _name(self) -> None:
        if self._rest.startswith("UTC"):
            self._rest = self._rest[3:]
            self._zone = UTC
            return
        self._zone_name = self._take(_ZONE_NAME)

    def _assembled(self) -> Moment:
        values = self.values
        hour = values.get("hour", 0)
        if self._half == "PM" and hour < 12:
            hour += 12
        elif self._half == "AM" and hour == 12:
            hour = 0
        year = values.get("year", 0)
        month, day = self._month_and_day(year)
        if not 1 <= day <= days_in(month, year):
            raise TimeError("", self._rest, ": day out of range")
        seconds = days_before(year, month, day) * 86400
        seconds += hour * 3600 + values.get("minute", 0) * 60 + values.get("second", 0)
        return self._placed(seconds * SECOND + values.get("nanos", 0))

    def _month_and_day(self, year: int) -> tuple[int, int]:
        values = self.values
        of_year = values.get("yearday")
        if of_year is None:
            return values.get("month", 1), values.get("day", 1)
        if not 1 <= of_year <= 365 + is_leap(year):
            raise TimeError("", self._rest, ": day-of-year out of range")
        month = 1
        while of_year > days_in(month, year):
            of_year -= days_in(month, year)
            month += 1
        for name, expected in (("month", month), ("day", of_year)):
            if values.get(name, expected) != expected:
                raise TimeError("", self._rest, f": day-of-year does not match {name}")
        return month, of_year

    def _placed(self, nanos: int) -> Moment:
        offset = self.values.get("offset")
        if self._zone is not None or (offset is None and not self._zone_name):
            return Moment(nanos)
        if offset is None:
            hours = int(self._zone_name[3:]) if re.fullmatch(r"GMT[+-][0-9]+", self._zone_name) else 0
            return Moment(nanos, fixed_zone(hours * 3600), self._zone_name)
        zone = UTC if offset == 0 and self._zone_name in {"", "UTC"} else fixed_zone(offset)
        return Moment(nanos - offset * SECOND, zone, self._zone_name)


_ONE_OR_TWO, _TWO, _FOUR = re.compile(r"[0-9]{1,2}"), re.compile(r"[0-9]{2}"), re.compile(r"[0-9]{4}")
_PADDED_DAY, _UPPER_HALF, _LOWER_HALF = re.compile(r" ?[0-9]{1,2}"), re.compile("AM|PM"), re.compile("am|pm")
_THREE, _PADDED_THREE = re.compile(r"[0-9]{3}"), re.compile(r" {0,2}[0-9]{1,3}")
_FRACTION = re.compile(r"[.,][0-9]+")
_OFFSETS = {
    "07": re.compile(r"([+-])(\d\d)"),
    "0700": re.compile(r"([+-])(\d\d)(\d\d)"),
    "07:00": re.compile(r"([+-])(\d\d):(\d\d)"),
    "070000": re.compile(r"([+-])(\d\d)(\d\d)(\d\d)"),
    "07:00:00": re.compile(r"([+-])(\d\d):(\d\d):(\d\d)"),
}
_SIGNED_HOURS = r"[+-](?:[01]?[0-9]|2[0-3])(?![0-9])"
_ZONE_NAME = re.compile(
    rf"ChST|MeST|GMT{_SIGNED_HOURS}|GMT|{_SIGNED_HOURS}|[A-Z]{{4}}T(?![A-Z])|[A-Z]{{3}}T(?![A-Z])|WITA(?![A-Z])"
    r"|[A-Z]{3}(?![A-Z])"
)
_READERS: dict[str, Callable[[_TimeReader], None]] = {
    "2006": lambda reader: reader.number("year", _FOUR, 0, 9999),
    "06": _TimeReader.short_year,
    "01": lambda reader: reader.number("month", _TWO, 1, 12),
    "1": lambda reader: reader.number("month", _ONE_OR_TWO, 1, 12),
    "January": lambda reader: reader.match_name("month", MONTHS),
    "Jan": lambda reader: reader.match_name("month", tuple(name[:3] for name in MONTHS)),
    "Monday": lambda reader: reader.match_name("weekday", DAYS),
    "Mon": lambda reader: reader.match_name("weekday", tuple(name[:3] for name in DAYS)),
    "02": lambda reader: reader.number("day", _TWO, 0, 99),
    "_2": lambda reader: reader.number("day", _PADDED_DAY, 0, 99),
    "2": lambda reader: reader.number("day", _ONE_OR_TWO, 0, 99),
    "002": lambda reader: reader.number("yearday", _THREE, 0, 999),
    "__2": lambda reader: reader.number("yearday", _PADDED_THREE, 0, 999),
    "15": lambda reader: reader.number("hour", _ONE_OR_TWO, 0, 23),
    "03": lambda reader: reader.number("hour", _TWO, 0, 12),
    "3": lambda reader: reader.number("hour", _ONE_OR_TWO, 0, 12),
    "04": lambda reader: reader.number("minute", _TWO, 0, 59),
    "4": lambda reader: reader.number("minute", _ONE_OR_TWO, 0, 59),
    "05": lambda reader: reader.second(_TWO),
    "5": lambda reader: reader.second(_ONE_OR_TWO),
    "PM": lambda reader: reader.half(_UPPER_HALF),
    "pm": lambda reader: reader.half(_LOWER_HALF),
}
