"""The target and the options of a request, parsed from method, path and query. Pure: it reads no stored state.

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
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote

from kubebase import durations
from kubebase.meta import JsonObject
from localkube.errors import Cause, StatusError, bad_request, invalid
from localkube.model import DeleteOptions, FieldValidation, ListQuery, User, WatchQuery, WriteOptions

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


# --- Options of a request, from its query (and, for a delete, from its body), checked as the API checks them ----------

DEFAULT_TIMEOUT: Final = 34.0
MAX_TIMEOUT: Final = 60.0
"""Seconds after which a request other than a watch is cancelled; a client may request less."""
_MANAGER_MAX: Final = 128
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")


def write_options(query: Query, user: User, agent: str, options: str) -> WriteOptions:
    """Return the options of a create, update or patch; `options` is their name in failures (CreateOptions, …)."""
    causes = [*_dry_run_causes(query.get("dryRun", [])), *_manager_causes(first(query, "fieldManager"))]
    validation = first(query, "fieldValidation")
    if validation not in _VALIDATIONS:
        causes.append(_unsupported("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise _invalid(options, causes)
    return WriteOptions(
        user=user,
        field_manager=first(query, "fieldManager") or manager_of(agent),
        field_validation=cast("FieldValidation", validation or "Warn"),
        dry_run=bool(query.get("dryRun")),
        force=flag(query, "force"),
    )


def patch_options(query: Query, user: User, agent: str, patch: str) -> WriteOptions:
    """Return the options of a patch: an apply needs a manager, and only an apply may be forced."""
    if patch == "apply" and not first(query, "fieldManager"):
        raise _invalid("PatchOptions", [_required("fieldManager", "is required for apply patch")])
    if patch != "apply" and "force" in query:
        message = "Forbidden: may not be specified for non-apply patch"
        raise _invalid("PatchOptions", [Cause("force", message, "FieldValueForbidden")])
    return write_options(query, user, agent, "PatchOptions")


def delete_options(query: Query, body: JsonObject, user: User) -> DeleteOptions:
    """Read the options of a delete from the body; from the query if the body is empty."""
    options: dict[str, Any] = body or {
        "propagationPolicy": first(query, "propagationPolicy") or None,
        "gracePeriodSeconds": number(query, "gracePeriodSeconds"),
        "orphanDependents": flag(query, "orphanDependents") if "orphanDependents" in query else None,
    }
    dry_run = _strings(options.get("dryRun")) or query.get("dryRun", [])
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    if not isinstance(preconditions, dict) or not (grace is None or isinstance(grace, int)):
        raise bad_request("DeleteOptions: preconditions must be an object, gracePeriodSeconds a number")
    causes = [*_dry_run_causes(dry_run), *_propagation_causes(options)]
    if causes:
        raise _invalid("DeleteOptions", causes)
    return DeleteOptions(
        user=user,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation=_propagation(options),
        grace_period_seconds=grace,
        dry_run=bool(dry_run),
    )


def list_query(query: Query, namespace: str) -> ListQuery:
    return ListQuery(
        namespace=namespace,
        label_selector=first(query, "labelSelector"),
        field_selector=first(query, "fieldSelector"),
        limit=max(number(query, "limit") or 0, 0),
        continue_token=first(query, "continue"),
        resource_version=first(query, "resourceVersion"),
        resource_version_match=first(query, "resourceVersionMatch"),
    )


def watch_query(query: Query, namespace: str, name: str = "") -> WatchQuery:
    """Return a watch on a collection, or (the old form) on one object by name."""
    match_rule = first(query, "resourceVersionMatch")
    initial = flag(query, "sendInitialEvents")
    if "sendInitialEvents" in query and match_rule != "NotOlderThan":
        why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise _invalid("ListOptions", [Cause("resourceVersionMatch", why, "FieldValueForbidden")])
    if match_rule and "sendInitialEvents" not in query:
        why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise _invalid("ListOptions", [Cause("resourceVersionMatch", why, "FieldValueForbidden")])
    fields = [first(query, "fieldSelector")] if first(query, "fieldSelector") else []
    return WatchQuery(
        namespace=namespace,
        label_selector=first(query, "labelSelector"),
        field_selector=",".join([*fields, f"metadata.name={name}"] if name else fields),
        resource_version=first(query, "resourceVersion"),
        resource_version_match=match_rule,
        send_initial_events=initial,
        allow_bookmarks=flag(query, "allowWatchBookmarks"),
    )


def deadline_of(query: Query) -> float:
    """Return the time limit of the request in seconds."""
    text = first(query, "timeout")
    if not text:
        return DEFAULT_TIMEOUT
    try:
        seconds = durations.parse(text) / durations.SECOND
    except durations.DurationError:
        seconds = -1.0
    if seconds < 0:
        raise bad_request(f'invalid timeout specified in the request URL - time: invalid duration "{text}"')
    return min(seconds, MAX_TIMEOUT) or DEFAULT_TIMEOUT


def manager_of(agent: str) -> str:
    """Return the field manager of a client that names none: the first word of its User-Agent."""
    return "".join(char for char in agent.partition("/")[0] if char.isprintable())[:_MANAGER_MAX] or "unknown"


def _strings(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _propagation(options: JsonObject) -> Any:
    orphan = options.get("orphanDependents")
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return options.get("propagationPolicy") or ""


def _propagation_causes(options: JsonObject) -> list[Cause]:
    policy = options.get("propagationPolicy") or ""
    if policy and options.get("orphanDependents") is not None:
        why = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        return [Cause("propagationPolicy", why)]
    if policy and policy not in _PROPAGATIONS:
        return [_unsupported("propagationPolicy", policy, (*_PROPAGATIONS, "nil"))]
    return []


def _dry_run_causes(values: list[str]) -> list[Cause]:
    if all(value == "All" for value in values):
        return []
    shown = " ".join(f'"{value}"' for value in values)
    return [Cause("dryRun", f'Unsupported value: [{shown}]: supported values: "All"', "FieldValueNotSupported")]


def _manager_causes(manager: str) -> list[Cause]:
    if len(manager.encode()) > _MANAGER_MAX:
        why = f"Too long: may not be more than {_MANAGER_MAX} bytes"
        return [Cause("fieldManager", why, "FieldValueTooLong")]
    if not manager.isprintable():
        return [Cause("fieldManager", f'Invalid value: "{manager}": should only contain printable characters')]
    return []


def _required(field: str, why: str) -> Cause:
    return Cause(field, f"Required value: {why}", "FieldValueRequired")


def _unsupported(field: str, value: str, supported: tuple[str, ...]) -> Cause:
    values = ", ".join(f'"{item}"' for item in supported)
    return Cause(field, f'Unsupported value: "{value}": supported values: {values}', "FieldValueNotSupported")


def _invalid(options: str, causes: list[Cause]) -> StatusError:
    return invalid(options, "", causes, group="meta.k8s.io")
