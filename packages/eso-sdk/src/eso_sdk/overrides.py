"""Check the methods of an author's class when it is defined: coroutine, generator or plain function.

Otherwise a `def` instead of an `async def` would fail only at the first call, as a TypeError that does not name the
method.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from eso_sdk.backend import Backend

_STREAMS: Final = frozenset({"find", "subscribe"})


def check_overrides(backend: type[Backend[Any]], base: type[Backend[Any]]) -> None:
    """Raise TypeError for the first overridden method that is of another sort than the method of the base."""
    for name, original in inspect.getmembers(base, inspect.isroutine):
        method = inspect.unwrap(getattr(backend, name))
        if name.startswith("_") or method is original or not inspect.isroutine(method):
            continue
        if wrong := _wrong(name, method, original):
            raise TypeError(f"{backend.__name__}.{name} {wrong}")


def _wrong(name: str, method: Callable[..., Any], original: Callable[..., Any]) -> str:
    """Return the problem and its correction; empty if nothing is wrong."""
    if name in _STREAMS:
        plain = inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method)
        return f"must give an async iterator: write `async def {name}(self, ...)` with `yield` in it" if plain else ""
    if inspect.iscoroutinefunction(original):
        due = inspect.iscoroutinefunction(method)
        return "" if due else f"must be awaitable: write `async def {name}(self, ...)`, with `return` and no `yield`"
    return f"is not awaited: write `def {name}(...)` without `async`" if inspect.iscoroutinefunction(method) else ""
