"""Intervals as manifests have them: Go durations, which `kubebase.durations` parses, or whole seconds."""

from __future__ import annotations

from kubebase.durations import (
    HOUR,
    LIMIT,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    DurationError,
    parse,
    render,
    short,
)

__all__ = ["HOUR", "MICROSECOND", "MILLISECOND", "MINUTE", "SECOND", "DurationError", "parse", "render", "seconds"]


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
