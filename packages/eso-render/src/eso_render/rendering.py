"""Render templates so that slow work of one namespace does not delay others.

quick   on the event loop, where every step is checked beforehand: nearly every object
slow    everything again in a worker process, which is killed at its deadline
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eso_render.jobs import Job
from eso_render.quick import MeteredRenderer
from eso_render.workers import Workers
from gotmpl.run import MissingKey

T = TypeVar("T")


class Rendering:
    """Rendering with one set of delimiters. All instances share the workers of the process."""

    def __init__(
        self, workers: Workers, left: str = "{{", right: str = "}}", *, missing: MissingKey = MissingKey.ERROR
    ) -> None:
        self._workers = workers
        self._delimiters = left, right
        self._missing = missing
        self._quick = MeteredRenderer(left, right, missing=missing)

    async def run(self, work: Callable[..., T], share: str) -> T:
        """Run `work` with a renderer passed as `render`, and return its result. It may run twice, so it must be pure.

        `work` is a module-level function with bound arguments (`functools.partial`): it may be sent to another process,
        which imports its module. `share` is the namespace it is for.
        """
        meter = self._quick.meter
        meter.begin()
        try:
            made = work(render=self._quick)
        except Exception:  # the work may wrap the error in its own
            if not meter.spent:
                raise
        else:
            if not meter.spent:
                return made
        job = Job(work, *self._delimiters, self._missing, self._workers.seconds)
        slow: T = await self._workers.run(job, share)
        return slow


def rendering_of_keys(workers: Workers) -> Rendering:
    """Return a rendering for templates that rename keys: default delimiters, and missing fields are not errors."""
    return Rendering(workers, missing=MissingKey.NOTHING)
