"""Rules of a CustomResourceDefinition's spec: names, versions, schemas, columns, selectable fields, conversion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, fieldpaths, names
from localkube.schema.crd_schema import schema_causes

_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")


def spec_causes(spec: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    """Report the mistakes in a spec. A schema that did not change is not checked again."""
    yield from _group_causes(spec)
    if not spec.get("scope"):
        yield causes.required("spec.scope")
    elif spec["scope"] not in {"Cluster", "Namespaced"}:
        yield causes.not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    yield from _version_list_causes(spec.get("versions") or [])
    yield from _name_causes(spec.get("names") or {})
    known = [version.get("schema") for version in (old or {}).get("versions") or ()]
    for version, path in _by_place(spec, "schema", "spec.validation"):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema and version.get("schema") not in known:
            yield from schema_causes(schema, f"{path}.openAPIV3Schema")
    for version, path in _by_place(spec, "additionalPrinterColumns", "spec.additionalPrinterColumns"):
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column_causes(column, f"{path}[{index}]")
    for version, path in _by_place(spec, "selectableFields", "spec.selectableFields"):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        for index, field in enumerate(version.get("selectableFields") or ()):
            yield from _selectable_causes(field.get("jsonPath") or "", schema, f"{path}[{index}].jsonPath")
    yield from _conversion_causes(spec.get("conversion") or {})
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield causes.invalid("spec.preserveUnknownFields", value=True, detail=detail)


def immutable_causes(spec: JsonObject, old: JsonObject, *, established: bool) -> Iterator[Cause]:
    """Report changes that an update may not make; scope and kind are bound once the definition is established."""
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


def _version_list_causes(versions: list[JsonObject]) -> Iterator[Cause]:
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if wrong := names.dns1035_label(name):
            yield causes.invalid(f"{path}.name", name, ",".join(wrong))
            if index == 0:
                yield causes.invalid("spec.version", name, ",".join(wrong))
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield causes.required(f"{path}.schema.openAPIV3Schema")
    shown = [version.get("name", "") for version in versions]
    if len(set(shown)) != len(shown):
        yield causes.invalid("spec.versions", shown, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield causes.invalid("spec.versions", shown, "must have exactly one version marked as storage version")


def _name_causes(declared: JsonObject) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        if not declared.get(field):
            yield causes.required(f"spec.names.{field}")
            continue
        cased = field in {"kind", "listKind"}
        if wrong := names.dns1035_label(declared[field].lower() if cased else declared[field]):
            detail = "may have mixed case, but should otherwise match: " if cased else ""
            yield causes.invalid(f"spec.names.{field}", declared[field], detail + ",".join(wrong))
    for field in ("shortNames", "categories"):
        for index, text in enumerate(declared.get(field) or ()):
            if wrong := names.dns1035_label(text):
                yield causes.invalid(f"spec.names.{field}[{index}]", text, ",".join(wrong))
    if declared.get("kind") and declared.get("kind") == declared.get("listKind"):
        yield causes.invalid("spec.names.listKind", declared["listKind"], "kind and listKind may not be the same")


def _by_place(spec: JsonObject, field: str, top: str) -> Iterator[tuple[JsonObject, str]]:
    """List the versions to check with the path to report: once at the top if all versions agree, as the real server."""
    versions = list(spec.get("versions") or ())
    if versions and all(version.get(field) == versions[0].get(field) for version in versions):
        yield versions[0], top
        return
    for index, version in enumerate(versions):
        yield version, f"spec.versions[{index}].{field}"


def _column_causes(column: JsonObject, path: str) -> Iterator[Cause]:
    if not column.get("name"):
        yield causes.required(f"{path}.name")
    if column.get("type") not in _COLUMN_TYPES:
        yield causes.invalid(f"{path}.type", column.get("type") or "", "must be one of " + ",".join(_COLUMN_TYPES))
    json_path = column.get("jsonPath") or ""
    if not json_path.startswith("."):
        yield causes.invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable_causes(text: str, schema: JsonObject, path: str) -> Iterator[Cause]:
    try:
        found = fieldpaths.resolve(text, schema, brackets="refused")
    except fieldpaths.PathError as failure:
        yield causes.invalid(path, text, f"is an invalid path: {failure}")
        return
    if found.schema.get("type") not in {"string", "boolean", "integer"}:
        yield causes.invalid(path, text, "must point to a field of type string, boolean or integer")


def _conversion_causes(conversion: JsonObject) -> Iterator[Cause]:
    """Check the strategy. A webhook is accepted, but never called: our conversion changes only the apiVersion."""
    strategy = conversion.get("strategy") or ""
    if not strategy:
        yield causes.required("spec.conversion.strategy")
    elif strategy not in {"None", "Webhook"}:
        yield causes.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
