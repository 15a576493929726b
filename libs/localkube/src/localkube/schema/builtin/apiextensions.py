"""apiextensions.k8s.io/v1: CustomResourceDefinition itself."""

from __future__ import annotations

from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.model import ServedKind
from localkube.schema.builtin.kinds import anything, boolean, builtin_kind, conditions, integer, items, struct, text
from localkube.schema.crd import prepare_crd
from localkube.schema.decoding import COMPONENT, GO_TYPE, ONE_OR

# --- The schema of schemas: which keywords an openAPIV3Schema has, and their types ------------------------------------
# It refers to itself, so it is only walked together with a value: to decode and to prune, never to publish.


_EXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_TEXTS: Final = ("id", "$schema", "$ref", "description", "type", "format", "title", "pattern")
_TEXTS_OF_LISTS_AND_MAPS: Final = ("x-kubernetes-list-type", "x-kubernetes-map-type")
_COUNTS: Final = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_NUMBERS: Final = ("maximum", "minimum", "multipleOf")
_FLAGS: Final = (
    "nullable",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "uniqueItems",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
_TEXT: Final[JsonObject] = {"type": "string"}
_COUNT: Final[JsonObject] = {"type": "integer", "format": "int64"}
_NUMBER: Final[JsonObject] = {"type": "number"}
_FLAG: Final[JsonObject] = {"type": "boolean"}
_ANYTHING: Final[JsonObject] = {"x-kubernetes-preserve-unknown-fields": True, GO_TYPE: "v1.JSON"}
_RULE: Final[JsonObject] = {
    COMPONENT: f"{_EXTENSIONS}.ValidationRule",
    "type": "object",
    "properties": {
        **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), _TEXT),
        "optionalOldSelf": _FLAG,
    },
}
_DOCUMENTATION: Final[JsonObject] = {
    COMPONENT: f"{_EXTENSIONS}.ExternalDocumentation",
    "type": "object",
    "properties": {"description": _TEXT, "url": _TEXT},
}


def _json_schema() -> JsonObject:
    schema: JsonObject = {COMPONENT: f"{_EXTENSIONS}.JSONSchemaProps", "type": "object"}
    by_name = {"type": "object", "additionalProperties": schema}
    several = {"type": "array", "items": schema}
    texts = {"type": "array", "items": _TEXT}
    # Inside these two the real decoder is lenient: unknown keywords are not reported.
    lenient: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True, "properties": {}}
    schema["properties"] = {
        **dict.fromkeys((*_TEXTS, *_TEXTS_OF_LISTS_AND_MAPS), _TEXT),
        **dict.fromkeys(_COUNTS, _COUNT),
        **dict.fromkeys(_NUMBERS, _NUMBER),
        **dict.fromkeys(_FLAGS, _FLAG),
        **dict.fromkeys(("properties", "patternProperties", "definitions"), by_name),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), several),
        **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), texts),
        **dict.fromkeys(("default", "example", "dependencies"), _ANYTHING),
        "not": schema,
        "enum": {"type": "array", "items": _ANYTHING},
        "items": {**lenient, ONE_OR: ("list", schema)},
        "additionalProperties": {**lenient, ONE_OR: ("bool", schema)},
        "additionalItems": {**lenient, ONE_OR: ("bool", schema)},
        "externalDocs": _DOCUMENTATION,
        "x-kubernetes-validations": {"type": "array", "items": _RULE, GO_TYPE: "v1.ValidationRules"},
    }
    return schema


JSON_SCHEMA: Final[JsonObject] = _json_schema()


def definition_kinds() -> list[ServedKind]:
    kind = builtin_kind(
        Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
        ),
        f"{_EXTENSIONS}.CustomResourceDefinition",
        "Makes the server serve a new kind.",
        {"spec": _spec(anything("An OpenAPI v3 schema.")), "status": _status()},
        required=["spec"],
        decoded_fields={"spec": _spec(JSON_SCHEMA), "status": _status()},
        prepare=prepare_crd,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=frozenset({"status"}),
    )
    return [kind]


def _names(description: str) -> JsonObject:
    return struct(
        f"{_EXTENSIONS}.CustomResourceDefinitionNames",
        description,
        {
            "plural": text("Name in URLs."),
            "singular": text("Name of one object; the kind in lower case by default."),
            "kind": text("Kind of the objects."),
            "listKind": text("Kind of a list; the kind and List by default."),
            "shortNames": items({"type": "string"}, "Short names for command lines."),
            "categories": items({"type": "string"}, "Groups of kinds for command lines, such as all."),
        },
        required=["plural", "kind"],
    )


def _spec(schema: JsonObject) -> JsonObject:
    conversion = struct(
        f"{_EXTENSIONS}.CustomResourceConversion",
        "How objects are converted between versions.",
        {"strategy": text("None or Webhook."), "webhook": anything("The webhook that converts.")},
        required=["strategy"],
    )
    return struct(
        f"{_EXTENSIONS}.CustomResourceDefinitionSpec",
        "What is served.",
        {
            "group": text("API group of the kind."),
            "names": _names("Names of the kind."),
            "scope": text("Namespaced or Cluster."),
            "versions": items(_version(schema), "The versions of the kind."),
            "conversion": conversion,
            "preserveUnknownFields": boolean("Must be false."),
        },
        required=["group", "names", "scope", "versions"],
    )


def _version(schema: JsonObject) -> JsonObject:
    column = struct(
        f"{_EXTENSIONS}.CustomResourceColumnDefinition",
        "A column in tables of the objects.",
        {
            "name": text("Heading of the column."),
            "type": text("Type of the cells."),
            "format": text("Format of the cells."),
            "description": text("What the column shows."),
            "priority": integer("Columns above 0 are shown in wide tables only."),
            "jsonPath": text("Where the cell comes from."),
        },
        required=["name", "type", "jsonPath"],
    )
    selectable = struct(
        f"{_EXTENSIONS}.SelectableField",
        "A field that field selectors may use.",
        {"jsonPath": text("Where the field is.")},
        required=["jsonPath"],
    )
    validation = struct(
        f"{_EXTENSIONS}.CustomResourceValidation",
        "What the objects look like.",
        {"openAPIV3Schema": schema},
    )
    scale = struct(
        f"{_EXTENSIONS}.CustomResourceSubresourceScale",
        "Where the scale subresource finds its fields.",
        {
            "specReplicasPath": text("Where the wanted number of replicas is."),
            "statusReplicasPath": text("Where the present number of replicas is."),
            "labelSelectorPath": text("Where the selector of the replicas is."),
        },
        required=["specReplicasPath", "statusReplicasPath"],
    )
    subresources = struct(
        f"{_EXTENSIONS}.CustomResourceSubresources",
        "Parts of the objects with URLs of their own.",
        {"status": anything("The status subresource."), "scale": scale},
    )
    return struct(
        f"{_EXTENSIONS}.CustomResourceDefinitionVersion",
        "One version of the kind.",
        {
            "name": text("Name of the version, such as v1beta1."),
            "served": boolean("Whether the version is served."),
            "storage": boolean("Whether objects are stored in this version."),
            "deprecated": boolean("Whether clients are warned."),
            "deprecationWarning": text("The warning."),
            "schema": validation,
            "subresources": subresources,
            "additionalPrinterColumns": items(column, "Columns in tables."),
            "selectableFields": items(selectable, "Fields for field selectors."),
        },
        required=["name", "served", "storage"],
    )


def _status() -> JsonObject:
    return struct(
        f"{_EXTENSIONS}.CustomResourceDefinitionStatus",
        "What became of the definition.",
        {
            "conditions": conditions(f"{_EXTENSIONS}.CustomResourceDefinitionCondition"),
            "acceptedNames": _names("Names that are served."),
            "storedVersions": items({"type": "string"}, "Versions in which objects may be stored."),
        },
    )
