"""Templates and paths of users, computed so that no call holds up another (`eso_render.rendering`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar

from eso_render.errors import RenderError
from eso_render.rendering import Rendering
from eso_render.workers import Workers, WorkerSettings
from eso_sdk.errors import invalid_config

T = TypeVar("T")

_MEMORY: Final = 96 * 2**20
"""Memory of each worker: the chart gives a provider less than the operator."""


async def computed(work: Callable[..., T], namespace: str, *, field: str) -> T:
    """Return the result of `work`, a function of `filling.py`. If it takes too long, the error names `field`."""
    try:
        return await _rendering().run(work, namespace)
    except RenderError as problem:
        raise invalid_config(field, str(problem)) from None


@cache
def _rendering() -> Rendering:
    """Return the one rendering of the process, so that there is one set of worker processes."""
    return Rendering(Workers(WorkerSettings(memory=_MEMORY)))
