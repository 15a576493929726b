"""Lengths of time as Go writes them: `1h0m0s`, `250ms`, `-1.5h`.

Parsing and formatting follow Go's time.ParseDuration and Duration.String to the digit, because manifests, status
fields and queries of the Kubernetes API use them. A duration is an `int` of nanoseconds here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

NANOSECOND: Final = 1
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS: Final = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "µs": MICROSECOND,  # U+00B5, micro sign
    "μs": MICROSECOND,  # U+03BC, Greek letter mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
LIMIT: Final = 1 << 63
"""Nanoseconds that Go cannot hold: about 292 years."""
_MAX_LENGTH: Final = 1000
_DIGITS: Final = frozenset("0123456789")


class DurationError(ValueError):
    """The text is not a duration, or the duration is longer than Go can hold (about 292 years)."""


@lru_cache(maxsize=1024)
def parse(text: str) -> int:
    """Return the nanoseconds of a Go duration."""
    sign, rest = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest or len(rest) > _MAX_LENGTH:
        raise _invalid(text)
    total = 0
    while rest:
        nanoseconds, rest = _leading_term(rest, text)
        total += nanoseconds
        if total > LIMIT:
            raise _invalid(text)
    if sign > 0 and total == LIMIT:
        raise _invalid(text)
    return sign * total


def seconds(value: int | str, *, field: str) -> float:
    """Return the seconds of an interval: an integer counts seconds, a string is a Go duration.

    `field` names the field in the error, for example `spec.refreshInterval`.
    """
    if isinstance(value, int):
        if abs(value) > LIMIT // SECOND:
            raise DurationError(f"{field}: {short(str(value))} seconds are longer than 292 years")
        return float(value)
    try:
        return parse(value) / SECOND
    except DurationError as error:
        raise DurationError(f"{field}: {error}") from None


def render(nanoseconds: int) -> str:
    """Return the duration in Go's canonical format."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    if rest < SECOND:
        name, unit = next((name, size) for name, size in _SMALL_UNITS if rest >= size)
        return f"{sign}{_decimal(rest, unit)}{name}"
    minutes, below = divmod(rest, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(below, SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


_SMALL_UNITS: Final = (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", NANOSECOND))


def _leading_term(rest: str, text: str) -> tuple[int, str]:
    """Return the nanoseconds of the first number with its unit, and the rest of the text."""
    whole, rest = _split_digits(rest)
    fraction = ""
    if rest[:1] == ".":
        fraction, rest = _split_digits(rest[1:])
    if not whole and not fraction:
        raise _invalid(text)
    name = _unit_name(rest)
    if not name:
        raise DurationError(f'missing unit in duration "{short(text)}"; units are ns, us, ms, s, m and h')
    unit = _UNITS.get(name)
    if unit is None:
        raise DurationError(
            f'unknown unit "{short(name)}" in duration "{short(text)}"; units are ns, us, ms, s, m and h'
        )
    # 19 digits hold every possible amount; more would only make the conversion slow.
    amount = int(whole or "0") if len(whole.lstrip("0")) <= 19 else LIMIT
    if amount > LIMIT // unit:
        raise _invalid(text)
    nanoseconds = amount * unit + _fraction_of(fraction, unit)
    if nanoseconds > LIMIT:
        raise _invalid(text)
    return nanoseconds, rest[len(name) :]


def _fraction_of(digits: str, unit: int) -> int:
    """Return the nanoseconds of the digits after the point.

    They are computed in floating point as in Go; digits past 63 bits are dropped.
    """
    value, scale = 0, 1.0
    for digit in digits:
        if value > (LIMIT - 1) // 10 or value * 10 + int(digit) > LIMIT:
            break
        value = value * 10 + int(digit)
        scale *= 10
    return int(float(value) * (float(unit) / scale)) if value else 0


def _split_digits(text: str) -> tuple[str, str]:
    end = next((index for index, char in enumerate(text) if char not in _DIGITS), len(text))
    return text[:end], text[end:]


def _unit_name(text: str) -> str:
    end = next((index for index, char in enumerate(text) if char == "." or char in _DIGITS), len(text))
    return text[:end]


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}"


def _invalid(text: str) -> DurationError:
    return DurationError(f'invalid duration "{short(text)}"; write for example "30s", "5m" or "1h30m"')


def short(text: str) -> str:
    """Return the beginning of a text that is too long to quote."""
    return text if len(text) <= 40 else text[:40] + "…"
