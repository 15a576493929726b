"""JSON Patch (RFC 6902) with the deviations of the API server, and JSON merge patch.

Negative indices count from the end, `replace` may add a key, a missing value is null, and an absent key tests equal to
null. Any operation that does not apply fails the whole patch with the same error.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubebase.mergepatch import patched
from kubebase.meta import JsonObject
from localkube.errors import StatusError, bad_request, too_large
from localkube.patch.gotext import not_decodable
from localkube.patch.values import copied, equal

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
"""Bytes that all `copy` operations of a patch may add: each can double a document."""


def json_patch(doc: Any, ops: Any) -> Any:
    """Apply all operations in order to a copy of the document."""
    operations = _checked(ops)
    holder = {"": copied(doc)}
    copied_bytes = 0
    for operation in operations:
        try:
            copied_bytes += _apply(holder, operation)
            if copied_bytes > MAX_COPIED_BYTES:
                raise _rejected()
        except (LookupError, ValueError, TypeError):
            raise _rejected() from None
    return holder[""]


def _checked(ops: Any) -> list[JsonObject]:
    if not isinstance(ops, list | None):
        raise _malformed(ops, "value of type []handlers.jsonPatchOp")
    for operation in ops or ():
        if not isinstance(operation, dict | None):
            raise _malformed(operation, "value of type handlers.jsonPatchOp")
        for name in ("op", "path", "from"):
            value = (operation or {}).get(name)
            if not isinstance(value, str | None):
                raise _malformed(value, f"struct field jsonPatchOp.{name} of type string")
    if ops and len(ops) > MAX_OPERATIONS:
        limit = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}"
        raise too_large(f"Request entity too large: {limit}")
    return [operation or {} for operation in ops or ()]


def _malformed(value: Any, into: str) -> StatusError:
    return bad_request(f"error decoding patch: {not_decodable(value, into)}")


def _rejected() -> StatusError:
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request")


def _apply(holder: JsonObject, operation: JsonObject) -> int:
    """Carry out one operation and return how many bytes it copied.

    Raises LookupError or TypeError if it does not apply.

    `holder` has the document under the empty key.
    """
    path = _path(operation, "path")
    value = operation.get("value")
    match operation.get("op"):
        case "add":
            _add(_parent(holder, path), path[-1], copied(value))
        case "remove":
            _remove(_parent(holder, path), path[-1])
        case "replace":
            _replace(holder, path, copied(value))
        case "move":
            source = _path(operation, "from")
            moved = _remove(_parent(holder, source), source[-1])
            _add(_parent(holder, path), path[-1], moved)
        case "copy":
            source = _path(operation, "from")
            value = copied(_get(_parent(holder, source), source[-1]))
            _add(_parent(holder, path), path[-1], value)
            return len(msgspec.json.encode(value))
        case "test":
            found = holder[""] if len(path) == 1 else _get(_parent(holder, path), path[-1])
            if not equal(found, value):
                raise LookupError
        case _:
            raise LookupError
    return 0


def _path(operation: JsonObject, name: str) -> list[str]:
    """Return the decoded steps. The first is empty and leads from the holder to the document."""
    text = operation.get(name)
    if text is None or (text and not text.startswith("/")):
        raise LookupError
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")]


def _parent(holder: JsonObject, path: list[str]) -> Any:
    if len(path) < 2:
        raise LookupError
    node: Any = holder
    for step in path[:-1]:
        node = _get(node, step)
    if not isinstance(node, dict | list):
        raise TypeError(path[-1])
    return node


def _get(parent: Any, step: str) -> Any:
    """Read one step; None for a missing key. A step into a scalar raises: it has no length."""
    return parent.get(step) if isinstance(parent, dict) else parent[_index(step, len(parent))]


def _add(parent: Any, step: str, value: Any) -> None:
    if isinstance(parent, dict):
        parent[step] = value
    elif step == "-":
        parent.append(value)
    else:
        parent.insert(_index(step, len(parent) + 1), value)


def _remove(parent: Any, step: str) -> Any:
    return parent.pop(step if isinstance(parent, dict) else _index(step, len(parent)))


def _replace(holder: JsonObject, path: list[str], value: Any) -> None:
    if len(path) == 1:
        if not isinstance(value, dict | list):
            raise LookupError
        holder[""] = value
        return
    parent = _parent(holder, path)
    parent[path[-1] if isinstance(parent, dict) else _index(path[-1], len(parent))] = value


def _index(step: str, size: int) -> int:
    index = int(step)
    if not -size <= index < size:
        raise LookupError
    return index % size


# --- JSON Merge Patch (RFC 7386), with the API server's words for a patch that cannot be one --------------------------


def merge_patch(doc: Any, patch: Any) -> Any:
    """Apply the patch to a copy of the document."""
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        raise bad_request(f"error decoding patch: {not_decodable(patch, 'value of type map[string]interface {}')}")
    return copied(patched(doc, patch))
