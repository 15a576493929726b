"""A parser of the part of PromQL that our rules and dashboards use: it finds every selector and grouping of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<range>\[\d+[smhdw](?::(?:\d+[smhdw])?)?\])
      | (?P<number>\d+(?:\.\d+)?)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^(){},=<>])
    )""",
    re.VERBOSE,
)
_AGGREGATIONS: Final = frozenset({"sum", "max", "min", "avg", "count", "topk"})
_FUNCTIONS: Final = frozenset({"rate", "increase", "histogram_quantile", "time", "avg_over_time", "vector"})
_BINARY: Final = frozenset({"+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or", "unless"})
_MATCHERS: Final = frozenset({"=", "!=", "=~", "!~"})


class PromqlError(ValueError):
    """The query is not PromQL, or uses a part that this parser does not know."""


@dataclass(frozen=True, slots=True)
class Query:
    """`selectors` are the series with the labels that they match; `groupings` the labels of `by`."""

    selectors: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    groupings: set[str] = field(default_factory=set)


def parse(text: str) -> Query:
    """Parse a query. Raises PromqlError."""
    parser = _Parser(_tokens(text))
    parser.expression()
    parser.end()
    return parser.query


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PromqlError(f"unreadable: {text[position:]!r}")
        kind = match.lastgroup or ""
        found.append((kind, match[kind]))
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0
        self.query = Query()

    def expression(self) -> None:
        self._operand()
        while self._peek() in _BINARY:
            self._take()
            self._operand()

    def end(self) -> None:
        if self._position != len(self._tokens):
            raise PromqlError(f"unexpected {self._peek()!r}")

    def _operand(self) -> None:
        kind, text = self._take()
        if text == "-":
            self._operand()
        elif text == "(":
            self.expression()
            self._expect(")")
        elif kind == "name" and text in _AGGREGATIONS:
            self._grouping()
            self._arguments()
            self._grouping()
        elif kind == "name" and text in _FUNCTIONS:
            self._arguments()
        elif kind == "name" and self._peek() != "(":
            self._selector(text)
        elif kind != "number":
            raise PromqlError(f"unexpected {text!r}")

    def _grouping(self) -> None:
        if self._peek() == "by":
            self._take()
            self._expect("(")
            while self._peek() != ")":
                self.query.groupings.add(self._take()[1])
                self._skip(",")
            self._expect(")")

    def _arguments(self) -> None:
        self._expect("(")
        while self._peek() != ")":
            self.expression()
            self._skip(",")
        self._expect(")")

    def _selector(self, name: str) -> None:
        labels = set()
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                labels.add(self._take()[1])
                if self._take()[1] not in _MATCHERS or self._take()[0] != "string":
                    raise PromqlError(f'a matcher of {name} is not label="value"')
                self._skip(",")
            self._expect("}")
        if self._peek().startswith("["):
            self._take()
        self.query.selectors.append((name, frozenset(labels)))

    def _peek(self) -> str:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._position >= len(self._tokens):
            raise PromqlError("the query ends too early")
        self._position += 1
        return self._tokens[self._position - 1]

    def _expect(self, text: str) -> None:
        if (found := self._take()[1]) != text:
            raise PromqlError(f"{text!r} expected, not {found!r}")

    def _skip(self, text: str) -> None:
        if self._peek() == text:
            self._take()
