"""The jobs of a worker and their results, the renderer that it uses, and how both are serialised.

The bytes go only through the pipe between a process and its workers. A worker processes tenants' templates, so its
results are not trusted: they may contain only values, made of plain data. Jobs may contain anything, because the parent
controls its workers.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from eso_api.values import SecretBytes
from eso_render.engine import Renderer
from eso_render.errors import RenderError
from eso_render.metering import busy_seconds
from gotmpl.run import MissingKey, TemplateLimits

PATIENT_SECONDS: Final = 2.0
"""Processor time limit for all templates of one object together, so that a thousand slow ones cost as much as one."""


_CLOCK_FACTOR: Final = 6


def clock_limit(seconds: float) -> float:
    """Return the limit on the clock for a job that may work for these seconds of processor time."""
    return seconds * _CLOCK_FACTOR


class TextRenderer(ABC):
    """A `RenderText` that can also render with several sets of values."""

    @abstractmethod
    def __call__(self, template: str, values: Mapping[str, bytes], *, name: str) -> bytes: ...

    @abstractmethod
    def groups(self, template: str, groups: Mapping[str, Mapping[str, bytes]], *, name: str) -> bytes:
        """Render with several sets of values."""


class Job(NamedTuple):
    """One job: a module-level function with bound arguments that takes the renderer as `render`."""

    work: Callable[..., Any]
    left: str
    right: str
    missing: MissingKey
    seconds: float
    """The worker ends itself after this much processor time."""


class JobResult(NamedTuple):
    """What a job returned, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


class Budget(TextRenderer):
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


_COLLECTIONS: Final = (set, frozenset, bytearray, complex)


def packed(value: object) -> bytes:
    """Serialise the value. The bytes may contain secrets: they go into the pipe and nowhere else."""
    into = io.BytesIO()
    _Pickler(into, protocol=5).dump(value)
    return into.getvalue()


def unpacked(raw: bytes) -> Any:
    """Deserialise a message of our own parent."""
    return pickle.loads(raw)  # noqa: S301 - a worker trusts its parent


def unpacked_values(raw: bytes) -> Any:
    """Deserialise a worker's message that contains only values; else raise pickle.UnpicklingError."""
    return _Values(io.BytesIO(raw)).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, SecretBytes):
            return SecretBytes, (value.reveal(),)
        if isinstance(value, Exception):
            # The exception's state is copied, because its constructor arguments are unknown.
            return _problem, (type(value), value.args, dict(vars(value)))
        return NotImplemented


class _Values(pickle.Unpickler):
    """Accepts only data classes of modules that are already loaded, and nothing that could execute code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _problem.__name__):
            return _problem
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and _is_data(found):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not a value")


def _is_data(kind: type) -> bool:
    return (
        kind is SecretBytes
        or kind in _COLLECTIONS
        or issubclass(kind, (Exception, Enum))
        or hasattr(kind, "__struct_fields__")
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or dataclasses.is_dataclass(kind)
    )


def _problem(kind: type[Exception], arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error
