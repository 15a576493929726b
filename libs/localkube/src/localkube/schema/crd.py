"""CustomResourceDefinitions: checks, accepted names, and the kinds that the server serves for them.

prepare_crd    defaults and checks of the object, on every write
accept         status: accepted names, conditions, stored versions
served_kinds   one ServedKind for each served version
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from kubebase.meta import JsonObject, Resource
from localkube.errors import Cause
from localkube.model import Column, ServedKind, version_order
from localkube.schema import causes, crd_spec
from localkube.schema.structural import StructuralSchema
from localkube.table import jsonpath_reader

_APPROVAL: Final = "api-approved.kubernetes.io"
_PROTECTED_GROUPS: Final = ("k8s.io", "kubernetes.io")
_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def prepare_crd(new: JsonObject, old: JsonObject | None) -> list[Cause]:
    """Fill in derived fields of the spec, then check everything."""
    spec = new.setdefault("spec", {})
    _fill_names(spec.setdefault("names", {}))
    spec.setdefault("conversion", {"strategy": "None"})
    found = [*_name_causes(new), *_approval_causes(new, old)]
    old_spec = (old or {}).get("spec")
    found += crd_spec.spec_causes(spec, old_spec)
    if old_spec is not None and old is not None:
        found += crd_spec.immutable_causes(spec, old_spec, established=_is_true(old, "Established"))
        found += _stored_version_causes(new, old)
        _record_storage_version(new)
    return found


def accept(crd: JsonObject, served: Iterable[ServedKind], now: str = "") -> JsonObject:
    """Build the status of a definition, given the served kinds. `now` stamps conditions that change."""
    spec, status = crd["spec"], crd.get("status") or {}
    declared, accepted = spec["names"], dict(status.get("acceptedNames") or {})
    conflict = _take_names(declared, accepted, _Taken(crd, served))
    stamp = now or crd["metadata"].get("creationTimestamp") or ""
    conditions = [_names_condition(conflict), _established_condition(crd, conflict)]
    return {
        "conditions": _stamped(conditions, status.get("conditions") or [], stamp),
        "acceptedNames": accepted,
        "storedVersions": _stored_versions(spec, status),
    }


def served_kinds(crd: JsonObject) -> list[ServedKind]:
    """Return the kinds of an established definition, one for each served version."""
    spec = crd["spec"]
    return [_served_kind(crd, version) for version in spec["versions"] if version.get("served")]


def _served_kind(crd: JsonObject, version: JsonObject) -> ServedKind:
    spec = crd["spec"]
    accepted = {**spec["names"], **((crd.get("status") or {}).get("acceptedNames") or {})}
    resource = Resource(
        spec["group"], version["name"], accepted["plural"], accepted["kind"], namespaced=spec["scope"] == "Namespaced"
    )
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
    return ServedKind(
        resource=resource,
        schema=StructuralSchema(schema, resource),
        singular=accepted.get("singular") or resource.kind.lower(),
        list_kind=accepted.get("listKind") or f"{resource.kind}List",
        storage_version=next(item["name"] for item in spec["versions"] if item.get("storage")),
        short_names=tuple(accepted.get("shortNames") or ()),
        categories=tuple(accepted.get("categories") or ()),
        verbs=_VERBS,
        subresources=frozenset({"status"} & set(version.get("subresources") or ())),
        columns=tuple(_columns(version.get("additionalPrinterColumns") or ())),
        selectable=dict(_selectable(version.get("selectableFields") or ())),
        custom=True,
        deprecation=_deprecation(resource, version, spec["versions"]),
    )


def _columns(declared: Iterable[JsonObject]) -> Iterator[Column]:
    for column in declared:
        yield Column(
            name=column["name"],
            type=column["type"],
            read=_reader(column["jsonPath"]),
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )


@lru_cache(maxsize=1024)  # a definition is compiled when it is written, and when it is served
def _reader(path: str) -> Callable[[JsonObject], Any]:
    """Compile a column's path; an unsupported path gives empty cells, because every text is accepted."""
    try:
        return jsonpath_reader(path)
    except ValueError:
        return _nothing


def _nothing(_obj: JsonObject) -> None:
    return None


def _selectable(fields: Iterable[JsonObject]) -> Iterator[tuple[str, str]]:
    for field in fields:
        path = field["jsonPath"].removeprefix(".")
        yield path, path


def _deprecation(resource: Resource, version: JsonObject, versions: list[JsonObject]) -> str:
    """Return the declared deprecation warning, or one that names the newest served version that is not deprecated."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    own = version_order(version["name"])
    better = [item["name"] for item in versions if item.get("served") and not item.get("deprecated")]
    newer = sorted((name for name in better if version_order(name) < own), key=version_order)
    advice = f"; use {resource.group}/{newer[0]} {resource.kind}" if newer else ""
    return f"{resource.api_version} {resource.kind} is deprecated{advice}"


def _fill_names(names: JsonObject) -> None:
    kind = names.get("kind")
    if kind:
        names["singular"] = names.get("singular") or kind.lower()
        names["listKind"] = names.get("listKind") or f"{kind}List"


def _name_causes(crd: JsonObject) -> Iterator[Cause]:
    spec, name = crd["spec"], crd.get("metadata", {}).get("name") or ""
    if name and name != f"{spec['names'].get('plural') or ''}.{spec.get('group') or ''}":
        yield causes.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _approval_causes(crd: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    """Refuse a protected group of Kubernetes without an annotation that says where it was approved."""
    group = str(crd["spec"].get("group") or "")
    if not any(group == owner or group.endswith(f".{owner}") for owner in _PROTECTED_GROUPS):
        return
    value = _approval(crd)
    if old is not None and _approval(old) == value:
        return
    field, see = f"metadata.annotations[{_APPROVAL}]", "see https://github.com/kubernetes/enhancements/pull/1111"
    if not value:
        yield causes.required(field, f'protected groups must have approval annotation "{_APPROVAL}", {see}')
    elif not (value.startswith("unapproved") or re.match(r"[a-z][a-z0-9+.-]*://[^/]", value)):
        how = 'with either a URL or a reason starting with "unapproved"'
        yield causes.invalid(field, value, f'protected groups must have approval annotation "{_APPROVAL}" {how}, {see}')


def _approval(crd: JsonObject) -> str:
    return str((crd.get("metadata", {}).get("annotations") or {}).get(_APPROVAL) or "")


def _record_storage_version(crd: JsonObject) -> None:
    """Add a new storage version to storedVersions with the change that introduces it."""
    status = crd.get("status") or {}
    if status.get("storedVersions"):
        status["storedVersions"] = _stored_versions(crd["spec"], status)


def _stored_versions(spec: JsonObject, status: JsonObject) -> list[str]:
    storage = next((version.get("name") for version in spec.get("versions") or () if version.get("storage")), "")
    stored = list(status.get("storedVersions") or [])
    return stored if not storage or storage in stored else [*stored, storage]


def _stored_version_causes(crd: JsonObject, old: JsonObject) -> Iterator[Cause]:
    names = {version.get("name") for version in crd["spec"].get("versions") or ()}
    status = crd.get("status") or old.get("status") or {}
    for index, version in enumerate(status.get("storedVersions") or ()):
        if version not in names:
            detail = (
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and "
                f"removes {version} from status.storedVersions"
            )
            yield causes.invalid(f"status.storedVersions[{index}]", version, detail)


class _Taken:
    """Names in the group of a definition that belong to other kinds."""

    def __init__(self, crd: JsonObject, served: Iterable[ServedKind]) -> None:
        group, own = crd["spec"]["group"], crd["metadata"]["name"]
        others = [kind for kind in served if kind.resource.group == group and kind.storage_key != own]
        self.resources = {name for kind in others for name in (kind.resource.plural, kind.singular, *kind.short_names)}
        self.kinds = {name for kind in others for name in (kind.resource.kind, kind.list_kind)}


def _take_names(declared: JsonObject, accepted: JsonObject, taken: _Taken) -> tuple[str, str]:
    """Move free names from `wanted` to `accepted`; returns reason and message of a conflict, if there is one."""
    conflict = ("", "")
    single = (
        ("plural", "PluralConflict", taken.resources),
        ("singular", "SingularConflict", taken.resources),
        ("kind", "KindConflict", taken.kinds),
        ("listKind", "ListKindConflict", taken.kinds),
    )
    for field, reason, used in single:
        name = declared.get(field, "")
        if name in used and name != accepted.get(field):
            conflict = (reason, f'"{name}" is already in use')
            accepted.setdefault(field, "")
        else:
            accepted[field] = name
    new = [name for name in declared.get("shortNames") or () if name not in (accepted.get("shortNames") or ())]
    used_short = [name for name in new if name in taken.resources]
    if used_short:
        texts = [f'"{name}" is already in use' for name in used_short]
        conflict = ("ShortNamesConflict", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    for field in ("shortNames", "categories"):
        if field == "shortNames" and used_short:
            continue
        if declared.get(field):
            accepted[field] = list(declared[field])
        else:
            accepted.pop(field, None)
    return conflict


def _names_condition(conflict: tuple[str, str]) -> JsonObject:
    reason, message = conflict
    if reason:
        return {"type": "NamesAccepted", "status": "False", "reason": reason, "message": message}
    return {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"}


def _established_condition(crd: JsonObject, conflict: tuple[str, str]) -> JsonObject:
    """Build the Established condition, which never becomes false again."""
    if _is_true(crd, "Established") or not conflict[0]:
        message = "the initial names have been accepted"
        return {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": message}
    return {"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted"}


def _stamped(conditions: list[JsonObject], before: list[JsonObject], now: str) -> list[JsonObject]:
    """Return the conditions with the time of their last change; others, such as Terminating, stay unchanged."""
    found: list[JsonObject] = []
    for condition in conditions:
        old = next((item for item in before if item["type"] == condition["type"]), None)
        same = old is not None and old.get("status") == condition["status"]
        stamp = old.get("lastTransitionTime", now) if same and old is not None else now
        found.append({"lastTransitionTime": stamp, **condition})
    ours = {condition["type"] for condition in conditions}
    return [*found, *(item for item in before if item["type"] not in ours)]


def _is_true(crd: JsonObject, condition: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(item.get("type") == condition and item.get("status") == "True" for item in conditions)
