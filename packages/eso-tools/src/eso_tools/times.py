"""Times of the API for people: how far away, and the time of day. Pure."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Final

from kubebase.clock import parse_rfc3339

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def distance(text: str, now: datetime) -> str:
    """Return `4 min ago` or `in 4 min`; empty for a time that cannot be read."""
    try:
        seconds = (parse_rfc3339(text) - now).total_seconds()
    except (ValueError, TypeError):
        return ""
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def moment(text: str, now: datetime) -> str:
    """Return a time, and its distance from now."""
    far = distance(text, now)
    return f"{text} ({far})" if far else text


def time_of_day(text: str, now: datetime, zone: tzinfo | None = None) -> str:
    """Return `12:04`, with the date if that is another day; in the zone of this machine if none is given."""
    try:
        moment, today = parse_rfc3339(text).astimezone(zone), now.astimezone(zone)
    except (ValueError, TypeError):
        return text
    return f"{moment:%H:%M}" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M}"


def span(seconds: float) -> str:
    """Return `4 min`: a duration in its largest unit."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
