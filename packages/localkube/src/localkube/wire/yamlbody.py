"""YAML as the Kubernetes API reads it: YAML 1.1 scalars, without dates and base-60 numbers, keys always text."""

from __future__ import annotations

import math
import re
import sys
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 200
"""Nesting beyond this is refused; no kind comes near it, and deeper would exhaust the stack of what reads it."""
MAX_NODES: Final = 2_000_000
"""Values one document may hold once its aliases are expanded."""


class BadYamlError(ValueError):
    """The text is not YAML, or says something that JSON cannot. The message repeats nothing of it."""


def load(text: bytes) -> Any:
    """The one document in `text`, as JSON values."""
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 -- a SafeLoader with fewer scalar types
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise BadYamlError(f"yaml: {where}{_syntax(problem)}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadYamlError("yaml: cannot be read") from None
    return _Copy().of(value, 0)


def _syntax(problem: yaml.MarkedYAMLError) -> str:
    # Messages about anchors and tags quote the text; those of the parser and scanner do not.
    quotes_text = problem.problem is None or "'" in problem.problem.replace("','", "").replace("']'", "")
    return "cannot be read" if quotes_text else str(problem.problem)


class _Loader(yaml.CSafeLoader):
    yaml_implicit_resolvers: Any = {}  # noqa: RUF012 -- PyYAML keeps resolvers on the class


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF", list("yYtToOnNfF")),
    ("int", r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+0123456789.")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)


def _boolean(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in {"y", "yes", "true", "on"}


_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)


class _Copy:
    """Expands aliases into copies, within a budget: a few lines of aliases can stand for terabytes."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def of(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise BadYamlError("yaml: document contains excessive aliasing")
        match value:
            case dict():
                return {_key(key): self.of(item, depth + 1) for key, item in value.items()}
            case list():
                return [self.of(item, depth + 1) for item in value]
            case float():
                return _number(value)
            case int() if abs(value) > sys.float_info.max:
                raise BadYamlError("json: cannot unmarshal number into Go value of type float64")
            case str() | bool() | int() | None:
                return value
            case _:
                raise BadYamlError("yaml: a value has a type that JSON lacks")


def _number(value: float) -> float | int:
    if not math.isfinite(value):
        raise BadYamlError(f"json: unsupported value: {value:+}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _key(key: Any) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() | float():
            return str(key)
        case _:
            raise BadYamlError("yaml: a key is not a scalar")
