"""JSONPath: from the text of a path to the places of a document that it names.

    $.name  $['name']  $[0]  $[-1]           one place: a document without it is a `MissingError`
    $.*  $[*]  $..name  $[0,1]  $[1:3]       several places: a list, which may be empty
    $.fields[?@.name == "pin"].value         entries of a list, or members of an object, for which the filter holds

A filter compares paths (`@` is the entry, `$` the document), texts, numbers, true, false and null with == != < <= > >=,
joins comparisons with && and ||, and takes `!` and parentheses. A path alone holds where its value is true.

Pure. Errors name the path and never content of a document. Steps, nesting and visited places are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_STEPS: Final = 64
MAX_VISITED: Final = 1_000_000
"""The number of places that one selection may visit: `$..*..*` of a large document would never finish."""

Operator = Literal["==", "!=", "<", "<=", ">", ">="]


class PathError(ValueError):
    """The text cannot be read as a path, or the path looks at too much."""


class MissingError(ValueError):
    """The document has nothing at the path; the text is the path up to the step that fails."""


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Child:
    """One member by name, or one entry by its number."""

    key: str | int


@dataclass(frozen=True, slots=True)
class Union:
    """Several members or entries; absent ones are left out."""

    keys: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """All members or entries."""


@dataclass(frozen=True, slots=True)
class Deep:
    """The place itself and everything below it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Entries from a number up to another one."""

    start: int | None
    stop: int | None
    stride: int | None


@dataclass(frozen=True, slots=True)
class Where:
    """Entries or member values for which the test holds."""

    test: Test


Step = Child | Union | Every | Deep | Range | Where


# --- tests of a filter ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literally:
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    operator: Operator
    left: Path | Literally
    right: Path | Literally


@dataclass(frozen=True, slots=True)
class Holds:
    """True if the value of a path or literal is true."""

    value: Path | Literally


@dataclass(frozen=True, slots=True)
class Not:
    test: Test


@dataclass(frozen=True, slots=True)
class All:
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    tests: tuple[Test, ...]


Test = Compare | Holds | Not | All | AnyOf


# --- paths ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from the document (`$`) or, in a filter, from the entry it looks at (`@`)."""

    steps: tuple[Step, ...] = ()
    from_entry: bool = False

    @property
    def is_single(self) -> bool:
        """Return whether the path leads to one place in any document."""
        return all(isinstance(step, Child) for step in self.steps)

    def select(self, document: Any) -> Any:
        """Return the value at the path; for a path to several places, the list of their values."""
        selection = _Selection(document)
        if not self.is_single:
            return list(selection.places(self.steps, document))
        found = document
        for done, step in enumerate(self.steps, start=1):
            held = list(selection.places((step,), found))
            if not held:
                raise MissingError(Path(self.steps[:done]).spelled)
            (found,) = held
        return found

    @property
    def spelled(self) -> str:
        """Return the path for messages; only for paths of single steps."""
        return "$" + "".join(_spelled(step) for step in self.steps)


class _Selection:
    """One walk through one document, with its limit."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._visited = 0

    def places(self, steps: tuple[Step, ...], at: Any) -> Iterator[Any]:
        if not steps:
            yield at
            return
        for place in self._step(steps[0], at):
            self._visit()
            yield from self.places(steps[1:], place)

    def _visit(self) -> None:
        self._visited += 1
        if self._visited > MAX_VISITED:
            raise PathError(f"looks at more than {MAX_VISITED} places of the answer")

    def _step(self, step: Step, at: Any) -> Iterator[Any]:
        match step:
            case Child(key):
                yield from _child(at, key)
            case Union(keys):
                for key in keys:
                    yield from _child(at, key)
            case Every():
                yield from _entries(at)
            case Deep():
                yield from _below(at)
            case Range(start, stop, stride) if isinstance(at, list):
                yield from at[start:stop:stride]
            case Where(test):
                yield from (entry for entry in _entries(at) if self._holds(test, entry))

    def _holds(self, test: Test, entry: Any) -> bool:
        self._visit()
        match test:
            case Compare(operator, left, right):
                return _compared(operator, self._value(left, entry), self._value(right, entry))
            case Holds(value):
                return self._value(value, entry) is True
            case Not(inner):
                return not self._holds(inner, entry)
            case All(tests):
                return all(self._holds(one, entry) for one in tests)
            case AnyOf(tests):
                return any(self._holds(one, entry) for one in tests)

    def _value(self, operand: Path | Literally, entry: Any) -> Any:
        if isinstance(operand, Literally):
            return operand.value
        found = list(self.places(operand.steps, entry if operand.from_entry else self._document))
        return found[0] if operand.is_single and found else _NOWHERE if operand.is_single else found


_NOWHERE: Final = object()
"""The value of a path that leads nowhere: equal to nothing but itself."""


def _child(at: Any, key: str | int) -> Iterator[Any]:
    match at, key:
        case dict(), str() if key in at:
            yield at[key]
        case list(), int() if -len(at) <= key < len(at):
            yield at[key]
        case _:
            return


def _entries(at: Any) -> Iterator[Any]:
    if isinstance(at, dict):
        yield from at.values()
    elif isinstance(at, list):
        yield from at


def _below(at: Any) -> Iterator[Any]:
    waiting = [at]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_entries(place))))


def _compared(operator: Operator, left: Any, right: Any) -> bool:
    if operator in ("==", "!="):
        same = type(left) is type(right) or (_is_number(left) and _is_number(right))
        return (same and left == right) is (operator == "==")
    both = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not both:
        return False
    match operator:
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spelled(step: Step) -> str:
    match step:
        case Child(int() as number):
            return f"[{number}]"
        case Child(name):
            return f"['{name}']"
        case _:
            return "[…]"
