"""Conversions between types, and the parts of timestamps and durations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from localkube.schema.causes import go_value
from localkube.schema.cel.errors import EvaluationError
from localkube.schema.cel.function import Library, checked_int, function, method, plain
from localkube.schema.cel.operators import seconds_of
from localkube.schema.cel.types import BOOL, BYTES, CIDR, DOUBLE, DURATION, INT, IP, STRING, TIMESTAMP, UINT
from localkube.schema.cel.values import Duration, Uint, no_overload, type_name

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION: Final = re.compile(r"([-+]?)((?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+|0)")
_DURATION_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def to_duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise no_overload("duration", value)
    matched = _DURATION.fullmatch(value)
    if matched is None:
        raise EvaluationError(f"time: invalid duration {value}")
    total = sum(int(Decimal(amount) * _UNITS[unit]) for amount, unit in _DURATION_PART.findall(matched[2]))
    return Duration(checked_int(-total if matched[1] == "-" else total))


def to_timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, tz=UTC)
    if not isinstance(value, str):
        raise no_overload("timestamp", value)
    text = f"{value}T00:00:00Z" if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value) else value
    # Nanoseconds are cut to the microseconds that a datetime holds.
    text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EvaluationError(f"invalid timestamp {value}") from None
    if moment.tzinfo is None:
        raise EvaluationError(f"invalid timestamp {value}")
    return moment


def to_string(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return _decoded(value)
        case bool() | int() | float():
            return go_value(value)
        case datetime():
            return _shown_moment(value)
        case Duration():
            return go_value(value.nanoseconds / 10**9) + "s"
        case _ if hasattr(value, "cel_text"):
            return str(value.cel_text())
        case _:
            raise no_overload("string", value)


def _to_int(value: Any) -> int:
    match value:
        case bool():
            raise no_overload("int", value)
        case int():
            return checked_int(int(value))
        case float():
            if not math.isfinite(value):
                raise EvaluationError("integer overflow")
            return checked_int(math.trunc(value))
        case str() if re.fullmatch("[-+]?[0-9]+", value):
            return checked_int(int(value))
        case datetime():
            return seconds_of(value)
        case Duration():
            return value.nanoseconds
        case _:
            raise _conversion_error(value, "int")


def _to_uint(value: Any) -> Uint:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**64:
        raise _conversion_error(value, "uint")
    return Uint(number)


def _to_double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise no_overload("double", value)
    try:
        return float(value)
    except ValueError:
        raise _conversion_error(value, "double") from None


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise no_overload("bytes", value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in {"true", "True", "TRUE", "t", "1"}:
        return True
    if value in {"false", "False", "FALSE", "f", "0"}:
        return False
    raise _conversion_error(value, "bool")


def _conversion_error(value: Any, wanted: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _shown_moment(value: datetime) -> str:
    text = value.astimezone(UTC).isoformat().replace("+00:00", "")
    return (text.rstrip("0") if "." in text else text) + "Z"


def _zoned(moment: datetime, zone: str) -> datetime:
    offset = re.fullmatch("([-+]?)([0-9]{2}):([0-9]{2})", zone)
    if offset:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return moment.astimezone(timezone(-span if offset[1] == "-" else span))
    try:
        return moment.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):
        raise EvaluationError(f"unknown time zone {zone}") from None


def _part(read: Callable[[datetime], int], unit: int = 0) -> Callable[..., int]:
    """A getter of a timestamp; with a unit in nanoseconds, of a duration too."""

    def run(value: Any, zone: str = "UTC") -> int:
        if isinstance(value, datetime):
            return read(_zoned(value, zone))
        if isinstance(value, Duration) and unit:
            return abs(value.nanoseconds) // unit * (-1 if value.nanoseconds < 0 else 1)
        raise no_overload("get", value)

    return run


_OF_MOMENT: Final = (method(TIMESTAMP, gives=INT), method(TIMESTAMP, STRING, gives=INT))
_OF_BOTH: Final = (*_OF_MOMENT, method(DURATION, gives=INT))


def _milliseconds(value: Any, zone: str = "UTC") -> int:
    if isinstance(value, Duration):
        return value.nanoseconds // 10**6
    return _zoned(value, zone).microsecond // 1000


def _conversion(run: Callable[[Any], Any], result: Any, *sources: Any) -> Any:
    return function(run, *(plain(source, gives=result) for source in sources))


FUNCTIONS: Final[Library] = {
    "int": _conversion(_to_int, INT, INT, UINT, DOUBLE, STRING, TIMESTAMP, DURATION),
    "uint": _conversion(_to_uint, UINT, UINT, INT, DOUBLE, STRING),
    "double": _conversion(_to_double, DOUBLE, DOUBLE, INT, UINT, STRING),
    "string": _conversion(to_string, STRING, STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION, IP, CIDR),
    "bytes": _conversion(_to_bytes, BYTES, BYTES, STRING),
    "bool": _conversion(_to_bool, BOOL, BOOL, STRING),
    "timestamp": _conversion(to_timestamp, TIMESTAMP, TIMESTAMP, STRING, INT),
    "duration": _conversion(to_duration, DURATION, DURATION, STRING, INT),
    "getFullYear": function(_part(lambda moment: moment.year), *_OF_MOMENT),
    "getMonth": function(_part(lambda moment: moment.month - 1), *_OF_MOMENT),
    "getDate": function(_part(lambda moment: moment.day), *_OF_MOMENT),
    "getDayOfMonth": function(_part(lambda moment: moment.day - 1), *_OF_MOMENT),
    "getDayOfWeek": function(_part(lambda moment: moment.isoweekday() % 7), *_OF_MOMENT),
    "getDayOfYear": function(_part(lambda moment: moment.timetuple().tm_yday - 1), *_OF_MOMENT),
    "getHours": function(_part(lambda moment: moment.hour, 3600 * 10**9), *_OF_BOTH),
    "getMinutes": function(_part(lambda moment: moment.minute, 60 * 10**9), *_OF_BOTH),
    "getSeconds": function(_part(lambda moment: moment.second, 10**9), *_OF_BOTH),
    "getMilliseconds": function(_milliseconds, *_OF_BOTH),
}
