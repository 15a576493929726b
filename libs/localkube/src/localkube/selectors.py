"""Label and field selectors of list, watch and delete requests: parsed once, then matched against every object."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, assert_never

from kubebase.meta import JsonObject
from localkube.errors import StatusError, bad_request
from localkube.model import ServedKind
from localkube.schema.metadata import label_value, qualified_name

Operator = Literal["in", "notin", "exists", "!", "gt", "lt"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one value; `read` returns that value of an object, or None."""

    read: Callable[[JsonObject], str | None]
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, obj: JsonObject) -> bool:
        value = self.read(obj)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "gt" | "lt":
                return self._compares(value)
            case _:
                assert_never(self.operator)

    def _compares(self, value: str | None) -> bool:
        if value is None or _INTEGER.fullmatch(value) is None:
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def everything(self) -> bool:
        return not self.requirements

    def matches(self, obj: JsonObject) -> bool:
        return all(requirement.matches(obj) for requirement in self.requirements)

    def __and__(self, other: Selector) -> Selector:
        return Selector(self.requirements + other.requirements)


def parse_label_selector(text: str) -> Selector:
    """Parse `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`; raises a 400 with the API server's text."""
    return Selector(tuple(_LabelParser(text).requirements()))


def parse_field_selector(text: str, kind: ServedKind) -> Selector:
    """Parse `metadata.name=a,spec.b!=c`: comparisons only, on the selectable fields of the kind."""
    requirements: list[Requirement] = []
    for term in sorted(filter(None, _terms(text))):
        found = _TERM.fullmatch(term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = found.groups()
        values = frozenset({_unescaped(value)})
        requirements.append(Requirement(_field_reader(name, kind), "notin" if operator == "!=" else "in", values))
    return Selector(tuple(requirements))


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^ \t\r\n=!(),<>]+)|\Z)")
_BINARY: Final[dict[str, Operator]] = {
    "in": "in",
    "notin": "notin",
    "=": "in",
    "==": "in",
    "!=": "notin",
    ">": "gt",
    "<": "lt",
}
_SYMBOLS: Final = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">", ""})


class _LabelParser:
    """Recursive descent over a list of parts; the empty part is the end of the text."""

    def __init__(self, text: str) -> None:
        self._parts: list[str] = [symbol or word for symbol, word in _TOKEN.findall(text)]
        if not self._parts or self._parts[-1]:
            self._parts.append("")
        self._at = 0

    def requirements(self) -> list[Requirement]:
        result: list[Requirement] = []
        part = self._peek()
        while part:
            if part != "!" and part in _SYMBOLS:
                raise bad_request(f"found '{part}', expected: !, identifier, or 'end of string'")
            result.append(self._requirement())
            after = self._take()
            if after not in {"", ","}:
                raise bad_request(f"found '{after}', expected: ',' or 'end of string'")
            part = self._peek() if after else ""
            if after and part != "!" and part in _SYMBOLS:
                raise bad_request(f"found '{part}', expected: identifier after ','")
        return result

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        key = self._key()
        if self._peek() in {"", ","}:
            return Requirement(_label_reader(key), "!" if negated else "exists")
        if negated:
            raise bad_request(f"found '{self._peek()}', expected: ',' or 'end of string'")
        sign = self._take()
        operator = _BINARY.get(sign)
        if operator is None:
            raise _unparsed(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if sign in {"in", "notin"} else {self._value()}
        _check_values(key, operator, sorted(values))
        return Requirement(_label_reader(key), operator, frozenset(values))

    def _key(self) -> str:
        part = self._take()
        if part == "!":
            part = self._take()
        if part in _SYMBOLS:
            raise _unparsed(f"found '{part}', expected: identifier")
        if wrong := qualified_name(part):
            raise _unparsed(f'<nil>: Invalid value: "{part}": ' + "; ".join(wrong))
        return part

    def _value(self) -> str:
        if self._peek() in {"", ","}:
            return ""
        part = self._take()
        if part in _SYMBOLS:
            raise _unparsed(f"found '{part}', expected: identifier")
        return part

    def _values(self) -> set[str]:
        """Parse a list in parentheses. A comma with nothing on one side means the empty value."""
        opening = self._take()
        if opening != "(":
            raise _unparsed(f"found '{opening}' expected: '('")
        if self._peek() in _SYMBOLS - {",", ")"}:
            raise _unparsed(f"found '{self._peek()}', expected: ',', ')' or identifier")
        result: set[str] = set()
        previous = ","
        while (part := self._take()) != ")":
            if part == ",":
                if previous == ",":
                    result.add("")
            elif part in _SYMBOLS and previous == ",":
                raise _unparsed(f"found '{part}', expected: ',', or identifier")
            elif previous != ",":
                raise _unparsed(f"found '{part}', expected: ',' or ')'")
            else:
                result.add(part)
            previous = part
        if previous == ",":
            result.add("")
        return result

    def _peek(self) -> str:
        return self._parts[self._at]

    def _take(self) -> str:
        part = self._parts[self._at]
        self._at = min(self._at + 1, len(self._parts) - 1)
        return part


def _check_values(key: str, operator: Operator, values: list[str]) -> None:
    problems: list[str] = []
    for index, value in enumerate(values):
        if operator in {"gt", "lt"} and _INTEGER.fullmatch(value) is None:
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            problems.append(f'values[{index}]: Invalid value: "{value}": {why}')
    for index, value in enumerate(values):
        if wrong := label_value(value):
            problems.append(f'values[{index}][{key}]: Invalid value: "{value}": ' + "; ".join(wrong))
    if problems:
        raise _unparsed(problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]")


def _unparsed(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _label_reader(key: str) -> Callable[[JsonObject], str | None]:
    def read(obj: JsonObject) -> str | None:
        value = (obj["metadata"].get("labels") or {}).get(key)
        return None if value is None else str(value)

    return read


_TERM: Final = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ESCAPED: Final = frozenset("\\,=")


def _terms(text: str) -> list[str]:
    """Split at commas that are not escaped."""
    return [term for term in re.findall(r"((?:\\.|[^,\\]|\\\Z)*)(?:,|\Z)", text, re.DOTALL) if term]


def _unescaped(value: str) -> str:
    result: list[str] = []
    signs = iter(value)
    for sign in signs:
        if sign == "\\":
            following = next(signs, "")
            if following not in _ESCAPED:
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{following}")
            result.append(following)
        elif sign in _ESCAPED:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(sign)}")
        else:
            result.append(sign)
    return "".join(result)


def _field_reader(name: str, kind: ServedKind) -> Callable[[JsonObject], str]:
    """Read one field as text; a missing field is the empty string."""
    path = name if name in _COMMON_FIELDS else kind.selectable.get(name)
    if path is None:
        raise bad_request(f"field label not supported: {name}")
    steps = path.strip(".").split(".")

    def read(obj: JsonObject) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        match value:
            case None:
                return ""
            case bool():
                return "true" if value else "false"
            case _:
                return str(value)

    return read


_COMMON_FIELDS: Final = ("metadata.name", "metadata.namespace")
