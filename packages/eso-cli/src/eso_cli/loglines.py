"""Log lines of `eso up` and its child processes: JSON for collectors, one readable line for people.

    {"component":"operator","level":"warning","ts":"2026-11-05T09:46:40.250Z","msg":"store became ready","why":"…"}
    2026-11-05T09:46:40.250Z warning operator  store became ready  why="…"

Every process logs one JSON object a line with `level`, `ts` and `msg`; the remaining keys are the variable parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from eso_cli.terminal import escaped
from kubebase.clock import Clock, log_time

_QUIET_LEVELS: Final = ("debug", "info")
_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m", "debug": "\x1b[2m"}
_PLAIN: Final = "\x1b[0m"
_UNITS: Final = (1e9, 1e3)
"""Nanoseconds and milliseconds in a second."""
_FAR: Final = 1e8
"""A number of seconds since 1970 that every current time exceeds; it distinguishes the units of a timestamp."""
_NO_TIME: Final = "-" * len("2026-11-05T09:46:40.250Z")
_OWN: Final = ("component", "level", "ts", "msg")


class LogFormat(StrEnum):
    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


class LogLines:
    """Writes the log of `eso up`. `quiet` drops everything below a warning."""

    def __init__(
        self, write: Callable[[str], None], clock: Clock, *, text: bool, colour: bool = False, quiet: bool = False
    ) -> None:
        self._write = write
        self._clock = clock
        self._text = text
        self._colour = colour
        self._quiet = quiet

    def passed_on(self, component: str, line: str) -> None:
        """Write a line of a child process. A line that is not JSON, such as a crash, is written as it is."""
        entry = _entry(line)
        if entry is None:
            self._write(f"{component} | {escaped(line)}")
        else:
            self._show({"component": component, **entry})

    def info(self, component: str, text: str) -> None:
        self._own(component, "info", text)

    def warning(self, component: str, text: str) -> None:
        self._own(component, "warning", text)

    def _own(self, component: str, level: str, text: str) -> None:
        self._show({"component": component, "level": level, "ts": log_time(self._clock.now()), "msg": text})

    def _show(self, entry: dict[str, Any]) -> None:
        if self._quiet and entry.get("level") in _QUIET_LEVELS:
            return
        self._write(self._readable(entry) if self._text else escaped(json.dumps(entry, ensure_ascii=False)))

    def _readable(self, entry: dict[str, Any]) -> str:
        level = escaped(str(entry.get("level", "info")))
        rest = "".join(f"  {escaped(key)}={_shown(value)}" for key, value in entry.items() if key not in _OWN)
        head = f"{_time(entry.get('ts'))} {level:7} {entry['component']}  {escaped(str(entry.get('msg', '')))}"
        if not self._colour:
            return f"{head}{rest}"
        return f"{_COLOURS.get(level, '')}{head}{_PLAIN}\x1b[2m{rest}{_PLAIN}"


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _time(stamp: object) -> str:
    """Format the time of a line. `ts` has one of the encodings of `--zap-time-encoding`."""
    try:
        match stamp:
            case str():
                moment = datetime.fromisoformat(stamp)
            case bool() | None:
                return _NO_TIME
            case float() | int():
                unit = next((size for size in _UNITS if stamp > size * _FAR), 1.0)
                moment = datetime.fromtimestamp(stamp / unit, UTC)
            case _:
                return _NO_TIME
    except (ValueError, OverflowError, OSError):
        return _NO_TIME
    return log_time(moment)


def _shown(value: object) -> str:
    """Quote values that would be ambiguous. A line stays one line, and a terminal gets no control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isascii() and text.isprintable() and " " not in text and text else json.dumps(text)
