"""Functions as templates see them: a name, Go parameter types and a Python callable. Families load on first use.

As in Go, types convert constants of the source when the template is compiled, and check values when the function is
called.

Plain classes with slots, not dataclasses, which take longer to import, and every call uses this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypeVar

from gotmpl.values import NilSlice, Uint32, Value, go_type

Call = TypeVar("Call", bound=Callable[..., Any])


class GoType:
    """A parameter type. `constant` names the accepted literals: bool, string, integer, unsigned, float, any, none."""

    __slots__ = ("accepted", "box", "constant", "name", "nilable", "python")

    def __init__(
        self,
        name: str,
        python: tuple[type, ...],
        constant: str = "none",
        *,
        nilable: bool = False,
        box: Callable[[Any], Value] | None = None,
    ) -> None:
        self.name = name
        self.python = python
        self.constant = constant
        self.nilable = nilable
        self.box = box
        """Wraps a constant, so that %T and later calls see the right type."""
        self.accepted = None if constant == "any" else python
        """The Python types of its values; None if it accepts any."""

    def accepts(self, value: Value) -> bool:
        return self.constant == "any" or type(value) in self.python

    def refusal(self, value: Value) -> str:
        if value is None:
            return f"invalid value; expected {self.name}"
        return f"wrong type for value; expected {self.name}; got {go_type(value)}"


ANY: Final = GoType("interface {}", (), "any", nilable=True)
VALUE: Final = GoType("reflect.Value", (), "any", nilable=True)
"""Built-in functions take this: like ANY."""
STRING: Final = GoType("string", (str,), "string")
BOOL: Final = GoType("bool", (bool,), "bool")
INT: Final = GoType("int", (int,), "integer")
UINT32: Final = GoType("uint32", (Uint32,), "unsigned", box=Uint32)
FLOAT64: Final = GoType("float64", (float,), "float")
DICT: Final = GoType("map[string]interface {}", (dict,), nilable=True)
LIST: Final = GoType("[]interface {}", (list, NilSlice), nilable=True)


class Func:
    """One function. It receives checked, converted arguments and returns a Go value, or raises FuncError."""

    __slots__ = ("call", "cost", "lazy", "name", "params", "variadic")

    def __init__(
        self,
        name: str,
        call: Callable[..., Value],
        params: tuple[GoType, ...] = (),
        variadic: GoType | None = None,
        *,
        lazy: str = "",
        cost: int = 1,
    ) -> None:
        self.name = name
        self.call = call
        self.params = params
        self.variadic = variadic
        self.lazy = lazy
        """`and`, `or` or `call`, which calls.py handles itself."""
        self.cost = cost
        """Steps that one call counts; more than one for slow functions."""

    def type_of(self, position: int) -> GoType:
        if position < len(self.params):
            return self.params[position]
        if self.variadic is None:
            raise IndexError(position)
        return self.variadic


class Functions(dict[str, Func]):
    """A table of functions, filled by a decorator."""

    def add(
        self, *names: str, params: tuple[GoType, ...] = (), variadic: GoType | None = None, cost: int = 1
    ) -> Callable[[Call], Call]:
        """Register a callable under its names: `@FUNCTIONS.add("trunc", params=(INT, STRING))`."""

        def register(call: Call) -> Call:
            for name in names:
                self[name] = Func(name, call, params, variadic, cost=cost)
            return call

        return register


# --- Families of functions, imported when a template first uses one of their names ------------------------------------
# A program that renders one simple template should not load certificates and time zones. The names are listed in one
# place, beside the module; a test keeps both in sync.


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
