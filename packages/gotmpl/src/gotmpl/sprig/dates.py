"""Dates. `now` is the clock the caller passes in; everything else is arithmetic in UTC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from gotmpl import gotime
from gotmpl.errors import FuncError, Quoted
from gotmpl.gotime import SECOND, Moment
from gotmpl.quoting import quote
from gotmpl.signatures import ANY, INT, STRING, Func, Functions, GoType
from gotmpl.sprig.conversion import to_int
from gotmpl.values import GoObject, Int64, Value

FUNCTIONS = Functions()


@dataclass(frozen=True)
class Time(GoObject):
    go_type: ClassVar[str] = "time.Time"
    kind: ClassVar[str] = "struct"

    moment: Moment

    def go_string(self) -> str:
        return gotime.go_string(self.moment)


@dataclass(frozen=True)
class Duration(GoObject):
    go_type: ClassVar[str] = "time.Duration"
    kind: ClassVar[str] = "int64"

    nanos: int

    def go_string(self) -> str:
        return gotime.format_duration(self.nanos)


@dataclass(frozen=True)
class Named(GoObject):
    """time.Month and time.Weekday: a number that prints as a word."""

    go_type: ClassVar[str] = "time.Month"
    kind: ClassVar[str] = "int"

    word: str
    number: int

    def go_string(self) -> str:
        return self.word


TIME = GoType("time.Time", (Time,))
DURATION = GoType("time.Duration", (Duration,))


def _add_date(time: Time, years: int, months: int, days: int) -> Time:
    local = time.moment.local
    month0 = local.month - 1 + months
    year, month = local.year + years + month0 // 12, month0 % 12 + 1
    if not 1 <= year <= 9999:
        raise FuncError("the date is out of range")
    start = local.replace(year=year, month=month, day=1)
    delta = int((start - local.replace(day=1)).total_seconds()) + days * 86400
    return Time(Moment(time.moment.nanos + delta * SECOND, time.moment.zone, time.moment.zone_name))


def _shifted(time: Time, nanos: int) -> Time:
    return Time(Moment(time.moment.nanos + nanos, time.moment.zone, time.moment.zone_name))


def _month(time: Time) -> Named:
    number = time.moment.local.month
    return Named(gotime.MONTHS[number - 1], number)


def _weekday(time: Time) -> Named:
    day = time.moment.local.weekday()
    return Named(gotime.DAYS[day], (day + 1) % 7)


Time.methods = {
    name: Func(name, call, params)
    for name, call, params in (
        ("Year", lambda t: t.moment.local.year, ()),
        ("Month", _month, ()),
        ("Day", lambda t: t.moment.local.day, ()),
        ("Hour", lambda t: t.moment.local.hour, ()),
        ("Minute", lambda t: t.moment.local.minute, ()),
        ("Second", lambda t: t.moment.local.second, ()),
        ("Nanosecond", lambda t: t.moment.nanos % SECOND, ()),
        ("YearDay", lambda t: t.moment.local.timetuple().tm_yday, ()),
        ("Weekday", _weekday, ()),
        ("Unix", lambda t: Int64(t.moment.nanos // SECOND), ()),
        ("UnixMilli", lambda t: Int64(t.moment.nanos // 10**6), ()),
        ("UnixNano", lambda t: Int64(t.moment.nanos), ()),
        ("IsZero", lambda t: t.moment.nanos == gotime.ZERO.nanos, ()),
        ("UTC", lambda t: Time(Moment(t.moment.nanos)), ()),
        ("Local", lambda t: Time(Moment(t.moment.nanos)), ()),
        ("String", lambda t: t.go_string(), ()),
        ("Format", lambda t, layout: gotime.format_moment(t.moment, layout), (STRING,)),
        ("AddDate", _add_date, (INT, INT, INT)),
        ("Add", lambda t, d: _shifted(t, d.nanos), (DURATION,)),
        ("Sub", lambda t, o: Duration(t.moment.nanos - o.moment.nanos), (TIME,)),
        ("Before", lambda t, o: t.moment.nanos < o.moment.nanos, (TIME,)),
        ("After", lambda t, o: t.moment.nanos > o.moment.nanos, (TIME,)),
        ("Equal", lambda t, o: t.moment.nanos == o.moment.nanos, (TIME,)),
    )
}
Duration.methods = {
    name: Func(name, call)
    for name, call in (
        ("Hours", lambda d: d.nanos / (3600 * SECOND)),
        ("Minutes", lambda d: d.nanos / (60 * SECOND)),
        ("Seconds", lambda d: d.nanos / SECOND),
        ("Milliseconds", lambda d: Int64(d.nanos // 10**6)),
        ("Nanoseconds", lambda d: Int64(d.nanos)),
        ("String", lambda d: d.go_string()),
    )
}


def with_clock(now: Callable[[], int]) -> Functions:
    """The date functions over a clock that counts nanoseconds since 1970 in UTC."""
    functions = Functions(FUNCTIONS)

    def current() -> Moment:
        return Moment(now())

    def moment_of(value: Value) -> Moment:
        match value:
            case Time():
                return value.moment
            case int() if not isinstance(value, bool):
                return gotime.of_seconds(int(value))
            case _:
                return current()

    def in_zone(layout: str, value: Value, zone: str) -> str:
        return gotime.format_moment(gotime.in_zone(moment_of(value), zone), layout)

    def ago(value: Value) -> str:
        elapsed = current().nanos - moment_of(value).nanos
        return gotime.format_duration(_rounded_to_second(elapsed))

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
            nanos = gotime.parse_duration(value) or 0
        case Int64():
            nanos = int(value)
        case Time():
            nanos = now.nanos - value.moment.nanos
        case Duration():
            nanos = value.nanos
        case _:
            nanos = 0
    sizes = (("y", 365 * 24 * 3600), ("mo", 30 * 24 * 3600), ("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1))
    seconds = abs(nanos) // SECOND
    for unit, size in sizes:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return "0s"


@FUNCTIONS.add("toDate", params=(STRING, STRING))
def to_date(layout: str, text: str) -> Time:
    try:
        return Time(gotime.parse_moment(layout, text))
    except gotime.TimeError:
        return Time(gotime.ZERO)


@FUNCTIONS.add("mustToDate", params=(STRING, STRING))
def must_to_date(layout: str, text: str) -> Time:
    try:
        return Time(gotime.parse_moment(layout, text))
    except gotime.TimeError as exc:
        raise FuncError("parsing time ", Quoted(text, "q"), *_why(exc)) from None


def _why(error: gotime.TimeError) -> tuple[str | Quoted, ...]:
    if not error.element:
        return (": day out of range" if error.rest.startswith(":") else ": extra text",)
    return f" as {quote(error.layout)}: cannot parse ", Quoted(error.rest, "q"), f" as {quote(error.element)}"


@FUNCTIONS.add("dateModify", "date_modify", params=(STRING, TIME))
def date_modify(duration: str, time: Time) -> Time:
    nanos = gotime.parse_duration(duration)
    return time if nanos is None else _shifted(time, nanos)


@FUNCTIONS.add("mustDateModify", "must_date_modify", params=(STRING, TIME))
def must_date_modify(duration: str, time: Time) -> Time:
    nanos = gotime.parse_duration(duration)
    if nanos is None:
        raise FuncError("time: invalid duration ", Quoted(duration, "q"))
    return _shifted(time, nanos)


@FUNCTIONS.add("unixEpoch", params=(TIME,))
def unix_epoch(time: Time) -> str:
    return str(time.moment.nanos // SECOND)


@FUNCTIONS.add("duration", params=(ANY,))
def duration(value: Value) -> str:
    seconds = to_int(value) if isinstance(value, str | Int64) else 0
    return gotime.format_duration(seconds * SECOND)
