"""Simple paths into a schema, such as .spec['a b'].c: `fieldPath` of a rule, `jsonPath` of a selectable field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kubebase.meta import JsonObject

_TOKEN: Final = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]]+")
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "'": "'",
    "\\": "\\",
}


class PathError(ValueError):
    """The path does not lead to a field; the message says why."""


@dataclass(frozen=True, slots=True)
class Resolved:
    path: str
    """Normalised: `spec.c`, `spec.labels[app]`."""
    steps: tuple[str, ...]
    schema: JsonObject


def resolve(text: str, schema: JsonObject, *, brackets: str = "allowed") -> Resolved:
    """Follow a path through a schema; PathError if it does not lead to a field."""
    path, steps = "", []
    for name in _names(text, brackets=brackets):
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                raise PathError("does not refer to a valid field")
            schema, path = properties[name], join(path, name)
        elif isinstance(extra, dict):
            schema, path = extra, f"{path}[{name}]"
        else:
            raise PathError("does not refer to a valid field")
        steps.append(name)
    return Resolved(path, tuple(steps), schema)


def join(path: str, below: str) -> str:
    if not path or not below:
        return path or below
    return path + below if below.startswith("[") else f"{path}.{below}"


def _names(text: str, *, brackets: str) -> Iterator[str]:
    tokens = iter(_TOKEN.findall(text))
    for token in tokens:
        match token:
            case ".":
                yield _next(tokens)
            case "[":
                if brackets != "allowed":
                    raise PathError("array notation is not allowed")
                quoted = _next(tokens)
                if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
                    raise PathError(f"expected single quoted string but got {quoted}")
                yield re.sub(r"\\(.)", _unescaped, quoted[1:-1])
                closing = _next(tokens)
                if closing != "]":
                    raise PathError(f"expected ] but got {closing}")
            case _:
                raise PathError(f"expected [ or . but got: {token}")


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise PathError("unexpected end of JSON path")
    return token


def _unescaped(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        raise PathError(f"invalid string literal: invalid escape char \\{found[1]}")
    return _ESCAPES[found[1]]
