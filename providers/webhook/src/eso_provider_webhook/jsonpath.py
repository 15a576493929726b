"""JSONPath: from the text of a path to the places of a document that it names.

    $.name  $['name']  $[0]  $[-1]           one place: a document without it is a `MissingError`
    $.*  $[*]  $..name  $[0,1]  $[1:3]       several places: a list, which may be empty
    $.fields[?@.name == "pin"].value         entries of a list, or members of an object, for which the filter holds

A filter compares paths (`@` is the entry, `$` the document), texts, numbers, true, false and null with == != < <= > >=,
joins comparisons with && and ||, and takes `!` and parentheses. A path alone holds where its value is true.

Pure. Errors name the path and never content of a document. Steps, nesting and visited places are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast

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


# ---------------------------------------------------------------------------------------------------------------------
# Parses the text of a JSONPath to its steps (`jsonpath.py`). `PathError` has the position of the error.


MAX_NESTING: Final = 16
MAX_CHARACTERS: Final = 4096

_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_NUMBER: Final = re.compile(r"-?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,3})?")
_INTEGER: Final = re.compile(r"-?\d{1,9}(?![\d.])")
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_ESCAPE: Final = re.compile(r"\\(.)")
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|<|>")
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def parsed(text: str) -> Path:
    """Return the parsed path; an empty text is the whole document."""
    spelled = text.strip()
    if not spelled:
        return Path()
    if len(spelled) > MAX_CHARACTERS:
        raise PathError(f"has more than {MAX_CHARACTERS} characters")
    if not spelled.startswith("$"):
        raise PathError("must begin with $")
    reader = _Reader(spelled)
    path = reader.path()
    if not reader.is_over:
        reader.fail()
    return path


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._steps = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._text)

    def fail(self) -> NoReturn:
        raise PathError(
            f"cannot be read from character {self._at + 1} on; write for example $.name, $['name'], $.list[0] or"
            ' $.list[?@.name == "x"].value'
        )

    # --- steps --------------------------------------------------------------------------------------------------------

    def path(self) -> Path:
        from_entry = self._text[self._at] == "@"
        self._at += 1
        steps: list[Step] = []
        while not self.is_over:
            begun = self._at
            if self._took(".."):
                steps += [Deep(), self._bracket() if self._took("[") else self._named()]
            elif self._took("."):
                steps.append(self._named())
            elif self._took("["):
                steps.append(self._bracket())
            else:
                break
            self._steps += 1
            if self._steps > MAX_STEPS:
                self._at = begun
                raise PathError(f"has more than {MAX_STEPS} steps")
        return Path(tuple(steps), from_entry)

    def _named(self) -> Step:
        if self._took("*"):
            return Every()
        return Child(self._matched(_NAME).group())

    def _bracket(self) -> Step:
        step = self._inside()
        self._space()
        if not self._took("]"):
            self.fail()
        return step

    def _inside(self) -> Step:
        self._space()
        if self._took("*"):
            return Every()
        if self._took("?"):
            return Where(self._nested(self._either))
        first = None if self._peek(":") else self._key()
        self._space()
        if self._peek(":"):
            return self._range(first)
        if first is None:
            self.fail()
        keys = [first]
        while self._took(","):
            keys.append(self._key())
            self._space()
        return Child(keys[0]) if len(keys) == 1 else Union(tuple(keys))

    def _key(self) -> str | int:
        self._space()
        if self._peek("'") or self._peek('"'):
            return self._quoted()
        return int(self._matched(_INTEGER).group())

    def _range(self, start: str | int | None) -> Range:
        if isinstance(start, str):
            self.fail()
        bounds: list[int | None] = [start]
        while len(bounds) < 3 and self._took(":"):
            self._space()
            bounds.append(None if self._peek(":") or self._peek("]") else int(self._matched(_INTEGER).group()))
            self._space()
        stride = bounds[2] if len(bounds) == 3 else None
        if stride == 0:
            raise PathError("has a slice with a step of 0")
        return Range(bounds[0], bounds[1], stride)

    # --- filters ------------------------------------------------------------------------------------------------------

    def _nested(self, read: Callable[[], Test]) -> Test:
        """Limit the recursion depth."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise PathError(f"is nested more than {MAX_NESTING} times")
        test = read()
        self._depth -= 1
        return test

    def _either(self) -> Test:
        tests = [self._both()]
        while self._next("||"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else AnyOf(tuple(tests))

    def _both(self) -> Test:
        tests = [self._single()]
        while self._next("&&"):
            tests.append(self._single())
        return tests[0] if len(tests) == 1 else All(tuple(tests))

    def _single(self) -> Test:
        self._space()
        if self._peek("!") and not self._peek("!="):
            self._at += 1
            return Not(self._nested(self._single))
        if self._took("("):
            test = self._nested(self._either)
            if not self._next(")"):
                self.fail()
            return test
        left = self._operand()
        self._space()
        if found := _OPERATOR.match(self._text, self._at):
            self._at = found.end()
            return Compare(cast(Operator, found.group()), left, self._operand())
        return Holds(left)

    def _operand(self) -> Path | Literally:
        self._space()
        if self._peek("@") or self._peek("$"):
            return self.path()
        if self._peek("'") or self._peek('"'):
            return Literally(self._quoted())
        for literal, value in _LITERALS.items():
            if self._took(literal):
                return Literally(value)
        number = self._matched(_NUMBER)
        return Literally(float(number.group()) if number.group(1) or number.group(2) else int(number.group()))

    # --- text ---------------------------------------------------------------------------------------------------------

    def _space(self) -> None:
        while not self.is_over and self._text[self._at].isspace():
            self._at += 1

    def _peek(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _took(self, sign: str) -> bool:
        found = self._peek(sign)
        self._at += len(sign) if found else 0
        return found

    def _next(self, sign: str) -> bool:
        self._space()
        return self._took(sign)

    def _matched(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            self.fail()
        self._at = found.end()
        return found

    def _quoted(self) -> str:
        found = self._matched(_QUOTED)
        return _ESCAPE.sub(r"\1", found.group(1) if found.group(1) is not None else found.group(2))
