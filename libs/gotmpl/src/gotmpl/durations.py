"""Go's time.Duration as text: `1h30m`."""

from __future__ import annotations

import re

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
