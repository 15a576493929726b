"""The origin of an exception for log lines and error messages, without its text.

    seat(exc, packages)  ->  "KeyError at provider.py:41", the author's own line if there is one
    traceback_of(exc)    ->  every frame with its line of source, and the types of the exceptions

The text of an exception may quote anything that author code holds: a credential, the spec, a value from the backend. A
list of known secrets cannot cover the last one. So the text is omitted, and source lines are shown instead.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Final

FAILURES: Final = (Exception, SystemExit)
"""What author code may raise. A library that calls `sys.exit` fails its call, not the process and its other calls."""
MAX_TRACEBACK: Final = 8 * 1024
_MAX_FRAMES: Final = 20
_MAX_LINKS: Final = 4


def seat(exc: BaseException, packages: frozenset[str] = frozenset()) -> str:
    """Name the type and location of an exception: the innermost line of these packages, else the innermost line."""
    frames = list(_frames(exc))
    if not frames:
        return type(exc).__name__
    own = [frame for frame in frames if frame.tb_frame.f_globals.get("__name__", "").partition(".")[0] in packages]
    last = (own or frames)[-1]
    return f"{type(exc).__name__} at {PurePath(last.tb_frame.f_code.co_filename).name}:{last.tb_lineno}"


def traceback_of(exc: BaseException) -> str:
    """List frames and types of an exception and its causes, the cause first. Long lists lose their beginning."""
    parts: list[str] = []
    for link in reversed(list(_links(exc))):
        frames = traceback.extract_tb(link.__traceback__, limit=-_MAX_FRAMES)
        parts += [*traceback.format_list(frames), f"{type(link).__name__}\n"]
    return "".join(parts)[-MAX_TRACEBACK:]


def _frames(exc: BaseException) -> Iterator[TracebackType]:
    trace = exc.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _links(exc: BaseException) -> Iterator[BaseException]:
    """Yield the exception, then its cause, and so on, up to a limit."""
    link: BaseException | None = exc
    for _ in range(_MAX_LINKS):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
