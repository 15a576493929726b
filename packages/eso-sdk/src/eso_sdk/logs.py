"""Log lines of a provider process: one JSON object each, on standard error, with a constant `msg` and bound keys.

    {"level":"info","ts":"2030-01-01T00:00:00.000Z","msg":"call handled","method":"GetSecrets","code":"OK", ...}

Nothing else is printed. Messages of libraries and crashes are logged with type and place only: their texts may contain
secrets. A field named `traceback` may be longer than others (`redaction.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import MutableMapping
from pathlib import PurePath
from types import TracebackType
from typing import Any, Final, TextIO

import structlog

from eso_sdk.redaction import MAX_TRACEBACK, seat
from kubebase.clock import Clock, log_time

_MAX_TEXT: Final = 512


def configure(clock: Clock, stream: TextIO = sys.stderr) -> None:
    """Configure every logger and exception hook of the process. Call this before anything logs."""

    def stamped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"level": event.pop("level", "info"), "ts": log_time(clock.now()), **event}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            _printable,
            stamped,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(serializer=_compact),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_LibraryHandler(level=logging.WARNING)], level=logging.WARNING, force=True)
    sys.excepthook = _log_crash
    sys.unraisablehook = threading.excepthook = _log_thread_crash


def loop_exception_handler(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of background work, which asyncio would print with a traceback."""
    exc = context.get("exception")
    where = seat(exc) if isinstance(exc, BaseException) else "unknown"
    structlog.get_logger("eso_sdk").error("background work failed", error=where)


class _LibraryHandler(logging.Handler):
    """Logs the place and severity of a library's message, not its text."""

    def emit(self, record: logging.LogRecord) -> None:
        place = f"{PurePath(record.pathname).name}:{record.lineno}"
        error = seat(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ""
        log = structlog.get_logger(record.name)
        log.log(record.levelno, "a library reports a problem", library=record.name, place=place, error=error)


def _log_crash(_type: type[BaseException], exc: BaseException, _trace: TracebackType | None) -> None:
    structlog.get_logger("eso_sdk").error("the process ends with an error", error=seat(exc))


def _log_thread_crash(found: Any) -> None:
    """Log an error of a thread, or one that cannot be raised because it occurred during garbage collection."""
    if found.exc_value is not None and not isinstance(found.exc_value, SystemExit):
        structlog.get_logger("eso_sdk").error("work aside failed", error=seat(found.exc_value))


def _printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Print names and numbers; replace everything else by its type."""
    for name, value in event.items():
        match value:
            case None | bool() | int() | float():
                continue
            case str():
                event[name] = value[: MAX_TRACEBACK if name == "traceback" else _MAX_TEXT]
            case _:
                event[name] = f"<{type(value).__name__}>"
    return event


def _compact(event: Any, **_: Any) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
