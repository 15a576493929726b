"""What a worker is asked to do, what it answers, and the renderer it does it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from eso_render.clock import busy_seconds
from eso_render.engine import Renderer
from eso_render.errors import RenderError
from gotmpl.run import Limits, MissingKey

PATIENT_SECONDS: Final = 2.0
"""Processor time that all templates of one object may take together, so that a thousand slow ones are as bad as one."""
HEADER: Final = Struct(">Q")
"""The length of a message, before each."""
READY: Final = b"ready"
"""The first message of a worker."""


class Renders(Protocol):
    """`RenderText`, and the same over several sets of values."""

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes: ...

    def groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str) -> bytes: ...


class Job(NamedTuple):
    """One piece of work: a function of a module, its arguments bound, that takes the renderer as `render`."""

    work: Callable[..., Any]
    left: str
    right: str
    missing: MissingKey
    seconds: float
    """After this many the worker ends itself."""


class Answer(NamedTuple):
    made: Any = None
    problem: Exception | None = None


class Budget:
    """A renderer that stops when all that it rendered took too long together."""

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
        """The same over several sets of values."""
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
    """Kept for the next job: it remembers the templates it parsed."""
    return Renderer(limits=Limits(seconds=limit, clock=seconds), missing=missing)
