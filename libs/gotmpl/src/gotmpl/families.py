"""Families of functions, imported when a template first uses one of their names.

A program that renders one simple template should not load certificates and time zones. The names are listed in one
place, beside the module; a test keeps both in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module

from gotmpl.signatures import Func

Load = Callable[[], Mapping[str, Func]]


def family(module: str) -> Load:
    """Return a function that loads the table FUNCTIONS of a module."""

    def load() -> Mapping[str, Func]:
        table: Mapping[str, Func] = import_module(module).FUNCTIONS
        return table

    return load


class LazyFunctions(Mapping[str, Func]):
    """All names at once; functions load on first use. A later family overrides an earlier one."""

    def __init__(self, families: Iterable[tuple[str, Load]]) -> None:
        self._sources: dict[str, Load] = {name: load for names, load in families for name in names.split()}
        self._loaded: dict[str, Func] = {}

    def __getitem__(self, name: str) -> Func:
        known = self._loaded.get(name)
        if known is not None:
            return known
        load = self._sources[name]
        table = load()
        mine = (other for other, source in self._sources.items() if source is load)
        self._loaded.update((other, table[other]) for other in mine)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
