"""The target of a request, parsed from method, path and query. Pure: it reads no stored state.

    /api/v1/namespaces/{namespace}/{resource}/{name}/{subresource}
    /apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}/{subresource}
    the same without a namespace, and with `watch/` behind the version (the old form of ?watch=1)

The verb determines both the action and the required right, so it is computed here once. Everything else is a plain path
(/version, /apis, /openapi/v3, …).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

from localkube.errors import bad_request

Query = Mapping[str, list[str]]
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
_OBJECT_VERBS: Final = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS: Final = {"GET": "list", "HEAD": "list", "DELETE": "deletecollection"}
_NAME_SELECTOR = re.compile(r"(?:^|,)metadata\.name==?([^,=!]+)(?:,|$)")
MAX_QUERY_FIELDS: Final = 64


@dataclass(frozen=True, slots=True)
class ResourceTarget:
    """A request on objects of one resource."""

    verb: str
    method: str
    path: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    selected_name: str = ""
    """The name that a field selector pins a collection to: rules limited to names then apply to it."""


@dataclass(frozen=True, slots=True)
class PathTarget:
    """A request for a path that is not a resource; the verb is the method in lower case."""

    verb: str
    method: str
    path: str


Target = ResourceTarget | PathTarget


def target_of(method: str, raw_path: str, query: Query) -> Target:
    """Parse the target of a request."""
    path = unquote(raw_path) if "%" in raw_path else raw_path
    parts = path.split("/")[1:]
    if parts and not parts[-1]:
        parts.pop()
    rest = 2 if parts[:1] == ["api"] else 3
    if parts[:1] not in (["api"], ["apis"]) or len(parts) <= rest or "" in parts:
        return PathTarget(method.lower(), method, path)
    group, version = ("", parts[1]) if rest == 2 else (parts[1], parts[2])
    return _resource_target(method, path, (group, version), parts[rest:], query)


def query_of(text: str) -> Query:
    """Return the query's fields with all their values; a field without a value holds an empty string."""
    if not text:
        return {}
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as problem:
        raise bad_request("the query has too many fields or is not UTF-8") from problem
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def first(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def flag(query: Query, name: str) -> bool:
    """Return whether a flag is set, as the API reads it: present and neither 0 nor false."""
    values = query.get(name)
    return values is not None and values[0].lower() not in {"0", "false"}


def number(query: Query, name: str) -> int | None:
    text = first(query, name)
    if not text:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _resource_target(
    method: str, path: str, version: tuple[str, str], parts: list[str], query: Query
) -> ResourceTarget | PathTarget:
    old_watch = parts[0] == "watch" and len(parts) > 1
    if old_watch:
        parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    # Only the old form watches one object; ?watch on one object is ignored, as in the real server.
    watching = old_watch or (not name and flag(query, "watch"))
    selected = _NAME_SELECTOR.search(first(query, "fieldSelector")) if not name else None
    return ResourceTarget(
        verb=_verb(method, name, watching=watching),
        method=method,
        path=path,
        group=version[0],
        version=version[1],
        resource=parts[0],
        namespace=namespace,
        name=name,
        subresource="/".join(parts[2:]),
        selected_name=selected[1] if selected else "",
    )


def _verb(method: str, name: str, *, watching: bool) -> str:
    if method == "POST":
        return "create"
    if watching and method in {"GET", "HEAD"}:
        return "watch"
    verbs = _OBJECT_VERBS if name else _COLLECTION_VERBS
    return verbs.get(method, method.lower())
