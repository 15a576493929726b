"""Work with templates, done so that nobody's work holds up another's.

quick   on the event loop, where every step is asked beforehand how long it may take: nearly every object
slow    the whole of it again in a worker process, which is killed at its deadline
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
    """For one set of delimiters. The workers are shared by all of the process."""

    def __init__(
        self, workers: Workers, left: str = "{{", right: str = "}}", *, missing: MissingKey = MissingKey.ERROR
    ) -> None:
        self._workers = workers
        self._delimiters = left, right
        self._missing = missing
        self._quick = MeteredRenderer(left, right, missing=missing)

    async def run(self, work: Callable[..., T], share: str) -> T:
        """What `work` makes with the renderer it is given as `render`; it may be called twice, so it changes nothing.

        It is a function of a module, with its arguments bound (`functools.partial`): it may have to travel to another
        process, which imports the module and all that the module imports. `share` is the namespace it is for.
        """
        meter = self._quick.meter
        meter.begin()
        try:
            made = work(render=self._quick)
        except Exception:  # whoever renders may say in words of its own that it failed
            if not meter.spent:
                raise
        else:
            if not meter.spent:
                return made
        job = Job(work, *self._delimiters, self._missing, self._workers.seconds)
        slow: T = await self._workers.run(job, share)
        return slow


def rendering_of_keys(workers: Workers) -> Rendering:
    """Of the templates that rename keys: no setting changes their delimiters, and what is not there is no error."""
    return Rendering(workers, missing=MissingKey.NOTHING)
