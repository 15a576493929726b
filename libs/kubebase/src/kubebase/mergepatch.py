"""JSON merge patches (RFC 7386): the difference between two documents, and its application. Pure.

A merge patch cannot look into lists (they are replaced) and cannot set a field to null (null removes).
"""

from __future__ import annotations

from typing import Any

from kubebase.meta import JsonObject


def difference(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return the smallest merge patch that turns `old` into `new`; empty if they are equal."""
    patch: JsonObject = {name: None for name in old if name not in new and old[name] is not None}
    for name, value in new.items():
        before = old.get(name)
        if value is None:
            if before is not None:
                patch[name] = None
        elif isinstance(value, dict) and isinstance(before, dict):
            if inner := difference(before, value):
                patch[name] = inner
        elif name not in old or not _equal(before, value):
            patch[name] = _without_nulls(value)
    return patch


def patched(document: Any, patch: Any) -> Any:
    """Apply a patch as the API server does. The result shares unchanged parts with both arguments."""
    if not isinstance(document, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return patch
    result: JsonObject = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result


def _equal(one: Any, other: Any) -> bool:
    """Return equality of JSON, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    return bool(one == other)


def _without_nulls(value: Any) -> Any:
    """Drop the nulls of a new value, which mean removal. The API server also looks into lists, unlike the RFC."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
