"""Log lines of `eso up` and its child processes: JSON for collectors, one readable line for people.

    {"component":"operator","level":"warning","ts":"2026-11-05T09:46:40.250Z","msg":"store became ready","why":"…"}
    2026-11-05T09:46:40.250Z warning operator  store became ready  why="…"

Every process logs one JSON object a line with `level`, `ts` and `msg`; the remaining keys are the variable parts. All
lines go to a file. The user sees those of `eso up` itself and, of its children, errors: the state of objects is in
their conditions, which `eso status` shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Any, Final

from eso_cli.terminal import escaped
from kubebase.clock import Clock, log_time

_ERRORS: Final = ("error", "critical", "fatal")
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024
"""A log file of this size is renamed to end in `.1`, which replaces the one before."""
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


class Shown(Enum):
    """The lines that the user sees."""

    QUIET = auto()
    """Problems of the start and errors."""
    USUAL = auto()
    """What starts, too."""
    ALL = auto()


class LogFile:
    """A file with all lines as JSON, readable for its owner only; bounded."""

    def __init__(self, path: Path, limit: int = _MAX_FILE_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._descriptor: int | None = None
        self._size = 0

    def write(self, line: str) -> None:
        """Append a line. A line that cannot be written is lost: a full disk must not end what is logged."""
        try:
            self._size += os.write(self._opened(), f"{line}\n".encode(errors="replace"))
        except OSError:
            return

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is not None and self._size < self._limit:
            return self._descriptor
        self.close()
        if self._path.exists() and self._path.stat().st_size >= self._limit:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        return self._descriptor


class LogLines:
    """Writes the log of `eso up`: everything with `keep`, and what the user shall see with `write`."""

    def __init__(
        self,
        write: Callable[[str], None],
        clock: Clock,
        *,
        text: bool,
        colour: bool = False,
        shown: Shown = Shown.USUAL,
        keep: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._write = write
        self._clock = clock
        self._text = text
        self._colour = colour
        self._shown = shown
        self._keep = keep

    def passed_on(self, component: str, line: str) -> None:
        """Write a line of a child process. A line that is not JSON, such as a crash, is written as it is."""
        entry = _entry(line)
        if entry is None:
            self._keep(f"{component} | {line}")
            self._write(f"{component} | {escaped(line)}")
        else:
            self._log({"component": component, **entry}, show=entry.get("level") in _ERRORS)

    def info(self, component: str, text: str) -> None:
        self._own(component, "info", text, show=self._shown is not Shown.QUIET)

    def warning(self, component: str, text: str) -> None:
        self._own(component, "warning", text, show=True)

    def _own(self, component: str, level: str, text: str, *, show: bool) -> None:
        entry = {"component": component, "level": level, "ts": log_time(self._clock.now()), "msg": text}
        self._log(entry, show=show)

    def _log(self, entry: dict[str, Any], *, show: bool) -> None:
        line = json.dumps(entry, ensure_ascii=False)
        self._keep(line)
        if show or self._shown is Shown.ALL:
            self._write(self._readable(entry) if self._text else escaped(line))

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
