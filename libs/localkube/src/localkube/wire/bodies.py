"""Request bodies: JSON or YAML to plain objects, with the failures a real API server reports.

A body may hold a Secret: no message here repeats any part of it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject
from kubebase.yamlvalues import Rules, YamlBoundError, YamlError, go_scalar, read_one
from localkube.errors import StatusError, bad_request, unsupported_media_type
from localkube.model import PatchType, ServedKind
from localkube.wire import protobuf
from localkube.wire.negotiation import ACCEPTED

# --- YAML as the Kubernetes API reads it: as JSON values, with the messages of Go -------------------------------------

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


PATCH_TYPES: Final[dict[str, PatchType]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


@dataclass(slots=True, repr=False)
class Body:
    value: Any
    duplicates: list[str] = field(default_factory=list)
    """Paths of duplicate fields; the last value counts."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The kind of object that a body must contain; a custom one must name its kind."""

    kind: str
    api_version: str
    custom: bool = False


def media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


def read_object(body: bytes, content_type: str, expected: Expected) -> Body:
    """Return the object of a create or update, with its own kind and version filled in."""
    try:
        value, duplicates = _read(body, content_type)
    except _UnreadableError as problem:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): {_parser(content_type)}{problem}"
        ) from problem
    if not isinstance(value, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): "
            "couldn't get version/kind; json parse error: json: cannot unmarshal a value that is not an object"
        )
    _set_kind(value, expected)
    return Body(value, duplicates)


def read_options(body: bytes, content_type: str) -> JsonObject:
    """Return the DeleteOptions in the body of a delete, empty if there is no body."""
    if not body.strip():
        return {}
    try:
        value, _ = _read(body, content_type)
    except _UnreadableError as problem:
        raise bad_request(f"couldn't get version/kind; json parse error: {problem}") from problem
    if not isinstance(value, dict):
        raise bad_request("couldn't get version/kind; json parse error: DeleteOptions must be an object")
    if value.get("kind", "DeleteOptions") != "DeleteOptions":
        raise bad_request(f'no kind "{value["kind"]}" is registered for version "{value.get("apiVersion", "")}"')
    return value


def patch_type(content_type: str, kind: ServedKind) -> PatchType:
    """Return json, merge, strategic or apply; raise a 415 for types that this kind does not support."""
    patch = PATCH_TYPES.get(media_type(content_type))
    if patch is None or (patch == "strategic" and kind.custom):
        types = [media for media, name in PATCH_TYPES.items() if name != "strategic" or not kind.custom]
        raise unsupported_media_type(", ".join(types))
    return patch


def read_patch(body: bytes, patch: PatchType) -> Body:
    """Return the patch as a value: a list of operations for a JSON patch, an object for the others."""
    try:
        in_yaml = patch == "apply" and not _starts_as_json(body)
        value = _yaml(body) if in_yaml else _json(body)
    except _UnreadableError as problem:
        if patch == "apply":
            raise bad_request(f"error decoding YAML: {problem}") from problem
        raise bad_request(f"error decoding patch: {problem}") from problem
    expected: type = list if patch == "json" else dict
    if not isinstance(value, expected):
        shape = "[]jsonpatch.Operation" if patch == "json" else "map[string]interface {}"
        raise bad_request(f"error decoding patch: json: cannot unmarshal {_shape(value)} into Go value of type {shape}")
    return Body(value, [] if in_yaml else _duplicates(body, value))


class _UnreadableError(ValueError):
    """The body does not match its content type."""


def _read(body: bytes, content_type: str) -> tuple[Any, list[str]]:
    match media_type(content_type):
        case "" | "application/json":
            value = _json(body)
            return value, _duplicates(body, value)
        case "application/yaml":
            return _yaml(body), []
        case protobuf.MEDIA_TYPE:
            return _protobuf(body), []
        case "application/x-www-form-urlencoded" | "*/*":
            # curl's default type; the real server reads such bodies as JSON too.
            return _json(body), []
        case _:
            raise unsupported_media_type(ACCEPTED)


def _set_kind(value: JsonObject, expected: Expected) -> None:
    for name in ("kind", "apiVersion"):
        if not isinstance(value.get(name), str | None):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {expected.kind}): couldn't get version/kind; "
                f"json parse error: json: cannot unmarshal {_shape(value[name])} into Go struct field .{name} "
                "of type string"
            )
    given_kind, given_version = value.get("kind") or "", value.get("apiVersion") or ""
    if expected.custom:
        if not given_kind:
            raise bad_request(
                f"the object provided is unrecognized (must be of type {expected.kind}): Object 'Kind' is missing"
            )
        if given_version != expected.api_version:
            raise bad_request(
                f"the API version in the data ({given_version}) does not match "
                f"the expected API version ({expected.api_version})"
            )
    elif given_kind not in {"", expected.kind} or given_version not in {"", expected.api_version}:
        raise _not_handled(given_kind or expected.kind, given_version or expected.api_version, expected.kind)
    value["kind"] = given_kind or expected.kind
    value["apiVersion"] = given_version or expected.api_version


def _not_handled(kind: str, api_version: str, expected: str) -> StatusError:
    version = api_version.rpartition("/")[2]
    return bad_request(
        f'{kind} in version "{version}" cannot be handled as a {expected}: no such kind is registered for this resource'
    )


def _json(body: bytes) -> Any:
    if not body:
        raise _UnreadableError("unexpected end of JSON input (<empty>)")
    # Nesting is counted before any recursion over the value; few bodies have that many brackets.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _depth(body) > MAX_DEPTH:
        raise _UnreadableError("exceeded max depth")
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        raise _UnreadableError(str(problem)) from problem
    except (RecursionError, UnicodeDecodeError) as problem:
        raise _UnreadableError("nested too deeply, or not UTF-8") from problem
    if _LONG_NUMBER.search(body) and _holds_huge_number(value):
        raise _UnreadableError("json: cannot unmarshal number into Go value of type float64")
    return value


def _holds_huge_number(value: Any) -> bool:
    """Return whether a whole number is too large even for a float, as which numbers beyond 64 bits are read."""
    match value:
        case dict():
            return any(_holds_huge_number(item) for item in value.values())
        case list():
            return any(_holds_huge_number(item) for item in value)
        case int():
            return abs(value) > sys.float_info.max
        case _:
            return False


_LONG_NUMBER: Final = re.compile(rb"[0-9]{309}")


def _depth(body: bytes) -> int:
    """Return the deepest nesting of brackets outside of strings."""
    depth = deepest = 0
    for token in _BRACKETS.finditer(body):
        match token[0][:1]:
            case b"{" | b"[":
                depth += 1
                deepest = max(deepest, depth)
            case b"}" | b"]":
                depth -= 1
            case _:
                pass  # a string
    return deepest


_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')


def _starts_as_json(body: bytes) -> bool:
    return body.lstrip()[:1] in {b"{", b"["}


def _parser(content_type: str) -> str:
    is_protobuf = media_type(content_type) == protobuf.MEDIA_TYPE
    return "" if is_protobuf else "couldn't get version/kind; json parse error: "


def _protobuf(body: bytes) -> JsonObject:
    try:
        return protobuf.decode(body)
    except protobuf.UnknownMessageError as problem:
        raise unsupported_media_type(ACCEPTED) from problem
    except protobuf.BadProtobufError as problem:
        raise _UnreadableError(str(problem)) from problem


def _yaml(body: bytes) -> Any:
    try:
        return load(body)
    except BadYamlError as problem:
        raise _UnreadableError(f"error converting YAML to JSON: {problem}") from None


def _duplicates(body: bytes, value: Any) -> list[str]:
    """Return the fields that occur twice.

    A second, slower parse finds them. It runs only if the value has fewer keys than the text, which a repeated key
    causes.
    """
    if body.count(b'":') == msgspec.json.encode(value).count(b'":'):
        return []
    return _Duplicates().of(body)


class _Duplicates:
    """Parses once more, keeping for each object the keys that repeat, then names them by path."""

    def of(self, body: bytes) -> list[str]:
        try:
            tree = json.loads(body, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError):
            return []
        found: list[str] = []
        self._walk(tree, "", found)
        return found

    def _walk(self, node: Any, path: str, found: list[str]) -> None:
        if isinstance(node, _Pairs):
            keys: set[str] = set()
            for key, value in node.pairs:
                where = f"{path}.{key}" if path else key
                if key in keys:
                    found.append(where)
                keys.add(key)
                self._walk(value, where, found)
        elif isinstance(node, list):
            for index, value in enumerate(node):
                self._walk(value, f"{path}[{index}]", found)


class _Pairs:
    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _shape(value: Any) -> str:
    match value:
        case list():
            return "array"
        case dict():
            return "object"
        case str():
            return "string"
        case bool():
            return "bool"
        case None:
            return "null"
        case _:
            return "number"
