"""OpenAPI documents of the served kinds: for `kubectl explain`, for its checks of what a server supports, for tools.

openapi_document    /openapi/v3/apis/GROUP/VERSION: schemas as components, and the operations on them
openapi_v2          /openapi/v2: only the envelope; clients of today read v3
openapi_v2_bytes    the same as kubectl downloads it before it says that a server does not have a kind
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.model import ServedKind
from localkube.schema import metadata
from localkube.schema.builtin import TOKEN_REQUEST
from localkube.schema.decoding import COMPONENT, DESCRIPTION

_PRIVATE: Final = "x-localkube-"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_JSON: Final = "application/json"
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_INFO: Final = {"title": "Kubernetes", "version": "v1.36.0"}


def group_versions(kinds: Iterable[ServedKind]) -> dict[str, list[ServedKind]]:
    """Return the kinds by the path of their document: `api/v1`, `apis/apps/v1`."""
    found: dict[str, list[ServedKind]] = {}
    for kind in kinds:
        found.setdefault(kind.resource.root.removeprefix("/"), []).append(kind)
    return dict(sorted(found.items()))


def openapi_document(kinds: Iterable[ServedKind]) -> JsonObject:
    """Return the v3 document of the kinds of one group version."""
    components: JsonObject = {}
    paths: JsonObject = {}
    _published(metadata.OBJECT_META, components)
    components[f"{_META}.ListMeta"] = _LIST_META
    for kind in kinds:
        name = _component(kind)
        _add_component(name, kind, components)
        paths.update(_paths(kind, name, components))
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(components.items()))},
    }


def openapi_v2() -> JsonObject:
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}


def openapi_v2_bytes() -> bytes:
    """Return the document as a message `openapi.v2.Document`: version, info, no paths."""
    info = _bytes_field(1, _INFO["title"].encode()) + _bytes_field(2, _INFO["version"].encode())
    return _bytes_field(1, b"2.0") + _bytes_field(2, info) + _bytes_field(8, b"") + _bytes_field(9, b"")


def _bytes_field(number: int, content: bytes) -> bytes:
    """Return a short field of a protobuf message: its number and type in one byte, its length in another."""
    return bytes([number << 3 | 2, len(content)]) + content


_LIST_META: Final[JsonObject] = {
    "type": "object",
    "description": "Metadata of a list.",
    "properties": {
        "resourceVersion": {"type": "string", "description": "State of the store that the list shows."},
        "continue": {"type": "string", "description": "Token for the next page."},
        "remainingItemCount": {"type": "integer", "format": "int64", "description": "Items that are still to come."},
        "selfLink": {"type": "string", "description": "No longer used."},
    },
}


def _component(kind: ServedKind) -> str:
    """Return the name of a kind's schema: io.k8s.api.apps.v1.Deployment, io.example.v1.Thing."""
    schema, resource = kind.schema.openapi, kind.resource
    if COMPONENT in schema:
        return str(schema[COMPONENT])
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


def _add_component(name: str, kind: ServedKind, components: JsonObject) -> None:
    schema = kind.schema.openapi
    envelope = {
        "apiVersion": metadata.API_VERSION,
        "kind": metadata.KIND,
        "metadata": {"allOf": [_ref(f"{_META}.ObjectMeta")]},
    }
    parts = {
        field: envelope.get(field) or (_published(part, components) if COMPONENT in schema else part)
        for field, part in (schema.get("properties") or {}).items()
    }
    top = {key: value for key, value in schema.items() if not key.startswith(_PRIVATE)}
    gvk = [_gvk(kind.resource)]
    components[name] = {
        **top,
        "properties": {**envelope, **parts},
        "x-kubernetes-group-version-kind": gvk,
    }
    components[f"{name}List"] = {
        "type": "object",
        "description": f"A list of {kind.resource.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": metadata.API_VERSION,
            "kind": metadata.KIND,
            "metadata": {"allOf": [_ref(f"{_META}.ListMeta")]},
            "items": {"type": "array", "items": {"allOf": [_ref(name)]}, "description": "The objects."},
        },
        "x-kubernetes-group-version-kind": [{**gvk[0], "kind": kind.list_kind}],
    }


def _published(schema: Any, components: JsonObject) -> Any:
    """Return a schema without private marks, in which every named part is a reference to its component."""
    if not isinstance(schema, dict):
        return schema
    shown = {
        key: _published_part(key, value, components) for key, value in schema.items() if not key.startswith(_PRIVATE)
    }
    name = schema.get(COMPONENT)
    if name is None:
        return shown
    reference: JsonObject = {"allOf": [_ref(name)]}
    own = schema.get(DESCRIPTION, shown.get("description"))
    components.setdefault(name, {**shown, "description": own})
    if own == shown.get("description"):
        shown.pop("description", None)  # explain shows the description of the component anyway
    patch_hints = {
        key: value for key, value in shown.items() if key == "description" or key.startswith("x-kubernetes-patch")
    }
    return {**reference, **patch_hints}


def _published_part(key: str, value: Any, components: JsonObject) -> Any:
    match key:
        case "properties":
            return {name: _published(part, components) for name, part in value.items()}
        case "items" | "additionalProperties":
            return _published(value, components)
        case _:
            return value


def _paths(kind: ServedKind, name: str, components: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    resource, verbs = kind.resource, set(kind.verbs)
    collection = resource.path("{namespace}")
    parameters = [_NAMESPACE] if resource.namespaced else []
    yield collection, _item(kind, name, _collection_methods(verbs), parameters)
    if resource.namespaced and "list" in verbs:
        yield resource.path(), _item(kind, name, {"get": "list"}, [])
    methods = {method: action for method, action in _ITEM_METHODS.items() if action in verbs}
    if not methods:
        return
    yield f"{collection}/{{name}}", _item(kind, name, methods, [_NAME, *parameters])
    for subresource in sorted(kind.subresources):
        path = f"{collection}/{{name}}/{subresource}"
        if subresource == "token":
            _published(TOKEN_REQUEST, components)
            yield path, _token_item([_NAME, *parameters])
        else:
            yield path, _item(kind, name, _SUBRESOURCE_METHODS.get(subresource, _STATUS_METHODS), [_NAME, *parameters])


_ITEM_METHODS: Final = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_STATUS_METHODS: Final = {"get": "get", "put": "update", "patch": "patch"}
_SUBRESOURCE_METHODS: Final = {"finalize": {"put": "update"}}


def _collection_methods(verbs: set[str]) -> dict[str, str]:
    wanted = {"get": "list", "post": "create", "delete": "deletecollection"}
    return {method: verb for method, verb in wanted.items() if verb in verbs}


def _item(kind: ServedKind, name: str, methods: dict[str, str], parameters: list[JsonObject]) -> JsonObject:
    found: JsonObject = {method: _operation(kind, name, method, verb) for method, verb in methods.items()}
    if parameters:
        found["parameters"] = parameters
    return found


def _operation(kind: ServedKind, name: str, method: str, verb: str) -> JsonObject:
    resource = kind.resource
    returned = f"{name}List" if verb == "list" else name
    found: JsonObject = {
        "operationId": _operation_id(resource, verb),
        "parameters": _PARAMETERS.get(verb, []),
        "responses": {"200": {"description": "OK", "content": {_JSON: {"schema": _ref(returned)}}}},
        "x-kubernetes-action": _ACTION_NAMES.get(verb, verb),
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    match method:
        case "post" | "put":
            found["requestBody"] = {"required": True, "content": {_JSON: {"schema": _ref(name)}}}
        case "patch":
            # kubectl chooses the patch it sends by this list, and custom kinds take no strategic one.
            patches = _PATCHES[:-1] if kind.custom else _PATCHES
            content = {media: {"schema": {"type": "object"}} for media in patches}
            found["requestBody"] = {"required": True, "content": content}
    return found


def _operation_id(resource: Resource, verb: str) -> str:
    group = "".join(part.title() for part in re.split("[.-]", resource.group or "core"))
    return f"{verb}{group}{resource.version.title()}{resource.kind}"


def _token_item(parameters: list[JsonObject]) -> JsonObject:
    name = TOKEN_REQUEST[COMPONENT]
    operation = {
        "operationId": "createCoreV1NamespacedServiceAccountToken",
        "parameters": _PARAMETERS["create"],
        "requestBody": {"required": True, "content": {_JSON: {"schema": _ref(name)}}},
        "responses": {"201": {"description": "Created", "content": {_JSON: {"schema": _ref(name)}}}},
        "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": TOKEN_REQUEST["x-kubernetes-group-version-kind"][0],
    }
    return {"post": operation, "parameters": parameters}


def _gvk(resource: Resource) -> JsonObject:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, kind: str, description: str) -> JsonObject:
    return {"in": "query", "name": name, "description": description, "schema": {"type": kind, "uniqueItems": True}}


def _place(name: str, description: str) -> JsonObject:
    return {"in": "path", "name": name, "description": description, "required": True, "schema": {"type": "string"}}


_NAME: Final = _place("name", "Name of the object.")
_NAMESPACE: Final = _place("namespace", "Namespace of the object.")
_WRITE: Final = [
    _query("dryRun", "string", "All: check and answer, but do not store."),
    _query("fieldManager", "string", "Who owns the fields that are written."),
    _query("fieldValidation", "string", "What to do about unknown fields: Ignore, Warn or Strict."),
]
_LIST: Final = [
    _query("labelSelector", "string", "Selects by labels."),
    _query("fieldSelector", "string", "Selects by fields."),
    _query("limit", "integer", "Most items in one answer."),
    _query("continue", "string", "Token of the next page."),
    _query("resourceVersion", "string", "State of the store to show."),
    _query("resourceVersionMatch", "string", "How to read resourceVersion."),
    _query("watch", "boolean", "Stream changes instead."),
    _query("allowWatchBookmarks", "boolean", "Send bookmarks in the stream."),
    _query("sendInitialEvents", "boolean", "Begin the stream with the present state."),
    _query("timeoutSeconds", "integer", "End the stream after this time."),
]
_DELETE: Final = [
    _query("dryRun", "string", "All: check and answer, but do not delete."),
    _query("gracePeriodSeconds", "integer", "Seconds granted for a graceful end."),
    _query("propagationPolicy", "string", "What happens to dependants: Background, Foreground or Orphan."),
]
_PARAMETERS: Final[dict[str, list[JsonObject]]] = {
    "list": _LIST,
    "create": _WRITE,
    "update": _WRITE,
    "patch": [*_WRITE, _query("force", "boolean", "Take fields from other owners, for apply patches.")],
    "delete": _DELETE,
    "deletecollection": [*_DELETE, *_LIST[:2]],
}
_ACTION_NAMES: Final = {"create": "post", "update": "put"}
