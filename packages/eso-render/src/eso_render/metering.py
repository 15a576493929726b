"""Clocks, and the decision before a step starts whether it may take too long.

Slow steps must not start on the event loop: a function call cannot be interrupted, so checking the clock afterwards
would be too late. If a step could exceed the remaining time of its object, it does not start, and all work of the
object moves to a worker process (`rendering.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time, time_ns
from typing import Final

from eso_render.errors import RenderError

wall_nanos = time_ns
"""Nanoseconds since 1970, for the template function `now`."""

busy_seconds = thread_time
"""Processor time of the calling thread, for the time limit of a render: a busy machine does not shorten it."""


Seconds = Callable[[], float]

QUICK_SECONDS: Final = 0.02
"""Time limit on the event loop for all templates of one object together."""
YAML_NANOS: Final = 2_500
"""Upper bound for reading a byte of rendered text as YAML."""
_LONGEST_PATTERN: Final = 512
_FOREVER: Final = 10**12


class TooSlowError(RenderError):
    """The next step may be slow. The work is repeated in a worker, whatever happens to this error."""

    def __init__(self) -> None:
        super().__init__("the templates may take longer than the event loop has time for", phase="execute")


class Meter:
    """The time budget of one object on the event loop."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._begun = seconds()
        self.spent = False
        """Whether a step was refused for lack of time."""

    def begin(self) -> None:
        """Start the budget of another object."""
        self._begun = self._seconds()
        self.spent = False

    def allow(self, nanos: int) -> None:
        """Permit a step that takes at most this long; else raise TooSlowError."""
        if self.spent or self._seconds() - self._begun + nanos * 1e-9 > QUICK_SECONDS:
            raise self.over()

    def over(self) -> TooSlowError:
        self.spent = True
        return TooSlowError()


class Metered:
    """A renderer with a meter: that of the event loop."""

    def __init__(self, seconds: Seconds) -> None:
        self.meter = Meter(seconds)


def allow(render: object, nanos: int) -> None:
    """Check whether a step outside the templates may start here. It can be refused only on the event loop."""
    if isinstance(render, Metered):
        render.meter.allow(nanos)


def pattern_nanos(pattern: str, text: str) -> int:
    """Return an upper bound for replacing every match: RE2 is linear, but each match costs and starts a new search."""
    if len(pattern) > _LONGEST_PATTERN or "{" in pattern or "\\p" in pattern.lower():
        return _FOREVER  # counted repetitions and Unicode classes compile to programs of megabytes
    size, parts = len(text), len(pattern)
    return 100_000 + 10_000 * parts + size * (15_000 + 50 * parts + 2 * size)
