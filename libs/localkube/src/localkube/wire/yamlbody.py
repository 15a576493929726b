"""YAML as the Kubernetes API reads it: as JSON values, with the messages of Go."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from kubebase.yamlvalues import Rules, YamlBoundError, YamlError, go_scalar, read_one

MAX_DEPTH: Final = 200
"""Maximum nesting; deeper documents would exhaust the stack of their readers."""
MAX_NODES: Final = 2_000_000
"""Values one document may hold once its aliases are expanded."""

_HUGE: Final = re.compile(r"[-+]?[0-9]{309,}")


class BadYamlError(ValueError):
    """The text is not YAML, or not expressible as JSON. The message repeats nothing of it."""


def load(text: bytes) -> Any:
    """Return the one document in `text`, as JSON values."""
    try:
        return read_one(text, RULES)
    except YamlBoundError:
        raise BadYamlError("yaml: document contains excessive aliasing") from None
    except YamlError as problem:
        raise BadYamlError(f"yaml: {problem}") from None


def _json_scalar(tag: str, text: str) -> Any:
    value = go_scalar(tag, text)
    if isinstance(value, float):
        return _number(value)
    if not tag and _HUGE.fullmatch(text):
        raise ValueError("json: cannot unmarshal number into Go value of type float64")
    return value


def _number(value: float) -> float | int:
    if not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {value:+}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


RULES: Final = Rules(scalar=_json_scalar, depth=MAX_DEPTH, nodes=MAX_NODES)
