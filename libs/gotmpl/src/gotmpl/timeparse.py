"""time.Parse: text to moment by a layout, with Go's order of checks and Go's messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, tzinfo

from gotmpl.durations import SECOND
from gotmpl.gotime import DAYS, ELEMENT, MONTHS, Moment, days_before, days_in, fixed_zone, is_leap


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
