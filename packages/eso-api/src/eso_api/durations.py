"""Lengths of time as Go writes them: `1h0m0s`, `250ms`, `-1.5h`.

Parsing and formatting follow Go's time.ParseDuration and Duration.String to the digit, because existing manifests and
existing status fields use them. A duration is an `int` of nanoseconds here; `seconds()` is what schedulers want.
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
_LIMIT: Final = 1 << 63
_DIGITS: Final = frozenset("0123456789")


class DurationError(ValueError):
    """A text that is no duration, or one longer than Go can hold (about 292 years)."""


@lru_cache(maxsize=1024)
def parse(text: str) -> int:
    """Nanoseconds of a Go duration."""
    sign, rest = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise _invalid(text)
    total = 0
    while rest:
        nanoseconds, rest = _leading_term(rest, text)
        total += nanoseconds
        if total > _LIMIT:
            raise _invalid(text)
    if sign > 0 and total == _LIMIT:
        raise _invalid(text)
    return sign * total


def render(nanoseconds: int) -> str:
    """The one spelling Go gives this duration."""
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


def seconds(value: int | str, *, field: str) -> float:
    """Seconds of an interval as users write it: an integer counts seconds, a string is a Go duration.

    `field` names the field in the error, for example `spec.refreshInterval`.
    """
    if isinstance(value, int):
        if abs(value) > _LIMIT // SECOND:
            raise DurationError(f"{field}: {_short(str(value))} seconds are longer than 292 years")
        return float(value)
    try:
        return parse(value) / SECOND
    except DurationError as error:
        raise DurationError(f"{field}: {error}") from None


_SMALL_UNITS: Final = (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", NANOSECOND))


def _leading_term(rest: str, text: str) -> tuple[int, str]:
    """Nanoseconds of the first number with its unit, and what follows it."""
    whole, rest = _split_digits(rest)
    fraction = ""
    if rest[:1] == ".":
        fraction, rest = _split_digits(rest[1:])
    if not whole and not fraction:
        raise _invalid(text)
    name = _unit_name(rest)
    if not name:
        raise DurationError(f'missing unit in duration "{_short(text)}"; units are ns, us, ms, s, m and h')
    unit = _UNITS.get(name)
    if unit is None:
        raise DurationError(
            f'unknown unit "{_short(name)}" in duration "{_short(text)}"; units are ns, us, ms, s, m and h'
        )
    # 19 digits hold every possible amount; more would only make the conversion slow.
    amount = int(whole or "0") if len(whole.lstrip("0")) <= 19 else _LIMIT
    if amount > _LIMIT // unit:
        raise _invalid(text)
    nanoseconds = amount * unit + _fraction_of(fraction, unit)
    if nanoseconds > _LIMIT:
        raise _invalid(text)
    return nanoseconds, rest[len(name) :]


def _fraction_of(digits: str, unit: int) -> int:
    """Nanoseconds of the digits behind the point, in floating point as Go does it; digits past 63 bits are dropped."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (_LIMIT - 1) // 10 or value * 10 + int(digit) > _LIMIT:
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
    return DurationError(f'invalid duration "{_short(text)}"; write for example "30s", "5m" or "1h30m"')


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
