"""Decide which remote keys a find matches, for backends that cannot search themselves.

A tenant writes the pattern, and one process serves many tenants. RE2 needs time in proportion to the compiled pattern
times the key. A pattern that compiles to more than `_MAX_MEMORY` is therefore refused: with RE2's default of 8 MiB, one
key could take minutes. Between keys, `accepts` lets other calls run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from eso_sdk.errors import invalid_request
from eso_wire.values import FindQuery
from kubebase.patterns import problem_in

if TYPE_CHECKING:
    import re2

SLICE_STEPS: Final = 1_000_000
"""Instructions of the pattern times characters of the keys: at worst some 20 ms of work."""
_MAX_MEMORY: Final = 256 * 1024


@cache
def _options() -> re2.Options:
    import re2

    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    return options


class Matcher:
    """A compiled query. Patterns are RE2, as in Go: no look-around, no catastrophic backtracking."""

    def __init__(self, query: FindQuery) -> None:
        import re2  # not with the module: many providers are never asked to find anything

        try:
            self._name = re2.compile(query.name_regexp, _options())
        except re2.error as failed:
            if b"too large" in failed.args[0]:
                raise invalid_request(
                    "find.name.regexp is too large once its repetitions are expanded; use smaller counts in {n,m}, or *"
                ) from None
            problem = problem_in(failed)
            raise invalid_request(f"find.name.regexp is not a regular expression (RE2): {problem}") from None
        self._path = query.path
        self._tags = query.tags
        self._steps = 0

    async def accepts(self, key: str, tags: Mapping[str, str] | None = None) -> bool:
        """Like `matches`, but let other calls run after each slice of work, and count the key. For loops over keys."""
        if (considered := CONSIDERED.get()) is not None:
            considered.keys += 1
        self._steps += self._name.programsize * len(key)
        if self._steps > SLICE_STEPS:
            self._steps = 0
            await asyncio.sleep(0)  # noqa: TID251 - no time passes: yields to other calls
        return self.matches(key, tags)

    def matches(self, key: str, tags: Mapping[str, str] | None = None) -> bool:
        """Return whether a key matches: path as prefix, pattern anywhere in the key, all tags with these values."""
        carried = tags or {}
        return (
            key.startswith(self._path)
            and self._name.search(key) is not None
            and all(carried.get(name) == value for name, value in self._tags.items())
        )


@dataclass(slots=True)
class Considered:
    """The count of one search."""

    keys: int = 0


CONSIDERED: Final[ContextVar[Considered | None]] = ContextVar("considered", default=None)
"""The count of the search in progress; `Matcher.accepts` adds to it.

A context variable, because authors make the matcher, from a query of their own.
"""
