"""Logging of unexpected exceptions: their type and place, never their message or local variables.

Messages and local variables of this server can hold secrets, and the usual formatters print both.
"""

from __future__ import annotations

import traceback
from typing import Any, Final

_SHOWN: Final = 12


def report_defect(log: Any, event: str, problem: BaseException, **context: str) -> None:
    """Log the type of an exception and the innermost places of its traceback, outermost first."""
    frames = traceback.extract_tb(problem.__traceback__)[-_SHOWN:]
    where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
    log.error(event, error=type(problem).__name__, where=where, **context)
