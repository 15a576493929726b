"""Dates. `now` comes from the caller's clock; everything else is arithmetic in UTC."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import ClassVar

from gotmpl import gotime
from gotmpl.errors import FuncError, Quoted
from gotmpl.functions import ANY, INT, STRING, Func, Functions, GoType
from gotmpl.gotime import SECOND, Moment, TimeError, duration_problem, format_duration, parse_duration, parse_moment
from gotmpl.quoting import quote
from gotmpl.values import GoObject, Int32, Int64, Value, to_bytes, wrap64

FUNCTIONS = Functions()
_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}")
_LONGEST_DATE = 4096


@dataclass(frozen=True)
class Time(GoObject):
    go_type: ClassVar[str] = "time.Time"
    kind: ClassVar[str] = "struct"
    unexported: ClassVar[frozenset[str]] = frozenset({"wall", "ext", "loc"})

    moment: Moment

    def go_string(self) -> str:
        return gotime.go_string(self.moment)

    def go_syntax(self) -> str:
        civil = self.moment.civil
        clock = f"{civil.hour}, {civil.minute}, {civil.second}, {self.moment.nanos % SECOND}"
        zone = (
            ("time.UTC" if self.moment == gotime.ZERO else "time.Local")
            if self.moment.zone is UTC and not self.moment.zone_name
            else f"time.Location({quote(self.moment.zone_name)})"
        )
        return f"time.Date({civil.year}, time.{gotime.MONTHS[civil.month - 1]}, {civil.day}, {clock}, {zone})"

    def json_value(self) -> Value:
        return gotime.format_moment(self.moment, "2006-01-02T15:04:05.999999999Z07:00")


@dataclass(frozen=True)
class Duration(GoObject):
    go_type: ClassVar[str] = "time.Duration"
    kind: ClassVar[str] = "int64"

    nanos: int

    def go_string(self) -> str:
        return format_duration(self.nanos)

    def json_value(self) -> Value:
        return self.nanos


@dataclass(frozen=True)
class Named(GoObject):
    """A number that prints as a word."""

    kind: ClassVar[str] = "int"

    name: str
    number: int

    def go_string(self) -> str:
        return self.name

    def json_value(self) -> Value:
        return self.number


class Month(Named):
    go_type: ClassVar[str] = "time.Month"


class Weekday(Named):
    go_type: ClassVar[str] = "time.Weekday"


@dataclass(frozen=True)
class Location(GoObject):
    go_type: ClassVar[str] = "*time.Location"
    kind: ClassVar[str] = "ptr"

    moment: Moment
    """One in that zone."""

    def go_string(self) -> str:
        return self.moment.zone_name or ("UTC" if self.moment.zone is UTC else "")

    def json_value(self) -> Value:
        return {}


TIME = GoType("time.Time", (Time,))
DURATION = GoType("time.Duration", (Duration,), "integer", box=Duration)
LOCATION = GoType("*time.Location", (Location,), nilable=True)


def _add_date(time: Time, years: int, months: int, days: int) -> Time:
    civil = time.moment.civil
    carry, month0 = divmod(civil.month - 1 + months, 12)
    year = civil.year + years + carry
    if abs(year) > 1_000_000 or abs(days) > 1_000_000_000:
        raise FuncError("the date is out of range")
    moved = gotime.days_before(year, month0 + 1, 1) + civil.day - 1 + days
    delta = moved - gotime.days_before(civil.year, civil.month, civil.day)
    return _shifted(time, delta * 86400 * SECOND)


def _shifted(time: Time, nanos: int) -> Time:
    return Time(Moment(time.moment.nanos + nanos, time.moment.zone, time.moment.zone_name))


def _remainder(moment: Moment, step: int) -> int:
    """Return the time since the last multiple of a step since the zero time."""
    return (moment.nanos - gotime.ZERO.nanos) % step if step > 0 else 0


def _rounded(moment: Moment, step: int) -> int:
    rest = _remainder(moment, step)
    return -rest if 2 * rest < step or not rest else step - rest


def _span(nanos: int) -> Duration:
    """Return a duration, limited to the longest possible one."""
    return Duration(max(-(2**63), min(nanos, 2**63 - 1)))


def _cut_to_multiple(nanos: int, step: int) -> int:
    size = abs(nanos) - abs(nanos) % step if step > 0 else abs(nanos)
    return size if nanos >= 0 else -size


def _to_multiple(nanos: int, step: int) -> int:
    """Round to a multiple; half a step rounds away from zero."""
    return _cut_to_multiple(nanos + (step // 2 if nanos >= 0 else -(step // 2)), step) if step > 0 else nanos


def _in(time: Time, location: Location | None) -> Time:
    if location is None:
        raise FuncError("time: missing Location in call to Time.In")
    return Time(Moment(time.moment.nanos, location.moment.zone, location.moment.zone_name))


def _month(time: Time) -> Month:
    number = time.moment.civil.month
    return Month(gotime.MONTHS[number - 1], number)


def _weekday(time: Time) -> Weekday:
    day = time.moment.civil.weekday
    return Weekday(gotime.DAYS[day], (day + 1) % 7)


Time.methods = {
    name: Func(name, call, params)
    for name, call, params in (
        ("Year", lambda t: t.moment.civil.year, ()),
        ("Month", _month, ()),
        ("Day", lambda t: t.moment.civil.day, ()),
        ("Hour", lambda t: t.moment.civil.hour, ()),
        ("Minute", lambda t: t.moment.civil.minute, ()),
        ("Second", lambda t: t.moment.civil.second, ()),
        ("Nanosecond", lambda t: t.moment.nanos % SECOND, ()),
        ("YearDay", lambda t: t.moment.civil.year_day, ()),
        ("Weekday", _weekday, ()),
        ("Unix", lambda t: Int64(t.moment.nanos // SECOND), ()),
        ("UnixMilli", lambda t: Int64(t.moment.nanos // 10**6), ()),
        ("UnixMicro", lambda t: Int64(t.moment.nanos // 1000), ()),
        ("UnixNano", lambda t: Int64(wrap64(t.moment.nanos)), ()),
        ("IsZero", lambda t: t.moment.nanos == gotime.ZERO.nanos, ()),
        ("IsDST", lambda _t: False, ()),
        ("Location", lambda t: Location(t.moment), ()),
        ("In", _in, (LOCATION,)),
        ("UTC", lambda t: Time(Moment(t.moment.nanos)), ()),
        ("Local", lambda t: Time(Moment(t.moment.nanos)), ()),
        ("String", lambda t: t.go_string(), ()),
        ("Format", lambda t, layout: gotime.format_moment(t.moment, layout), (STRING,)),
        ("AddDate", _add_date, (INT, INT, INT)),
        ("Add", lambda t, d: _shifted(t, d.nanos), (DURATION,)),
        ("Sub", lambda t, o: _span(t.moment.nanos - o.moment.nanos), (TIME,)),
        ("Round", lambda t, d: _shifted(t, _rounded(t.moment, d.nanos)), (DURATION,)),
        ("Truncate", lambda t, d: _shifted(t, -_remainder(t.moment, d.nanos)), (DURATION,)),
        ("Compare", lambda t, o: (t.moment.nanos > o.moment.nanos) - (t.moment.nanos < o.moment.nanos), (TIME,)),
        ("GoString", lambda t: t.go_syntax(), ()),
        ("Before", lambda t, o: t.moment.nanos < o.moment.nanos, (TIME,)),
        ("After", lambda t, o: t.moment.nanos > o.moment.nanos, (TIME,)),
        ("Equal", lambda t, o: t.moment.nanos == o.moment.nanos, (TIME,)),
    )
}
Time.refusals = {
    "Date": "function Date has 3 return values; should be 1 or 2",
    "Clock": "function Clock has 3 return values; should be 1 or 2",
    "ISOWeek": "invalid function signature for ISOWeek: second return value should be error; is int",
    "Zone": "invalid function signature for Zone: second return value should be error; is int",
    "ZoneBounds": "invalid function signature for ZoneBounds: second return value should be error; is time.Time",
}
Named.methods = {"String": Func("String", lambda n: n.name)}
Location.methods = {"String": Func("String", lambda location: location.go_string())}
Duration.methods = {
    name: Func(name, call, tuple(params))
    for name, call, *params in (
        ("Hours", lambda d: d.nanos / (3600 * SECOND)),
        ("Minutes", lambda d: d.nanos / (60 * SECOND)),
        ("Seconds", lambda d: d.nanos / SECOND),
        ("Milliseconds", lambda d: Int64(int(d.nanos / 10**6))),
        ("Microseconds", lambda d: Int64(int(d.nanos / 1000))),
        ("Nanoseconds", lambda d: Int64(d.nanos)),
        ("String", lambda d: d.go_string()),
        ("Abs", lambda d: Duration(abs(d.nanos))),
        ("Round", lambda d, step: Duration(_to_multiple(d.nanos, step.nanos)), DURATION),
        ("Truncate", lambda d, step: Duration(_cut_to_multiple(d.nanos, step.nanos)), DURATION),
    )
}


def with_clock(now: Callable[[], int]) -> Functions:
    """Return the date functions; `now` returns nanoseconds since 1970 in UTC."""
    functions = Functions(FUNCTIONS)

    def current() -> Moment:
        return Moment(now())

    def moment_of(value: Value) -> Moment:
        match value:
            case Time():
                return value.moment
            case int() if type(value) in {int, Int64, Int32}:
                return gotime.of_seconds(int(value))
            case _:
                return current()

    def in_zone(layout: str, value: Value, zone: str) -> str:
        return gotime.format_moment(gotime.in_zone(moment_of(value), zone), layout)

    def ago(value: Value) -> str:
        elapsed = _span(current().nanos - moment_of(value).nanos)
        return format_duration(_rounded_to_second(elapsed.nanos))

    functions.add("now")(lambda: Time(current()))
    functions.add("date", params=(STRING, ANY))(lambda layout, value: in_zone(layout, value, "Local"))
    functions.add("dateInZone", "date_in_zone", params=(STRING, ANY, STRING))(in_zone)
    functions.add("htmlDate", params=(ANY,))(lambda value: in_zone("2006-01-02", value, "Local"))
    functions.add("htmlDateInZone", params=(ANY, STRING))(lambda value, zone: in_zone("2006-01-02", value, zone))
    functions.add("ago", params=(ANY,))(ago)
    functions.add("durationRound", params=(ANY,))(lambda value: _duration_round(value, current()))
    return functions


def _rounded_to_second(nanos: int) -> int:
    sign = -1 if nanos < 0 else 1
    return sign * ((abs(nanos) + SECOND // 2) // SECOND) * SECOND


def _duration_round(value: Value, now: Moment) -> str:
    match value:
        case str():
            nanos = parse_duration(value) or 0
        case Int64():
            nanos = int(value)
        case Time():
            nanos = _span(now.nanos - value.moment.nanos).nanos
        case _:
            nanos = 0
    sizes = (("y", 365 * 24 * 3600), ("mo", 30 * 24 * 3600), ("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1))
    for unit, size in sizes:
        if abs(nanos) > size * SECOND:
            return f"{abs(nanos) // (size * SECOND)}{unit}"
    return "0s"


@FUNCTIONS.add("toDate", params=(STRING, STRING))
def to_date(layout: str, text: str) -> Time:
    try:
        return _parsed(layout, text)
    except TimeError:
        return Time(gotime.ZERO)


@FUNCTIONS.add("mustToDate", params=(STRING, STRING))
def must_to_date(layout: str, text: str) -> Time:
    try:
        return _parsed(layout, text)
    except TimeError as exc:
        raise FuncError("parsing time ", Quoted(_quoted(text), origin=text), *_why(layout, text, exc)) from None


def _parsed(layout: str, text: str) -> Time:
    if max(len(layout), len(text)) > _LONGEST_DATE:
        raise FuncError(f"a date or its layout is longer than {_LONGEST_DATE} characters")
    return Time(parse_moment(layout, text))


def _why(layout: str, text: str, error: TimeError) -> tuple[str | Quoted, ...]:
    rest = Quoted(_quoted(error.rest), origin=text)
    if error.message:
        return (error.message, rest) if error.message.endswith(": ") else (error.message,)
    shown = Quoted(_quoted(layout), origin=layout)
    element = Quoted(_quoted(error.element), origin=layout)
    return " as ", shown, ": cannot parse ", rest, " as ", element


def _quoted(text: str) -> str:
    """Quote like the time package: non-ASCII bytes and control characters in hex."""
    return '"' + "".join(map(_quoted_byte, to_bytes(text))) + '"'


def _quoted_byte(byte: int) -> str:
    if not 0x20 <= byte < 0x7F:
        return f"\\x{byte:02x}"
    return f"\\{chr(byte)}" if chr(byte) in '"\\' else chr(byte)


@FUNCTIONS.add("dateModify", "date_modify", params=(STRING, TIME))
def date_modify(duration: str, time: Time) -> Time:
    nanos = parse_duration(duration)
    return time if nanos is None else _shifted(time, nanos)


@FUNCTIONS.add("mustDateModify", "must_date_modify", params=(STRING, TIME))
def must_date_modify(duration: str, time: Time) -> Time:
    nanos = parse_duration(duration)
    if nanos is None:
        problem, unit = duration_problem(duration)
        unknown = (Quoted(_quoted(unit), origin=duration), " in duration ") if unit else ()
        raise FuncError(problem, *unknown, Quoted(_quoted(duration), origin=duration))
    return _shifted(time, nanos)


@FUNCTIONS.add("unixEpoch", params=(TIME,))
def unix_epoch(time: Time) -> str:
    return str(time.moment.nanos // SECOND)


@FUNCTIONS.add("duration", params=(ANY,))
def duration(value: Value) -> str:
    match value:
        case str() if _DECIMAL.fullmatch(value):
            seconds = max(-(2**63), min(2**63 - 1, int(value)))
        case Int64():
            seconds = int(value)
        case _:
            seconds = 0
    return format_duration(wrap64(seconds * SECOND))
