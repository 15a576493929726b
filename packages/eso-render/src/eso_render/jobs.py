"""The jobs and answers of a worker, and the renderer that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from eso_render.clock import busy_seconds
from eso_render.engine import Renderer
from eso_render.errors import RenderError
from gotmpl.run import MissingKey, TemplateLimits

PATIENT_SECONDS: Final = 2.0
"""Processor time limit for all templates of one object together, so that a thousand slow ones cost as much as one."""


_CLOCK_FACTOR: Final = 6


def clock_limit(seconds: float) -> float:
    """Return the limit on the clock for a job that may work for these seconds of processor time."""
    return seconds * _CLOCK_FACTOR


class Renders(Protocol):
    """`RenderText`, plus rendering with several sets of values."""

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes: ...

    def groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str) -> bytes: ...


class Job(NamedTuple):
    """One job: a module-level function with bound arguments that takes the renderer as `render`."""

    work: Callable[..., Any]
    left: str
    right: str
    missing: MissingKey
    seconds: float
    """The worker ends itself after this much processor time."""


class Answer(NamedTuple):
    made: Any = None
    problem: Exception | None = None


class Budget:
    """A renderer that stops when all its renders together have taken too long."""

    def __init__(
        self, job: Job, *, limit: float = PATIENT_SECONDS, seconds: Callable[[], float] = busy_seconds
    ) -> None:
        self._renderer = _renderer(job.missing, limit, seconds)
        self._delimiters = {"left": job.left, "right": job.right}
        self._limit = limit
        self._seconds = seconds
        self._used = 0.0

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes:
        return self._timed(name, lambda: self._renderer.render(template, values, name=name, **self._delimiters))

    def groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str) -> bytes:
        """Render with several sets of values."""
        return self._timed(name, lambda: self._renderer.render_groups(template, groups, name=name))

    def _timed(self, name: str, render: Callable[[], bytes]) -> bytes:
        if self._used >= self._limit:
            message = (
                f"unable to execute template at key {name}: the templates took longer than {self._limit:g} seconds"
            )
            raise RenderError(message, phase="execute")
        begun = self._seconds()
        try:
            return render()
        finally:
            self._used += self._seconds() - begun


@lru_cache(maxsize=4)
def _renderer(missing: MissingKey, limit: float, seconds: Callable[[], float]) -> Renderer:
    """Return a cached renderer, because it caches the templates that it parsed."""
    return Renderer(limits=TemplateLimits(seconds=limit, clock=seconds), missing=missing)
