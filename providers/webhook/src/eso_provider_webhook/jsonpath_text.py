"""Parses the text of a JSONPath to its steps (`jsonpath.py`). `PathError` has the position of the error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn, cast

from eso_provider_webhook.jsonpath import (
    MAX_STEPS,
    All,
    AnyOf,
    Child,
    Compare,
    Deep,
    Every,
    Holds,
    Literally,
    Not,
    Operator,
    Path,
    PathError,
    Range,
    Step,
    Test,
    Union,
    Where,
)

MAX_NESTING: Final = 16
MAX_CHARACTERS: Final = 4096

_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_NUMBER: Final = re.compile(r"-?\d{1,15}(\.\d{1,15})?([eE][+-]?\d{1,3})?")
_INTEGER: Final = re.compile(r"-?\d{1,9}(?![\d.])")
_QUOTED: Final = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_ESCAPE: Final = re.compile(r"\\(.)")
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|<|>")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


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
        for word, value in _WORDS.items():
            if self._took(word):
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
