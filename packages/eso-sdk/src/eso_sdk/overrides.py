"""That an author's methods are of the sort that the server calls: said when the class is defined, not at every call.

A `def` where an `async def` is due would only be noticed by the first user of the store, as a TypeError without a name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from eso_sdk.backend import Backend

_STREAMS: Final = frozenset({"find", "subscribe"})


def check_overrides(backend: type[Backend[Any]], base: type[Backend[Any]]) -> None:
    """Raises TypeError for the first method that overrides one of the base as another sort of function."""
    for name, original in inspect.getmembers(base, inspect.isroutine):
        method = inspect.unwrap(getattr(backend, name))
        if name.startswith("_") or method is original or not inspect.isroutine(method):
            continue
        if wrong := _wrong(name, method, original):
            raise TypeError(f"{backend.__name__}.{name} {wrong}")


def _wrong(name: str, method: Callable[..., Any], original: Callable[..., Any]) -> str:
    """What is wrong with it, and what to write."""
    if name in _STREAMS:
        plain = inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method)
        return f"must give an async iterator: write `async def {name}(self, ...)` with `yield` in it" if plain else ""
    if inspect.iscoroutinefunction(original):
        due = inspect.iscoroutinefunction(method)
        return "" if due else f"must be awaitable: write `async def {name}(self, ...)`, with `return` and no `yield`"
    return f"is not awaited: write `def {name}(...)` without `async`" if inspect.iscoroutinefunction(method) else ""
