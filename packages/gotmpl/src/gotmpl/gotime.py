"""Go's time package, as far as templates reach it: layouts, durations, moments.

A moment counts nanoseconds since 1970 in UTC and knows its zone. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_SECONDS = -62135596800
"""0001-01-01T00:00:00Z, Go's zero time."""

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Moment:
    nanos: int
    zone: tzinfo = UTC
    zone_name: str = ""
    """Shown for MST; a fixed zone without a name shows its offset."""

    @property
    def local(self) -> datetime:
        seconds, nanos = divmod(self.nanos, SECOND)
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
        return moment.astimezone(self.zone)

    @property
    def offset(self) -> int:
        """Seconds east of UTC."""
        return int((self.local.utcoffset() or timedelta()).total_seconds())

    @property
    def abbreviation(self) -> str:
        if self.zone is UTC:
            return "UTC"
        if self.zone_name:
            return self.zone_name
        name = self.local.tzname() or ""
        return name if isinstance(self.zone, ZoneInfo) and name[:1].isalpha() else _offset(self.offset, "", 2)


ZERO = Moment(_ZERO_SECONDS * SECOND)


def of_seconds(seconds: int) -> Moment:
    return Moment(seconds * SECOND)


def in_zone(moment: Moment, name: str) -> Moment:
    """The moment in a zone of the tz database; an unknown one is UTC."""
    if name in {"", "UTC", "Local"}:
        return Moment(moment.nanos)
    try:
        return Moment(moment.nanos, ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        return Moment(moment.nanos)


_LAYOUT = re.compile(
    r"January|Jan|Monday|Mon|MST|2006|-07:00:00|-070000|-07:00|-0700|-07|Z07:00:00|Z070000|Z07:00|Z0700|Z07"
    r"|002|01|02|03|04|05|06|15|PM|pm|_2006|__2|_2|[.,]0+(?![0-9])|[.,]9+(?![0-9])|1|2|3|4|5"
)


def format_moment(moment: Moment, layout: str) -> str:
    """Time.Format."""
    local = moment.local
    return _LAYOUT.sub(lambda found: _field(found.group(), moment, local), layout)


def _field(token: str, moment: Moment, local: datetime) -> str:
    hour12 = local.hour % 12 or 12
    simple = {
        "January": MONTHS[local.month - 1],
        "Jan": MONTHS[local.month - 1][:3],
        "Monday": DAYS[local.weekday()],
        "Mon": DAYS[local.weekday()][:3],
        "MST": moment.abbreviation,
        "2006": f"{local.year:04d}",
        "_2006": f"_{local.year:04d}",
        "06": f"{local.year % 100:02d}",
        "01": f"{local.month:02d}",
        "1": str(local.month),
        "02": f"{local.day:02d}",
        "_2": f"{local.day:2d}",
        "2": str(local.day),
        "002": f"{local.timetuple().tm_yday:03d}",
        "__2": f"{local.timetuple().tm_yday:3d}",
        "15": f"{local.hour:02d}",
        "03": f"{hour12:02d}",
        "3": str(hour12),
        "04": f"{local.minute:02d}",
        "4": str(local.minute),
        "05": f"{local.second:02d}",
        "5": str(local.second),
        "PM": "PM" if local.hour >= 12 else "AM",
        "pm": "pm" if local.hour >= 12 else "am",
    }
    if token in simple:
        return simple[token]
    if token[0] in ".,":
        return _fraction(token, moment.nanos % SECOND)
    return _zone(token, moment.offset)


def _fraction(token: str, nanos: int) -> str:
    digits = f"{nanos:09d}"[: len(token) - 1]
    if token[1] == "0":
        return token[0] + digits
    digits = digits.rstrip("0")
    return token[0] + digits if digits else ""


def _zone(token: str, offset: int) -> str:
    if token[0] == "Z" and offset == 0:
        return "Z"
    colon = ":" if ":" in token else ""
    parts = {3: 1, 5: 2, 6: 2, 7: 3, 9: 3}[len(token)]
    return _offset(offset, colon, parts)


def _offset(offset: int, colon: str, parts: int) -> str:
    sign = "-" if offset < 0 else "+"
    minutes, seconds = divmod(abs(offset), 60)
    shown = [f"{minutes // 60:02d}", f"{minutes % 60:02d}", f"{seconds:02d}"][:parts]
    return sign + colon.join(shown)


def go_string(moment: Moment) -> str:
    """Time.String, without the monotonic part."""
    return format_moment(moment, "2006-01-02 15:04:05.999999999 -0700 MST")


class TimeError(ValueError):
    """`what` and `layout` are the parts that did not fit; Go's message quotes both."""

    def __init__(self, layout: str, text: str, element: str, rest: str) -> None:
        super().__init__("cannot parse")
        self.layout, self.text, self.element, self.rest = layout, text, element, rest


_NUMBER = {
    "2006": r"(?P<year>\d{4})",
    "06": r"(?P<short_year>\d{2})",
    "01": r"(?P<month>\d{2})",
    "1": r"(?P<month>\d{1,2})",
    "02": r"(?P<day>\d{2})",
    "_2": r" ?(?P<day>\d{1,2})",
    "2": r"(?P<day>\d{1,2})",
    "15": r"(?P<hour>\d{2})",
    "03": r"(?P<hour12>\d{2})",
    "3": r"(?P<hour12>\d{1,2})",
    "04": r"(?P<minute>\d{2})",
    "4": r"(?P<minute>\d{1,2})",
    "05": r"(?P<second>\d{2})(?P<fraction>[.,]\d+)?",
    "5": r"(?P<second>\d{1,2})(?P<fraction>[.,]\d+)?",
    "002": r"(?P<yearday>\d{3})",
    "January": "(?P<month_name>" + "|".join(MONTHS) + ")",
    "Jan": "(?P<month_name>" + "|".join(name[:3] for name in MONTHS) + ")",
    "Monday": "(?:" + "|".join(DAYS) + ")",
    "Mon": "(?:" + "|".join(name[:3] for name in DAYS) + ")",
    "PM": "(?P<half>AM|PM)",
    "pm": "(?P<half>am|pm)",
    "MST": r"(?P<zone_name>[A-Z]{3,5}|[+-]\d{2})",
    "-0700": r"(?P<offset>[+-]\d{4})",
    "-07:00": r"(?P<offset>[+-]\d{2}:\d{2})",
    "-07": r"(?P<offset>[+-]\d{2})",
    "Z0700": r"(?P<offset>Z|[+-]\d{4})",
    "Z07:00": r"(?P<offset>Z|[+-]\d{2}:\d{2})",
    "Z07": r"(?P<offset>Z|[+-]\d{2})",
}


def parse_moment(layout: str, text: str) -> Moment:
    """time.Parse in UTC."""
    values: dict[str, str] = {}
    at = position = 0
    for token in _LAYOUT.finditer(layout):
        at = _literal(layout, text, layout[position : token.start()], at)
        position = token.end()
        at = _element(layout, text, token.group(), at, values)
    at = _literal(layout, text, layout[position:], at)
    if at < len(text):
        raise TimeError(layout, text, "", text[at:])
    return _moment(values, layout, text)


def _literal(layout: str, text: str, literal: str, at: int) -> int:
    if not text.startswith(literal, at):
        raise TimeError(layout, text, literal, text[at:])
    return at + len(literal)


def _element(layout: str, text: str, token: str, at: int, values: dict[str, str]) -> int:
    if token[0] in ".,":
        found = re.compile(r"[.,]\d+" if token[1] == "0" else r"(?:[.,]\d+)?").match(text, at)
    else:
        found = re.compile(_NUMBER.get(token, re.escape(token))).match(text, at)
    if found is None:
        raise TimeError(layout, text, token, text[at:])
    values |= {key: value for key, value in found.groupdict().items() if value}
    return found.end()


def _moment(values: dict[str, str], layout: str, text: str) -> Moment:
    year = int(values.get("year") or "0")
    if "short_year" in values:
        short = int(values["short_year"])
        year = 1900 + short if short >= 69 else 2000 + short
    month = int(values.get("month") or "1")
    if name := values.get("month_name"):
        month = next(number for number, full in enumerate(MONTHS, 1) if full[: len(name)] == name)
    hour = int(values.get("hour") or values.get("hour12") or "0")
    if half := values.get("half", "").lower():
        hour = hour % 12 + (12 if half == "pm" else 0)
    zone, zone_name = _parsed_zone(values)
    if not year:
        return ZERO
    try:
        day = int(values.get("day") or "1")
        minute, second = int(values.get("minute") or "0"), int(values.get("second") or "0")
        local = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        raise TimeError(layout, text, "", ": out of range") from None
    fraction = int(values.get("fraction", ".0")[1:10].ljust(9, "0"))
    seconds = int((local - _EPOCH).total_seconds())
    return Moment(seconds * SECOND + fraction, zone, zone_name)


def _parsed_zone(values: dict[str, str]) -> tuple[tzinfo, str]:
    offset = values.get("offset", "")
    if not offset or offset == "Z":
        name = values.get("zone_name", "")
        return (UTC, "") if name in {"", "UTC"} else (timezone(timedelta()), name)
    digits = offset[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60
    if seconds == 0:
        return UTC, ""
    return timezone(timedelta(seconds=-seconds if offset[0] == "-" else seconds)), values.get("zone_name", "")


_UNITS = {"ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> int | None:
    """time.ParseDuration in nanoseconds, or None."""
    body = text[1:] if text[:1] in {"+", "-"} else text
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


def format_duration(nanos: int) -> str:
    """Duration.String."""
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
