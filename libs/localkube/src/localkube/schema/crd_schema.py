"""Rules of an openAPIV3Schema: only schemas that the server can enforce are accepted.

Types are given, keywords are supported, patterns compile, and lists that are sets or maps declare their keys. Defaults
are valid and have no unknown fields.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, pruning, regex, rules, values
from localkube.schema.cel import CompileError
from localkube.schema.crd_rules import rule_causes
from localkube.schema.problems import Problem, shown


def default_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    """Report the mistakes in the defaults at and below a schema."""
    if schema.get("default") is not None:
        yield from _value_causes(copy.deepcopy(schema), f"{path}.default")
    if isinstance(schema.get("items"), dict):
        yield from default_causes(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from default_causes(part, f"{path}.properties[{name}]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from default_causes(schema["additionalProperties"], f"{path}.additionalProperties")


def _value_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    default = schema["default"]
    pruned = copy.deepcopy(default)
    pruning.prune(pruned, pruning.compile_pruning(schema, root=False))
    if pruned != default:
        yield causes.invalid(path, default, "must not have unknown fields")
    problems = values.run(values.compile_node(schema), default)
    found = list(dict.fromkeys(_placed(problem, path) for problem in problems))
    yield from found
    if found:
        return
    try:
        node = rules.compile_rules(schema)
    except CompileError:
        return  # reported where the rule is
    if node is not None:
        for cause in rules.rule_causes(node, default, None, []):
            yield Cause(_joined(path, cause.field), cause.message, cause.reason)


def _placed(problem: Problem, path: str) -> Cause:
    cause = problem.cause()
    return Cause(_joined(path, cause.field), cause.message, cause.reason)


def _joined(path: str, below: str) -> str:
    if below in {"", shown("")}:
        return path
    return f"{path}{below}" if below.startswith("[") else f"{path}.{below}"


_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_COMBINATORS: Final = ("allOf", "anyOf", "oneOf")
_AT_ROOT: Final = "must not be empty at the root"
_OF_ITEMS: Final = "must not be empty for specified array items"
_OF_FIELDS: Final = "must not be empty for specified object fields"


def schema_causes(schema: JsonObject, path: str) -> list[Cause]:
    """Report the errors in a schema; defaults and CEL rules are checked only if everything else is correct."""
    kind = schema.get("type")
    found = list(_typed(schema, path, _AT_ROOT))
    if kind and kind != "object":
        found.append(causes.invalid(f"{path}.type", kind, "must be object at the root"))
    if found:
        return found
    return [*default_causes(schema, path), *rule_causes(schema, path)]


def _typed(schema: JsonObject, path: str, needs_type: str) -> Iterator[Cause]:
    """Check a schema that must name its type: the root, a field or the items of a list."""
    kind, items, extra = schema.get("type") or "", schema.get("items"), schema.get("additionalProperties")
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind and not untyped and not any(schema.get(keyword) for keyword in _UNSUPPORTED):
        yield causes.required(f"{path}.type", needs_type)
    if kind == "array" and items is None:
        yield causes.required(f"{path}.items", "must be specified")
    yield from _restrictions(schema, path)
    yield from _list_type(schema, path)
    if isinstance(items, dict):
        yield from _typed(items, f"{path}.items", _OF_ITEMS)
    for name, part in (schema.get("properties") or {}).items():
        yield from _typed(part, f"{path}.properties[{name}]", _OF_FIELDS)
    if isinstance(extra, dict):
        yield from _typed(extra, f"{path}.additionalProperties", _OF_FIELDS)


def _restrictions(schema: JsonObject, path: str) -> Iterator[Cause]:
    """Check the keywords that are also permitted inside anyOf, oneOf, allOf and not."""
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield causes.not_supported(f"{path}.type", kind, _TYPES)
    for keyword in _UNSUPPORTED:
        if schema.get(keyword):
            yield causes.forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if schema.get(_EMBEDDED):
        yield causes.forbidden(f"{path}.{_EMBEDDED}", f"{_EMBEDDED} is not supported")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield causes.forbidden(f"{path}.uniqueItems", detail)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        detail = "additionalProperties and properties are mutual exclusive"
        yield causes.forbidden(f"{path}.additionalProperties", detail)
    if isinstance(schema.get("items"), list):
        yield causes.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if pattern := schema.get("pattern"):
        try:
            regex.compiled(pattern)
        except regex.PatternError as failure:
            detail = f"must be a valid regular expression, but isn't: {failure}"
            yield causes.invalid(f"{path}.pattern", pattern, detail)
    for keyword in _COMBINATORS:
        for index, branch in enumerate(schema.get(keyword) or ()):
            yield from _nested(branch, f"{path}.{keyword}[{index}]")
    if isinstance(schema.get("not"), dict):
        yield from _nested(schema["not"], f"{path}.not")


def _nested(schema: JsonObject, path: str) -> Iterator[Cause]:
    yield from _restrictions(schema, path)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from _nested(part, f"{path}.properties[{name}]")


def _list_type(schema: JsonObject, path: str) -> Iterator[Cause]:
    """Check the keys of map lists: apply and validation find items by them."""
    for keyword, allowed in (
        ("x-kubernetes-map-type", ("atomic", "granular")),
        ("x-kubernetes-list-type", ("atomic", "set", "map")),
    ):
        value = schema.get(keyword)
        if value is not None and value not in allowed:
            yield causes.not_supported(f"{path}.{keyword}", value, allowed)
    if schema.get("x-kubernetes-list-type") != "map":
        return
    keys, where = schema.get("x-kubernetes-list-map-keys") or [], f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield causes.required(where, "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items")
    yield from _key_causes(items if isinstance(items, dict) else {}, keys, path)


def _key_causes(items: JsonObject, keys: list[str], path: str) -> Iterator[Cause]:
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", items.get("type") or "", detail)
        return
    properties: dict[str, Any] = items.get("properties") or {}
    for key in keys:
        part, where = properties.get(key), f"{path}.items.properties[{key}]"
        if part is None:
            detail = "entries must all be names of item properties"
            yield causes.invalid(f"{path}.x-kubernetes-list-map-keys", keys, detail)
        elif part.get("type") in {"array", "object"}:
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{where}.type", "object", detail)
        elif key not in (items.get("required") or ()) and part.get("default") is None:
            because = "this property is in x-kubernetes-list-map-keys, so it"
            yield causes.required(f"{where}.default", f"{because} must have a default or be a required property")
