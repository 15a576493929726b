"""The log of the process: one JSON object for each line, on standard error, with the keys that log collectors know.

    {"level":"info","ts":1762300000.25,"msg":"store became ready","controller":"secretstore","key":"team/vault"}

`msg` is constant text; the other keys have the variable parts. Of libraries that use the standard `logging`, warnings
and errors are logged by name and place, without their text, which may contain a secret. The same holds for uncaught
errors in any thread or in a finalizer, which Python would print with a traceback.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final, TextIO

import structlog

from eso_api.values import SecretBytes
from eso_operator.telemetry.settings import LogLevel, LogSettings, TimeEncoding
from kubebase.clock import Clock, log_time
from kubebase.meta import ObjectKey
from kuberun.controller import place_of
from kuberun.redaction import bounded

MAX_LOG_TEXT_BYTES: Final = 4096
_MAX_ENTRIES: Final = 200
_MAX_DEPTH: Final = 4
_MASK: Final = "<secret>"


def printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Print names, numbers and bounded texts as they are, and any other value by its type. A structlog processor."""
    for name, value in event.items():
        event[name] = _printable(value, _MAX_DEPTH)
    return event


def _printable(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return bounded(str(value), MAX_LOG_TEXT_BYTES)
        case ObjectKey():
            return str(value)
        case SecretBytes():
            return _MASK
        case Mapping() if depth:
            return {str(key): _printable(member, depth - 1) for key, member in list(value.items())[:_MAX_ENTRIES]}
        case list() | tuple() | set() | frozenset() if depth:
            return [_printable(member, depth - 1) for member in list(value)[:_MAX_ENTRIES]]
        case _:
            return f"<{type(value).__name__}>"


_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.DPANIC: logging.CRITICAL,
    LogLevel.PANIC: logging.CRITICAL,
    LogLevel.FATAL: logging.CRITICAL,
}

Event = MutableMapping[str, Any]


def configure(settings: LogSettings, clock: Clock, stream: TextIO = sys.stderr) -> None:
    """Configure every logger of the process. Call it before the first log line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            printable,
            _stamped(settings.time, clock),
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(serializer=_compact),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.level]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler(level=logging.WARNING)], level=logging.WARNING, force=True)


def log_uncaught_errors() -> None:
    """Log uncaught errors and warnings without their texts. Call it in the main process only."""
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable
    threading.excepthook = _uncaught_in_thread


def timestamp(moment: datetime, encoding: TimeEncoding) -> float | int | str:
    """Return the time in an encoding of `--zap-time-encoding`."""
    match encoding:
        case TimeEncoding.EPOCH:
            return moment.timestamp()
        case TimeEncoding.MILLIS:
            return moment.timestamp() * 1000
        case TimeEncoding.NANO:
            return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
        case TimeEncoding.ISO8601:
            return log_time(moment)
        case TimeEncoding.RFC3339:
            return f"{moment:%Y-%m-%dT%H:%M:%S}Z"
        case TimeEncoding.RFC3339NANO:
            fraction = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
            return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


class _LibraryHandler(logging.Handler):
    """Logs a record of a library by level and place, without its text."""

    def emit(self, record: logging.LogRecord) -> None:
        place = f"{PurePath(record.pathname).name}:{record.lineno}"
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        log = structlog.get_logger(record.name)
        log.log(record.levelno, "a library reports a problem", library=record.name, place=place, error=error)


def _uncaught(_type: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    _log_uncaught("the process ends with an error", error)


def _uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    _log_uncaught("a thread ends with an error", found.exc_value)


def _unraisable(found: Any) -> None:
    _log_uncaught("an error could not be raised", found.exc_value)


def _log_uncaught(what: str, error: BaseException | None) -> None:
    """Log an error by its type and place, without its text."""
    if isinstance(error, SystemExit):
        return
    log = structlog.get_logger(__name__)
    log.error(what, error=type(error).__name__, place="unknown" if error is None else place_of(error))


def _stamped(encoding: TimeEncoding, clock: Clock) -> Callable[[Any, str, Event], Event]:
    def stamped(_: Any, __: str, event: Event) -> Event:
        event["ts"] = timestamp(clock.now(), encoding)
        return event

    return stamped


def _compact(event: Any, **_: Any) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
