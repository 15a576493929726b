"""Rules of a CustomResourceDefinition's spec: names, versions, schemas, columns, selectable fields, conversion."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from kubebase.meta import JsonObject
from localkube.errors import Cause
from localkube.schema import causes, formats, metadata, pruning, rules, values
from localkube.schema.causes import Problem, shown
from localkube.schema.cel import BOOL, STRING, CompileError, Type, compile_program, type_of_schema

# --- CEL rules, checked when a definition is written: a rule that does not compile is refused, never skipped ----------

_RULES: Final = "x-kubernetes-validations"
_NO_TYPE: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)


def rule_causes(schema: Any, path: str, *, root: bool = True, uncorrelated: str = "") -> Iterator[Cause]:
    """Report the mistakes in the rules at and below a schema. `uncorrelated` is the list that has no oldSelf."""
    if not isinstance(schema, dict):
        return
    yield from _node_causes(schema, f"{path}.{_RULES}", root=root, uncorrelated=uncorrelated)
    for name, part in (schema.get("properties") or {}).items():
        yield from rule_causes(part, f"{path}.properties[{name}]", root=False, uncorrelated=uncorrelated)
    extra, lost = schema.get("additionalProperties"), schema.get("x-kubernetes-list-type") != "map"
    yield from rule_causes(extra, f"{path}.additionalProperties", root=False, uncorrelated=uncorrelated)
    uncorrelated = uncorrelated or (path if lost else "")
    yield from rule_causes(schema.get("items"), f"{path}.items", root=False, uncorrelated=uncorrelated)


def _node_causes(schema: JsonObject, path: str, *, root: bool, uncorrelated: str) -> Iterator[Cause]:
    declared = schema.get(_RULES) or []
    if not declared:
        return
    kind = type_of_schema(schema, root=root, name="self")
    if kind is None:
        yield Cause(path, _NO_TYPE, "InternalError")
        return
    scope = {"self": kind, "oldSelf": kind}
    for index, rule in enumerate(declared):
        where = f"{path}[{index}]"
        if rule.get("optionalOldSelf") is not None:
            yield causes.forbidden(f"{where}.optionalOldSelf", "optionalOldSelf is not supported")
        yield from _field_path_causes(str(rule.get("fieldPath") or ""), schema, f"{where}.fieldPath")
        yield from _expression_causes(rule, "rule", scope, where, uncorrelated)
        if rule.get("messageExpression"):
            yield from _expression_causes(rule, "messageExpression", scope, where)


def _field_path_causes(field_path: str, schema: JsonObject, path: str) -> Iterator[Cause]:
    if not field_path:
        return
    try:
        rules.resolve(field_path, schema)
    except rules.PathError:
        yield causes.invalid(path, field_path, "must be a valid path")


def _expression_causes(
    rule: JsonObject, field: str, scope: dict[str, Type], where: str, uncorrelated: str = ""
) -> Iterator[Cause]:
    text = str(rule.get(field) or "")
    expected, name, prefix = (BOOL, "bool", "") if field == "rule" else (STRING, "string", "messageExpression ")
    if not text.strip():
        yield causes.required(f"{where}.{field}", f"{field} is not specified")
        return
    try:
        program = compile_program(text, scope)
    except CompileError as failure:
        yield causes.invalid(f"{where}.{field}", _shown(rule), f"{prefix}compilation failed: {failure}")
        return
    if program.type != expected:
        detail = f"{prefix or 'cel expression '}must evaluate to a {name}"
        yield causes.invalid(f"{where}.{field}", _shown(rule), detail)
    if uncorrelated and "oldSelf" in program.variables:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield causes.invalid(f"{where}.{field}", text, detail)


def _shown(rule: JsonObject) -> causes.Verbatim:
    """Print a rule as the real server does, with the field names of its Go struct."""
    fields = (
        ("Rule", rule.get("rule", "")),
        ("Message", rule.get("message", "")),
        ("MessageExpression", rule.get("messageExpression", "")),
        ("Reason", rule.get("reason")),
        ("FieldPath", rule.get("fieldPath", "")),
        ("OptionalOldSelf", rule.get("optionalOldSelf")),
    )
    return causes.Verbatim("{" + ",".join(f'"{name}":{causes.go_json(value)}' for name, value in fields) + "}")


# --- Rules of an openAPIV3Schema: only schemas that the server can enforce are accepted -------------------------------
# Types are given, keywords are supported, patterns compile, and lists that are sets or maps declare their keys.
# Defaults are valid and have no unknown fields.


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
            formats.compiled(pattern)
        except formats.PatternError as failure:
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
    elif wrong := metadata.dns_subdomain(group):
        yield causes.invalid("spec.group", group, ",".join(wrong))
    elif "." not in group:
        yield causes.invalid("spec.group", group, "should be a domain with at least one dot")


def _version_list_causes(versions: list[JsonObject]) -> Iterator[Cause]:
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if wrong := metadata.dns1035_label(name):
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
        if wrong := metadata.dns1035_label(declared[field].lower() if cased else declared[field]):
            detail = "may have mixed case, but should otherwise match: " if cased else ""
            yield causes.invalid(f"spec.names.{field}", declared[field], detail + ",".join(wrong))
    for field in ("shortNames", "categories"):
        for index, text in enumerate(declared.get(field) or ()):
            if wrong := metadata.dns1035_label(text):
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
        found = rules.resolve(text, schema, brackets="refused")
    except rules.PathError as failure:
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
