"""A table of requests, one for each thing that a client can ask for: `malformed` garbles them.

They are aimed at the namespaces `played` and `passing`, at the kind Toy of example.com, and at objects named `a`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
