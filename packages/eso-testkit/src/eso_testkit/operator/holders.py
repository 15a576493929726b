"""Finds what holds the key of an object, among everything that an operator reaches in memory.

Coroutines, frames and the event loop are work in progress and not memory. A `LazyHeap` drops outdated entries lazily,
so only its live entries count. Recorded events outlive the object they are about, so recorders do not count.
"""

from __future__ import annotations

import asyncio
import gc
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

from kubebase.meta import ObjectKey
from kuberun.events import EventRecorder
from kuberun.workqueue import LazyHeap

_SKIPPED = (
    type,
    types.ModuleType,
    types.FrameType,
    types.CoroutineType,
    types.GeneratorType,
    types.AsyncGeneratorType,
    types.CodeType,
    asyncio.AbstractEventLoop,
    asyncio.Future,
    EventRecorder,
)


def holders_of(key: ObjectKey, root: object) -> list[str]:
    """Return the path from the root to each holder of the key, as the types on the way."""
    found: list[str] = []
    parents: dict[int, tuple[object, object | None]] = {id(root): (root, None)}
    line = deque([root])
    while line:
        holder = line.popleft()
        for child in _children(holder):
            if isinstance(child, ObjectKey) and child == key:
                found.append(_path(holder, parents))
            elif id(child) not in parents and not isinstance(child, _SKIPPED):
                parents[id(child)] = (child, holder)
                line.append(child)
    return sorted(set(found))


def _children(holder: Any) -> Iterable[object]:
    match holder:
        case types.FunctionType():
            # Not its globals: modules hold everything.
            return (*(holder.__closure__ or ()), *(holder.__defaults__ or ()), *(holder.__kwdefaults__ or {}).values())
        case LazyHeap():
            return holder._live.keys()  # noqa: SLF001 - the outdated entries are in the same object
        case _:
            return gc.get_referents(holder)


def _path(holder: object, parents: dict[int, tuple[object, object | None]]) -> str:
    names: list[str] = []
    step: object | None = holder
    while step is not None:
        names.append(type(step).__name__)
        step = parents[id(step)][1]
    return " < ".join(names)
