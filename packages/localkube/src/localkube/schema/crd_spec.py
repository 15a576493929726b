"""Rules of a CustomResourceDefinition's spec: names, versions, schemas, columns, selectable fields, conversion.

What is the same in all versions is reported at the top of the spec (`spec.validation...`), as kube-apiserver does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from kuberun.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, fieldpaths, names
from localkube.schema.crd_defaults import default_causes
from localkube.schema.crd_schema import keyword_causes, structural_causes

MAX_SELECTABLE_FIELDS: Final = 8
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_ALLOWED_AT_ROOT: Final = frozenset(
    {"description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"}
    | {"maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items"}
    | {"properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
    | {"nullable"}
)


def spec_causes(spec: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    """Everything that is wrong with a spec. Schemas that did not change are not looked at again."""
    yield from _group_causes(spec)
    if not spec.get("scope"):
        yield causes.required("spec.scope")
    elif spec["scope"] not in {"Cluster", "Namespaced"}:
        yield causes.not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    yield from _version_list_causes(spec)
    yield from _name_causes(spec.get("names") or {})
    known = _schemas(old)
    for version, prefix in _by_place(spec, "schema", "spec.validation"):
        yield from _schema_causes(version, prefix, known)
    for version, prefix in _by_place(spec, "subresources", "spec.subresources"):
        yield from _scale_causes((version.get("subresources") or {}).get("scale"), f"{prefix}.scale")
    for version, prefix in _by_place(spec, "additionalPrinterColumns", "spec.additionalPrinterColumns"):
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column_causes(column, f"{prefix}[{index}]")
    for version, prefix in _by_place(spec, "selectableFields", "spec.selectableFields"):
        yield from _selectable_causes(version, prefix)
    yield from _conversion_causes(spec.get("conversion"))
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield causes.invalid("spec.preserveUnknownFields", value=True, detail=detail)


def immutable_causes(spec: JsonObject, old: JsonObject, *, established: bool) -> Iterator[Cause]:
    """What an update may not change; scope and kind only bind once the definition is established."""
    paths = [("group",), ("names", "plural")]
    if established:
        paths += [("scope",), ("names", "kind")]
    for path in paths:
        new_value, old_value = _at(spec, path), _at(old, path)
        if new_value != old_value:
            yield causes.invalid("spec." + ".".join(path), new_value, "field is immutable")


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def _group_causes(spec: JsonObject) -> Iterator[Cause]:
    group = spec.get("group") or ""
    if not group:
        yield causes.required("spec.group")
    elif wrong := names.dns_subdomain(group):
        yield causes.invalid("spec.group", group, ",".join(wrong))
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _version_list_causes(spec: JsonObject) -> Iterator[Cause]:
    versions = spec.get("versions") or []
    for index, version in enumerate(versions):
        where, name = f"spec.versions[{index}]", version.get("name") or ""
        if wrong := names.dns1035_label(name):
            yield causes.invalid(f"{where}.name", name, ",".join(wrong))
            if index == 0:
                yield causes.invalid("spec.version", name, ",".join(wrong))
        warning = version.get("deprecationWarning")
        if warning is not None and not version.get("deprecated"):
            yield causes.invalid(f"{where}.deprecationWarning", warning, "can only be set for deprecated versions")
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield causes.required(f"{where}.schema.openAPIV3Schema")
    if len({version.get("name") for version in versions}) != len(versions):
        yield causes.invalid("spec.versions", _shown(versions), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", _shown(versions), detail)


def _shown(versions: list[JsonObject]) -> causes.Verbatim:
    """Versions as the real server prints them, without what all of them share."""
    rows = [
        {
            "Name": version.get("name", ""),
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
            **dict.fromkeys(("Schema", "Subresources", "AdditionalPrinterColumns", "SelectableFields")),
        }
        for version in versions
    ]
    shown = ",".join(
        "{" + ",".join(f'"{key}":{causes.go_json(value)}' for key, value in row.items()) + "}" for row in rows
    )
    return causes.Verbatim(f"[{shown}]")


def _name_causes(wanted: JsonObject) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        if not wanted.get(field):
            yield causes.required(f"spec.names.{field}")
    for field in ("plural", "singular"):
        if wanted.get(field) and (wrong := names.dns1035_label(wanted[field])):
            yield causes.invalid(f"spec.names.{field}", wanted[field], ",".join(wrong))
    for field in ("kind", "listKind"):
        if wanted.get(field) and (wrong := names.dns1035_label(wanted[field].lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(wrong)
            yield causes.invalid(f"spec.names.{field}", wanted[field], detail)
    for field in ("shortNames", "categories"):
        for index, text in enumerate(wanted.get(field) or ()):
            if wrong := names.dns1035_label(text):
                yield causes.invalid(f"spec.names.{field}[{index}]", text, ",".join(wrong))
    if wanted.get("kind") and wanted.get("kind") == wanted.get("listKind"):
        yield causes.invalid("spec.names.listKind", wanted["listKind"], "kind and listKind may not be the same")


def _by_place(spec: JsonObject, field: str, top: str) -> Iterator[tuple[JsonObject, str]]:
    """The versions to look at, and where their part is reported: once at the top if all versions agree."""
    versions = list(spec.get("versions") or ())
    if versions and all(version.get(field) == versions[0].get(field) for version in versions):
        yield versions[0], top
        return
    for index, version in enumerate(versions):
        yield version, f"spec.versions[{index}].{field}"


def _schemas(spec: JsonObject | None) -> list[Any]:
    return [(version.get("schema"), version.get("subresources")) for version in (spec or {}).get("versions") or ()]


def _schema_causes(version: JsonObject, prefix: str, known: list[Any]) -> Iterator[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not schema or (version.get("schema"), version.get("subresources")) in known:
        return
    path = f"{prefix}.openAPIV3Schema"
    if "status" in (version.get("subresources") or {}):
        yield from _root_causes(schema, path)
    if schema.get("nullable"):
        yield causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    found = structural_causes(schema, path) if _is_plain(schema) else []
    if not found:
        found = list(default_causes(copy.deepcopy(schema), path))
    yield from found
    yield from keyword_causes(schema, path)


def _is_plain(schema: Any) -> bool:
    """Whether the schema has no keyword that is refused anyway and would hide what it means."""
    if isinstance(schema, list):
        return all(_is_plain(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if any(schema.get(name) for name in ("$ref", "id", "patternProperties", "definitions", "dependencies")):
        return False
    if isinstance(schema.get("items"), list) or schema.get("additionalItems"):
        return False
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return False
    parts = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return all(_is_plain(part) for part in parts)


def _root_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    if schema.get("type") not in (None, "", "object"):
        detail = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        yield causes.invalid(f"{path}.type", schema["type"], detail)
    if extra := sorted(name for name in schema if name not in _ALLOWED_AT_ROOT):
        listed = " ".join(extra)
        detail = f"{listed}: not allowed at the root of the schema if the status subresource is enabled"
        yield causes.invalid(path, causes.OMITTED, detail)


def _scale_causes(scale: JsonObject | None, path: str) -> Iterator[Cause]:
    if scale is None:
        return
    for field, under in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        text = scale.get(field) or ""
        if not text:
            yield causes.required(f"{path}.{field}")
        elif not text.startswith("."):
            yield causes.invalid(f"{path}.{field}", text, "must be a simple json path starting with .")
        elif not text.startswith(under):
            yield causes.invalid(f"{path}.{field}", text, f"should be a json path under {under[:-1]}")


def _column_causes(column: JsonObject, path: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield causes.required(f"{path}.name")
    kind, form = column.get("type") or "", column.get("format") or ""
    allowed = "must be one of " + ",".join(_COLUMN_TYPES)
    if not kind:
        yield causes.required(f"{path}.type", allowed)
    elif kind not in _COLUMN_TYPES:
        yield causes.invalid(f"{path}.type", kind, allowed)
    if form and form not in _COLUMN_FORMATS:
        yield causes.invalid(f"{path}.format", form, "must be one of " + ",".join(_COLUMN_FORMATS))
    json_path = column.get("jsonPath") or ""
    if not json_path:
        yield causes.required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield causes.invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable_causes(version: JsonObject, path: str) -> Iterator[Cause]:
    fields = version.get("selectableFields") or []
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where, text = f"{path}[{index}].jsonPath", field.get("jsonPath") or ""
        if not text:
            yield causes.required(where)
            continue
        try:
            found = fieldpaths.resolve(text, schema, brackets="refused")
        except fieldpaths.PathError as failure:
            yield causes.invalid(where, text, f"is an invalid path: {failure}")
            continue
        if found.steps[0] == "metadata":
            yield causes.invalid(where, text, "must not point to fields in metadata")
        if found.schema.get("type") not in {"string", "boolean", "integer"}:
            detail = (
                "must point to a field of type string, boolean or integer. "
                "Enum string fields and strings with formats are allowed."
            )
            yield causes.invalid(where, text, detail)
        if found.path in seen:
            yield causes.duplicate(where, text)
        seen.add(found.path)
    if len(seen) > MAX_SELECTABLE_FIELDS:
        yield causes.too_many(path, len(seen), MAX_SELECTABLE_FIELDS)


def _conversion_causes(conversion: JsonObject | None) -> Iterator[Cause]:
    if conversion is None:
        return
    strategy, webhook = conversion.get("strategy") or "", conversion.get("webhook") or {}
    versions, client = webhook.get("conversionReviewVersions"), webhook.get("clientConfig")
    where = "spec.conversion"
    if not strategy:
        yield causes.required(f"{where}.strategy")
    elif strategy not in {"None", "Webhook"}:
        yield causes.not_supported(f"{where}.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        if client is None:
            yield causes.required(f"{where}.webhookClientConfig", "required when strategy is set to Webhook")
        if not versions:
            yield causes.required(f"{where}.conversionReviewVersions")
        return
    detail = "should not be set when strategy is not set to Webhook"
    if client is not None:
        yield causes.forbidden(f"{where}.webhookClientConfig", detail)
    if versions:
        yield causes.forbidden(f"{where}.conversionReviewVersions", detail)
