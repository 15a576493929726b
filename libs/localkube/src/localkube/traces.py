"""The log of the server: one JSON object a line. Of unexpected exceptions it has type and place, never the message.

Messages and local variables of this server can hold secrets, and the usual formatters print both.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from kubebase.clock import Clock, log_time

_SHOWN: Final = 12


def report_defect(log: Any, event: str, problem: BaseException, **context: str) -> None:
    """Log the type of an exception and the innermost places of its traceback, outermost first."""
    frames = traceback.extract_tb(problem.__traceback__)[-_SHOWN:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    log.error(event, error=type(problem).__name__, where=where, **context)


@contextmanager
def log_lines_to(write: Callable[[str], object], clock: Clock) -> Iterator[None]:
    """Let every logger of the process write lines as the other processes of the project do, until the end."""

    def stamped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"level": event.pop("level", "info"), "ts": log_time(clock.now()), **event}

    before = structlog.get_config()
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            stamped,
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(serializer=lambda event, **_: json.dumps(event, ensure_ascii=False)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: _Lines(write),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


class _Lines:
    """What structlog calls with a finished line, whatever its level is."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = write
