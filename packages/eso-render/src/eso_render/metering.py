"""How long the next step may take, asked before it begins.

On the event loop nothing may begin that could take long: one call of a function cannot be stopped, so a look at the
clock afterwards would be too late. If a step could take more than is left of its object's time, it is not begun, and
the whole of the object's work goes to a worker process (`rendering.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eso_render.errors import RenderError

Seconds = Callable[[], float]

QUICK_SECONDS: Final = 0.02
"""What the templates of one object may take on the event loop, all together."""
YAML_NANOS: Final = 2_500
"""The most that a byte of rendered text takes to be read as YAML."""
_LONGEST_PATTERN: Final = 512
_FOREVER: Final = 10**12


class TooSlowError(RenderError):
    """The next step may be slow. Work that meets this is done again in a worker, whatever becomes of the error."""

    def __init__(self) -> None:
        super().__init__("the templates may take longer than the event loop has time for", phase="execute")


class Meter:
    """The time of one object on the event loop."""

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._begun = seconds()
        self.spent = False
        """Whether something was not begun for want of time."""

    def begin(self) -> None:
        """Start over, for another object."""
        self._begun = self._seconds()
        self.spent = False

    def allow(self, nanos: int) -> None:
        """Go on with a step that takes this long at worst; else raise TooSlowError."""
        if self.spent or self._seconds() - self._begun + nanos * 1e-9 > QUICK_SECONDS:
            raise self.over()

    def over(self) -> TooSlowError:
        self.spent = True
        return TooSlowError()


class Metered:
    """What has a meter: the renderer of the event loop."""

    def __init__(self, seconds: Seconds) -> None:
        self.meter = Meter(seconds)


def allow(render: object, nanos: int) -> None:
    """Ask whether a step beside the templates may begin here. Only on the event loop can the answer be no."""
    if isinstance(render, Metered):
        render.meter.allow(nanos)


def pattern_nanos(pattern: str, text: str) -> int:
    """The most that replacing every match takes: RE2 is linear, but each match costs, and begins a new search."""
    if len(pattern) > _LONGEST_PATTERN or "{" in pattern or "\\p" in pattern.lower():
        return _FOREVER  # counted repetitions and classes of Unicode become programs of megabytes
    size, parts = len(text), len(pattern)
    return 100_000 + 10_000 * parts + size * (15_000 + 50 * parts + 2 * size)
