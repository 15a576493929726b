"""Templates, rendered so that those of one object hold up no other object.

    quick    on the event loop, for a twentieth of a second in all: nearly every template of nearly every object
    patient  one after the other, each in a thread beside it, for two seconds in all; an object that needed this goes
             there at once next time

The bounds are of processor time, and count for all templates of an object together: a thousand slow templates are as
bad as one. Thread and event loop share the interpreter: the loop becomes slower meanwhile, but it never stands still.
The threads are those of the event loop: they end with it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Final, TypeVar

from eso_render.clock import busy_seconds
from eso_render.engine import Renderer
from eso_render.errors import RenderError
from eso_render.scopes import RenderText
from gotmpl.run import Limits, MissingKey

T = TypeVar("T")
Seconds = Callable[[], float]

QUICK_SECONDS: Final = 0.05
PATIENT_SECONDS: Final = 2.0
_REMEMBERED: Final = 4096


class Rendering:
    """For one set of delimiters, and one slow object at a time. `seconds` is the calling thread's processor time."""

    def __init__(
        self,
        left: str = "{{",
        right: str = "}}",
        *,
        missing: MissingKey = MissingKey.ERROR,
        seconds: Seconds = busy_seconds,
    ) -> None:
        quick, patient = (Limits(seconds=limit, clock=seconds) for limit in (QUICK_SECONDS, PATIENT_SECONDS))
        self._quick = partial(Renderer(limits=quick, missing=missing).render, left=left, right=right)
        self._patient = partial(Renderer(limits=patient, missing=missing).render, left=left, right=right)
        self._seconds = seconds
        self._patience = asyncio.Lock()
        self._slow: OrderedDict[Hashable, None] = OrderedDict()

    async def run(self, work: Callable[[RenderText], T], of: Hashable) -> T:
        """What `work` makes with the renderer it is given; it may be called twice. `of` is whose templates they are."""
        if of not in self._slow:
            quick = Budget(self._quick, QUICK_SECONDS, self._seconds)
            try:
                made = work(quick)
            except Exception:  # whoever renders may say in words of its own that it failed
                if not quick.spent:
                    raise
            else:
                if not quick.spent:
                    return made
        self._remember(of)
        patient = Budget(self._patient, PATIENT_SECONDS, self._seconds)
        async with self._patience:
            return await asyncio.to_thread(work, patient)

    def _remember(self, of: Hashable) -> None:
        self._slow[of] = None
        self._slow.move_to_end(of)
        if len(self._slow) > _REMEMBERED:
            self._slow.popitem(last=False)


def rendering_of_keys() -> Rendering:
    """Of the templates that rename keys: no setting changes their delimiters, and what is not there is no error."""
    return Rendering(missing=MissingKey.NOTHING)


class Budget:
    """A renderer that stops when all that it rendered took too long together."""

    def __init__(self, render: RenderText, limit: float, seconds: Seconds) -> None:
        self._render = render
        self._limit = limit
        self._seconds = seconds
        self._used = 0.0
        self.spent = False
        """Whether something was not rendered for want of time."""

    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes:
        if self._used >= self._limit:
            self.spent = True
            message = (
                f"unable to execute template at key {name}: the templates took longer than {self._limit:g} seconds"
            )
            raise RenderError(message, phase="execute")
        begun = self._seconds()
        try:
            return self._render(template, values, name=name)
        except RenderError:
            self.spent = self._used + self._seconds() - begun >= self._limit
            raise
        finally:
            self._used += self._seconds() - begun
