"""A table of requests, one for each thing that a client can ask for, and malformed variants of them.

They are aimed at the namespaces `played` and `passing`, at the kind Toy of example.com, and at objects named `a`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random as Draw
from typing import Any, Final

from kubebase.meta import JsonObject

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

CORE: Final = "/api/v1/namespaces/played"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS: Final = "/apis/example.com/v1/namespaces/played/toys"
AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1"
AUTHENTICATION: Final = "/apis/authentication.k8s.io/v1"

METADATA: Final = {
    "name": "a",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["a.b/c"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}],
    "managedFields": [
        {
            "manager": "a",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}},
        }
    ],
}
SECRET: Final = {"metadata": METADATA, "type": "Opaque", "data": {"a": "Yg=="}, "stringData": {"b": "c"}}
CONFIG_MAP: Final = {"metadata": METADATA, "data": {"a": "b"}, "binaryData": {"c": "Yg=="}, "immutable": False}
EVENT: Final = {
    "metadata": {"name": "a"},
    "involvedObject": {"kind": "Secret", "namespace": "played", "name": "a"},
    "count": 1,
    "lastTimestamp": "2030-01-01T00:00:00Z",
    "series": {"count": 1, "lastObservedTime": "2030-01-01T00:00:00.000000Z"},
}
LEASE: Final = {
    "metadata": {"name": "a"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 1, "renewTime": "2030-01-01T00:00:00.000000Z"},
}
ROLE: Final = {
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}],
}
CLUSTER_ROLE: Final = ROLE | {
    "aggregationRule": {
        "clusterRoleSelectors": [
            {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
        ]
    }
}
BINDING: Final = {
    "metadata": {"name": "a"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"},
    "subjects": [{"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}],
}
POD_TEMPLATE: Final = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "b",
                "ports": [{"containerPort": 1, "protocol": "TCP"}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}],
                "resources": {"limits": {"cpu": "1"}},
            }
        ],
        "volumes": [{"name": "v", "secret": {"secretName": "a"}}],
    },
}
DEPLOYMENT: Final = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a"},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": POD_TEMPLATE},
}
TOY_SPEC: Final = {
    "type": "object",
    "required": ["a"],
    "x-kubernetes-validations": [
        {"rule": "self.a != 'x' || size(self.l) > 1", "message": "m", "reason": "FieldValueInvalid", "fieldPath": ".a"},
        {"rule": "self.m.all(k, self.m[k].matches('^b')) && self.t == self.t"},
        {"rule": "!has(oldSelf.r) || self.r >= oldSelf.r", "messageExpression": "'was ' + string(oldSelf.r)"},
    ],
    "properties": {
        "a": {"type": "string", "default": "q", "pattern": "^.*$", "maxLength": 9, "enum": ["q", "x"]},
        "r": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "multipleOf": 1},
        "t": {"type": "string", "format": "date-time"},
        "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "string", "maxLength": 9}},
        "i": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "p": {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True},
        "l": {
            "type": "array",
            "maxItems": 4,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string", "maxLength": 9}}},
        },
    },
}
TOY_SCHEMA: Final = {"type": "object", "properties": {"spec": TOY_SPEC, "status": {"type": "object"}}}
DEFINITION: Final[JsonObject] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toys.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList", "shortNames": ["ty"]},
        "conversion": {"strategy": "None"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a", "priority": 1}],
                "selectableFields": [{"jsonPath": ".spec.a"}],
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"},
                },
                "schema": {"openAPIV3Schema": TOY_SCHEMA},
            }
        ],
    },
}
TOY: Final = {
    "apiVersion": "example.com/v1",
    "kind": "Toy",
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "spec": {
        "a": "q",
        "r": 1,
        "t": "2030-01-01T00:00:00Z",
        "m": {"a": "b"},
        "i": "1",
        "p": {"a": [1]},
        "l": [{"n": "a"}, {"n": "b"}],
    },
}
TOY_STATUS: Final = {"status": {"r": 1, "conditions": [{"type": "Ready", "status": "True"}]}}
OPERATIONS: Final = [
    {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    {"op": "test", "path": "/metadata/name", "value": "a"},
    {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
    {"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b"},
    {"op": "replace", "path": "/metadata/labels/b", "value": "c"},
    {"op": "remove", "path": "/metadata/labels/b"},
]
STRATEGIC: Final = {
    "metadata": {
        "labels": {"a": "b", "$patch": "merge"},
        "$deleteFromPrimitiveList/finalizers": ["a.b/c"],
        "$setElementOrder/finalizers": ["a.b/c"],
        "$retainKeys": ["labels", "finalizers"],
        "ownerReferences": [{"uid": "b", "$patch": "delete"}],
    }
}
DELETION: Final = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "preconditions": {"uid": "x", "resourceVersion": "1"},
    "propagationPolicy": "Background",
    "gracePeriodSeconds": 0,
    "dryRun": ["All"],
}
ACCESS: Final = {"verb": "get", "group": "a", "resource": "secrets", "namespace": "played", "name": "a"}
TOKEN: Final = {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Secret", "name": "a"}}
WATCH: Final = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": "-1"}
"""Query of a watch that ends at once after the existing objects."""


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    path: str
    body: Any = None
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)


def patch(path: str, body: Any, content_type: str, **query: str) -> Sent:
    return Sent("PATCH", path, body, query, {"Content-Type": content_type})


PLAIN: Final = (
    Sent("POST", f"{CORE}/secrets", SECRET),
    Sent("POST", f"{CORE}/configmaps", CONFIG_MAP),
    Sent("POST", f"{CORE}/configmaps", {"metadata": {"generateName": "b-"}}, {"fieldValidation": "Strict"}),
    Sent("POST", f"{CORE}/services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}], "selector": {}}}),
    Sent("POST", f"{CORE}/events", EVENT),
    Sent("POST", "/apis/coordination.k8s.io/v1/namespaces/played/leases", LEASE),
    Sent("POST", f"{RBAC}/namespaces/played/roles", ROLE),
    Sent("POST", f"{RBAC}/clusterroles", CLUSTER_ROLE),
    Sent("POST", f"{RBAC}/clusterrolebindings", BINDING),
    Sent("POST", "/apis/apps/v1/namespaces/played/deployments", DEPLOYMENT),
    Sent("POST", "/api/v1/namespaces", {"metadata": {"name": "passing", "labels": {"a": "b"}}}),
    Sent("POST", DEFINITIONS, DEFINITION),
    Sent("POST", DEFINITIONS, DEFINITION),
    Sent("POST", TOYS, TOY),
    Sent("POST", TOYS, TOY),
    Sent("POST", TOYS, TOY | {"metadata": METADATA | {"name": "b"}}),
    Sent("PUT", f"{CORE}/secrets/a", SECRET),
    Sent("PUT", f"{CORE}/configmaps/a", CONFIG_MAP),
    Sent("PUT", f"{TOYS}/a", TOY),
    Sent("PUT", f"{TOYS}/a/status", TOY | TOY_STATUS),
    Sent("PUT", f"{TOYS}/a/scale", {"metadata": {"name": "a"}, "spec": {"replicas": 2}}),
    Sent("PUT", "/api/v1/namespaces/passing/finalize", {"metadata": {"name": "passing"}, "spec": {"finalizers": []}}),
    Sent("PUT", f"{DEFINITIONS}/toys.example.com/status", DEFINITION | {"status": {"storedVersions": ["v1"]}}),
    patch(f"{CORE}/configmaps/a", OPERATIONS, JSON_PATCH),
    patch(f"{TOYS}/a", OPERATIONS, JSON_PATCH),
    patch(f"{TOYS}/a/status", [{"op": "add", "path": "/status", "value": TOY_STATUS["status"]}], JSON_PATCH),
    patch(f"{TOYS}/a", {"metadata": METADATA, "spec": TOY["spec"], **TOY_STATUS}, MERGE_PATCH),
    patch(f"{TOYS}/a/status", TOY_STATUS, MERGE_PATCH),
    patch(f"{DEFINITIONS}/toys.example.com", {"spec": DEFINITION["spec"]}, MERGE_PATCH),
    patch(f"{CORE}/secrets/a", STRATEGIC, STRATEGIC_PATCH),
    patch("/api/v1/namespaces/passing", STRATEGIC, STRATEGIC_PATCH),
    patch("/apis/apps/v1/namespaces/played/deployments/a", {"spec": DEPLOYMENT["spec"]}, STRATEGIC_PATCH),
    patch("/apis/apps/v1/namespaces/played/deployments/a", DEPLOYMENT, APPLY_PATCH, fieldManager="f", force="true"),
    patch(f"{CORE}/secrets/a", {"apiVersion": "v1", "kind": "Secret"} | SECRET, APPLY_PATCH, fieldManager="f"),
    patch(f"{TOYS}/a", TOY, APPLY_PATCH, fieldManager="f", force="true"),
    patch(f"{TOYS}/a/status", TOY | TOY_STATUS, APPLY_PATCH, fieldManager="g"),
    patch(f"{DEFINITIONS}/toys.example.com", DEFINITION, APPLY_PATCH, fieldManager="f", force="true"),
    Sent("DELETE", f"{CORE}/secrets/a", DELETION),
    Sent("DELETE", f"{CORE}/secrets/a"),
    Sent("DELETE", f"{CORE}/configmaps", query={"propagationPolicy": "Foreground"}),
    Sent("DELETE", f"{CORE}/secrets", DELETION, {"labelSelector": "a=b"}),
    Sent("DELETE", f"{TOYS}/a", DELETION),
    Sent("DELETE", f"{TOYS}/a", {"propagationPolicy": "Orphan"}),
    Sent("DELETE", TOYS, DELETION, {"fieldSelector": "spec.a=q", "limit": "1"}),
    Sent("DELETE", "/api/v1/namespaces/passing", {"propagationPolicy": "Background"}),
    Sent("DELETE", f"{DEFINITIONS}/toys.example.com", DELETION),
    Sent("DELETE", f"{DEFINITIONS}/toys.example.com"),
    Sent("GET", f"{CORE}/secrets", query={"limit": "1", "labelSelector": "a in (b)", "resourceVersionMatch": "Exact"}),
    Sent("GET", TOYS, query={"limit": "1", "fieldSelector": "metadata.name=a"}),
    Sent("GET", f"{TOYS}/a/scale"),
    Sent("GET", f"{CORE}/configmaps/a", query={"resourceVersion": "1"}),
    Sent("GET", f"{CORE}/configmaps", query=WATCH),
    Sent("GET", TOYS, query=WATCH | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}),
    Sent("GET", "/api/v1/watch/namespaces/played/secrets/a", query=WATCH),
    Sent("GET", "/apis"),
    Sent("GET", "/openapi/v3/apis/example.com/v1"),
    Sent("POST", f"{CORE}/serviceaccounts/default/token", {"spec": TOKEN}),
    Sent("POST", f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"user": "a", "resourceAttributes": ACCESS}}),
    Sent("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "played"}}),
    Sent("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "x", "audiences": ["a"]}}),
)


# --- Requests garbled in every way that a body, a query, a header or a path can be: odd values, and named mutations ---

ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, float("nan"), "", "x", [], {}, [None], [[]], [{}]),
    *({"a": None}, {"": 1}, {"x": {"y": [1]}}, ["x"], ["x", "x"], "a" * 300, "\ud83d", "\x00", "é", "1", "true"),
    *("..", "a/b", "A_b", "$patch", "$(a)", "2030-13-01T00:00:00Z", "9999-12-31T23:59:59Z", "1e9999", "(", "(?<=a)b"),
    *("/", "/~2", "/metadata/labels/-", "/spec/l/99999999999999999999", "/spec/l/-1", ".spec.l[*].n", ".spec[", "."),
    *("v1", "v2", "example.com/v1", "integer", "array", "object", "null", "int64", "date-time", "cidr", "Webhook"),
    *(
        "self",
        "self.",
        "oldSelf.a == self.a",
        "1 / 0 == 1",
        "self.x.y",
        "self.all(x, x)",
        "self.matches('(')",
        "has(self)",
    ),
    *("size(self) > 'a'", "timestamp('x') > self", "quantity('1z')", "[1][9]", "{'a': 1}.b", "self.l.map(x, x)[0].n"),
    *({"$ref": "#"}, {"type": "object"}, {"type": "array"}, {"not": {}}, {"fieldPath": 1}, {"rule": "self == self"}),
)
ODD_KEYS: Final = ("", "x", "$patch", "$retainKeys", "a.b", "metadata", "kind", "status", "f:a", "k:{", "items", "/~1")
ODD_QUERIES: Final = {
    "labelSelector": ("a in (b", "a=b,", "!", "a>1", "a>b", "=", "a notin ()", "é", "\x00", "a" * 5000),
    "fieldSelector": ("metadata.name=a,", "metadata.name\\=b", "spec.a=", "x=y", "==", "metadata.name!=a,status.x=1"),
    "limit": ("", "0", "-1", "x", "1.5", "9" * 18, "9" * 30),
    "continue": ("", "x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "e30", "é", "=" * 9),
    "resourceVersion": ("", "0", "1", "-1", "x", "9" * 19, "9" * 30, "\N{ARABIC-INDIC DIGIT ONE}"),
    "resourceVersionMatch": ("", "Exact", "NotOlderThan", "x"),
    "timeoutSeconds": ("-9", "x", "1.5", "-0x1", "9" * 30),
    "sendInitialEvents": ("", "true", "false", "x"),
    "allowWatchBookmarks": ("", "true", "x"),
    "pretty": ("", "true", "x"),
    "includeObject": ("", "None", "Object", "x"),
    "timeout": ("", "0", "1h", "x", "-1s", "1e9s", f"{'9' * 400}h"),
    "dryRun": ("", "All", "x"),
    "fieldManager": ("", "x", "a" * 200, "\x00", "é"),
    "fieldValidation": ("", "Strict", "Ignore", "Warn", "x"),
    "force": ("", "true", "x"),
    "propagationPolicy": ("", "Orphan", "Foreground", "x"),
    "gracePeriodSeconds": ("", "-1", "x", "9" * 30),
    "orphanDependents": ("", "true", "x"),
    "\x00é": ("\x00é",),
}
ODD_HEADERS: Final = {
    "Accept": (
        *("", "*/*", "x", ";;,,", "application/yaml", "application/json;q=x", "application/vnd.kubernetes.protobuf"),
        *(f"application/json;as={form};v=v1;g=meta.k8s.io" for form in ("Table", "PartialObjectMetadata", "x")),
        *("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9;g=x"),
    ),
    "Content-Type": (
        *("", "x", "text/plain", "application/yaml", "application/json; charset=x", "application/cbor", "*/*"),
        *("application/vnd.kubernetes.protobuf", JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH),
    ),
    "Impersonate-User": ("", "a", "system:serviceaccount:played:default", "system:serviceaccount::", "é"),
    "Impersonate-Group": ("", "system:masters", "é"),
    "Impersonate-Uid": ("", "x"),
    "Impersonate-Extra-%zz": ("x",),
    "Authorization": ("", "x", "Basic eDp5", "Bearer", "Bearer a.b.c", "Bearer é", "Bearer eyJhbGciOiJub25lIn0.e30."),
    "User-Agent": ("", "é/1"),
    "Accept-Encoding": ("gzip", "gzip;q=x", "x"),
    "Content-Encoding": ("gzip", "x"),
}


def malformed(seed: int) -> Iterator[Sent]:
    """Generate endless requests; equal seeds give equal requests."""
    draw = Draw(seed)  # noqa: S311 - repeatable, no secret
    while True:
        sent = draw.choice(PLAIN)
        for mutation in draw.choices(list(MUTATIONS), list(MUTATIONS.values()), k=draw.choice((1, 1, 1, 2, 3))):
            sent = mutation(sent, draw)
        yield replace(sent, body=None if sent.body is None else _text(sent.body))


Mutation = Callable[[Sent, Draw], Sent]


def another_value(sent: Sent, draw: Draw) -> Sent:
    return _edited(sent, draw, lambda holder, key: holder.__setitem__(key, copy.deepcopy(draw.choice(ODD_VALUES))))


def a_value_of_elsewhere(sent: Sent, draw: Draw) -> Sent:
    holders = list(_places(sent.body))
    if not holders:
        return sent
    holder, key = draw.choice(holders)
    return _edited(sent, draw, lambda other, place: other.__setitem__(place, copy.deepcopy(holder[key])))


def a_value_less(sent: Sent, draw: Draw) -> Sent:
    return _edited(sent, draw, lambda holder, key: holder.__delitem__(key))


def a_value_more(sent: Sent, draw: Draw) -> Sent:
    def add(holder: Any, key: Any) -> None:
        if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[draw.choice(ODD_KEYS)] = copy.deepcopy(draw.choice(ODD_VALUES))

    return _edited(sent, draw, add)


def another_body(sent: Sent, draw: Draw) -> Sent:
    return replace(sent, body=copy.deepcopy(draw.choice(ODD_VALUES)))


def a_value_wrapped_often(sent: Sent, draw: Draw) -> Sent:
    def wrap(holder: Any, key: Any) -> None:
        for _ in range(draw.choice((1, 40, 150))):
            holder[key] = draw.choice(([holder[key]], {"a": holder[key]}))

    return _edited(sent, draw, wrap)


def garbled_text(sent: Sent, draw: Draw) -> Sent:
    text = _text(sent.body)
    start, length = draw.randrange(len(text) + 1), draw.randrange(4)
    garbage = draw.choice(
        (b"", b"}", b'"', b",", b"\xff", b"\x00", b"1e999", b'"a":1,"a":2,', b"- &a [*a]\n", b"9" * 5000, b"[" * 20_000)
    )
    return replace(sent, body=text[:start] + garbage + text[start + length :])


def text_cut_off(sent: Sent, draw: Draw) -> Sent:
    text = _text(sent.body)
    return replace(sent, body=text[: draw.randrange(len(text) + 1)])


def another_query(sent: Sent, draw: Draw) -> Sent:
    name = draw.choice(list(ODD_QUERIES))
    return replace(sent, query=sent.query | {name: draw.choice(ODD_QUERIES[name])})


def a_watch_instead(sent: Sent, draw: Draw) -> Sent:
    return another_query(replace(sent, query=sent.query | WATCH), draw)


def another_header(sent: Sent, draw: Draw) -> Sent:
    name = draw.choice(list(ODD_HEADERS))
    return replace(sent, headers=sent.headers | {name: draw.choice(ODD_HEADERS[name])})


def another_path(sent: Sent, draw: Draw) -> Sent:
    parts = sent.path.split("/")
    place = draw.randrange(1, len(parts))
    odd = ("x", "A", "%00", "%ff", "%2F", "é", "status", "scale", "a" * 300, parts[-1])
    # Without its last part it would be a good request on everything there is.
    parts[place] = draw.choice(odd if place == len(parts) - 1 else ("", *odd))
    return replace(sent, path="/".join(parts))


def as_it_is(sent: Sent, _: Draw) -> Sent:
    """Return requests that succeed, so that later ones find objects."""
    return sent


MUTATIONS: Final[dict[Mutation, int]] = {
    another_value: 40,
    a_value_of_elsewhere: 8,
    a_value_less: 10,
    a_value_more: 8,
    another_body: 2,
    a_value_wrapped_often: 2,
    garbled_text: 3,
    text_cut_off: 2,
    another_query: 12,
    a_watch_instead: 2,
    another_header: 8,
    another_path: 3,
    as_it_is: 8,
}
"""Mutations with their weights."""


def _edited(sent: Sent, draw: Draw, edit: Callable[[Any, Any], None]) -> Sent:
    """Copy the request with one place of its body changed; an empty body stays as it is."""
    body = copy.deepcopy(sent.body)
    places = list(_places(body))
    if places:
        edit(*draw.choice(places))
    return replace(sent, body=body)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict | list):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key])


def _text(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
