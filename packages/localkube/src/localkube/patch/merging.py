"""JSON Merge Patch (RFC 7386): maps merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any

from localkube.errors import bad_request
from localkube.patch.gotext import not_decodable
from localkube.patch.values import copied


def merge_patch(doc: Any, patch: Any) -> Any:
    """The document with the patch laid over it; a copy, `doc` stays as it is."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: {not_decodable(patch, 'value of type map[string]interface {}')}")
    return _merged(doc, patch)


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(value, dict):
        return _without_nulls(patch)
    if not isinstance(patch, dict):
        return copied(patch)
    result = {name: item if name in patch else copied(item) for name, item in value.items()}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), change)
    return result


def _without_nulls(patch: Any) -> Any:
    """What is new has nothing to remove. The API server also looks into lists, which the RFC takes as they are."""
    match patch:
        case dict():
            return {name: _without_nulls(item) for name, item in patch.items() if item is not None}
        case list():
            return [_without_nulls(item) for item in patch]
        case _:
            return patch
