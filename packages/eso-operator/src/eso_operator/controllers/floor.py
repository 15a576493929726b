"""The minimum refresh interval: shorter intervals are raised to it, and the object's condition reports this.

The spec stays unchanged and valid. An interval of 0, which means never, is not short.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from eso_api import durations
from eso_api.durations import DurationError
from eso_api.externalsecret import ExternalSecret
from eso_api.pushsecret import PushSecret

SHORTEST_INTERVAL: Final = 1.0

Refreshed = TypeVar("Refreshed", ExternalSecret, PushSecret)


def paced(found: Refreshed, shortest: float) -> Refreshed:
    """Return the object with its effective interval: its own, or the minimum."""
    if not is_too_short(found.spec.refresh_interval, shortest):
        return found
    spec = msgspec.structs.replace(found.spec, refresh_interval=_spelled(shortest))
    return msgspec.structs.replace(found, spec=spec)


def is_too_short(interval: int | str, shortest: float) -> bool:
    try:
        return 0 < durations.seconds(interval, field="spec.refreshInterval") < shortest
    except DurationError:
        return False


def floor_note(interval: int | str, shortest: float) -> str:
    """Return the note for the condition; empty if the interval is long enough."""
    if not is_too_short(interval, shortest):
        return ""
    used = _spelled(shortest)
    return (
        f"spec.refreshInterval {interval} is shorter than this operator allows: {used} is used (--min-refresh-interval)"
    )


def _spelled(seconds: float) -> str:
    return durations.render(int(seconds * durations.SECOND))
