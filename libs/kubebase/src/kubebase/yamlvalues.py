"""YAML as plain values, within bounds: the one reader of files, request bodies and rendered text.

    bytes -> text -> events of libyaml -> maps, lists, text, numbers, booleans, null

YAML 1.1 with the scalars of go-yaml v2, as Kubernetes tools read it: `yes` and `y` are true, `0777` is octal, `1:30`
and dates stay text. Keys become text; of two equal keys the last one wins. Aliases are copied.

Messages contain line, column and problem, never the text there: it may hold secret values.
"""

from __future__ import annotations

import base64
import codecs
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from kubebase.yamlscalars import BINARY, NULL, resolve

MAX_BYTES: Final = 16 * 1024 * 1024
"""Far beyond any manifest."""
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class YamlError(ValueError):
    """The text is not YAML, or not the expected YAML. `line` and `column` count from 1, and are 0 if unknown."""

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem = problem
        self.line = line
        self.column = column


class YamlBoundError(YamlError):
    """The text is nested too deeply, or has too many values."""


def go_scalar(tag: str, text: str) -> Any:
    """Read a scalar as go-yaml v2 does."""
    found, value = resolve(tag, text)
    return _binary(text) if found == BINARY else value


def text_scalar(tag: str, text: str) -> str | None:
    """Leave a scalar as text, so that a token of digits stays a token. Null is the exception."""
    return None if tag in {"", NULL} and resolve("", text)[0] == NULL else text


def _float_key(key: float) -> str:
    if math.isfinite(key):
        return str(key)
    return ".nan" if math.isnan(key) else ".inf" if key > 0 else "-.inf"


@dataclass(frozen=True, slots=True)
class Rules:
    """How a text is read. The defaults are the strictest bounds."""

    scalar: Callable[[str, str], Any] = go_scalar
    """Returns the value for the tag, if any, and the text of a scalar without quotes. It may raise ValueError."""
    float_key: Callable[[float], str] = _float_key
    ignores_unknown_tags: bool = False
    """Go ignores them. But of a password such as `!a b`, which lacks quotes, only `b` is left then."""
    size: int = MAX_BYTES
    depth: int = 100
    nodes: int = 100_000
    """Includes the nodes that aliases stand for, so that a short text cannot expand to a huge value."""


RULES: Final = Rules()


def read_all(raw: bytes, rules: Rules = RULES) -> list[Any]:
    """Return every document of a text."""
    return list(_documents(raw, rules))


def read_first(raw: bytes, rules: Rules = RULES) -> Any:
    """Return the first document of a text; None if there is none. The documents after it are not read."""
    return next(_documents(raw, rules), None)


def read_one(raw: bytes, rules: Rules = RULES) -> Any:
    """Return the only document of a text; None if there is none."""
    documents = read_all(raw, rules)
    if len(documents) > 1:
        raise YamlError("it has more than one document")
    return documents[0] if documents else None


def text_of(raw: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark."""
    try:
        return raw.decode("utf-16" if raw.startswith(_UTF_16) else "utf-8-sig")
    except UnicodeDecodeError:
        raise YamlError("the text is not UTF-8") from None


def key_text(key: Any, float_key: Callable[[float], str]) -> str | None:
    """Return the text of a key; None if it is null, a list or a map."""
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case float():
            return float_key(key)
        case _:
            return None


def _documents(raw: bytes, rules: Rules) -> Iterator[Any]:
    if len(raw) > rules.size:
        raise YamlError(f"it has more than {rules.size} bytes")
    from kubebase.yamlevents import documents  # here, because it loads libyaml

    yield from documents(text_of(raw), rules)


def _binary(text: str) -> str:
    try:
        return base64.b64decode(text.translate({10: None, 13: None}), validate=True).decode()
    except ValueError:
        raise ValueError("!!binary must be Base64 of text") from None
