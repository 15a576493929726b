"""The schema of schemas: which keywords an openAPIV3Schema has, and their types.

It refers to itself, so it is only walked together with a value: to decode and to prune, never to publish.
"""

from __future__ import annotations

from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.schema.decoding import COMPONENT, GO_TYPE, ONE_OR

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
