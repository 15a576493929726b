"""YAML from templates and users, read as Kubernetes tools written in Go read it.

Unlike in `fromYaml`, whole numbers stay integers. Messages contain the line and the problem, never the text there: it
is rendered from secret values.
"""

from __future__ import annotations

import json
from typing import Any, Final

from eso_render.functions.yamlreader import float_key
from gotmpl.floats import format_float32
from kubebase.yamlvalues import Rules, YamlError, read_all, read_first

__all__ = ["YamlError", "document", "documents", "flat_map"]

_RULES: Final = Rules(float_key=float_key, ignores_unknown_tags=True)


def document(raw: bytes) -> Any:
    """Return the first document as JSON: maps, lists, text, numbers, booleans and null. An empty text is null."""
    value = read_first(raw, _RULES)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise YamlError("JSON cannot hold infinity and not-a-number") from None
    return value


def documents(raw: bytes) -> list[Any]:
    """Return all documents of a file."""
    return read_all(raw, _RULES)


def flat_map(raw: bytes) -> dict[str, str | None]:
    """Return a map of keys to scalars as text; None for a map or a list. An empty text is an empty map."""
    entries = read_first(raw, _RULES)
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise YamlError("a YAML map of keys and values is needed")
    return {key: _scalar_text(value) for key, value in entries.items()}


def _scalar_text(value: Any) -> str | None:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return format_float32(value)
        case str():
            return value
        case _:
            return None
