"""Field ownership of an object, from its managedFields. Pure.

Parts are paths such as `("data", "password")` or `("metadata", "labels", "app")`. Only the parts that targets need are
parsed: keys of data (also below spec), labels, annotations, finalizers, owner references (by uid).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubebase.meta import JsonObject

Path = tuple[str, ...]

SECTIONS: Final = (("data",), ("spec", "data"), ("metadata", "labels"), ("metadata", "annotations"))
FINALIZERS: Final = ("metadata", "finalizers")
OWNERS: Final = ("metadata", "ownerReferences")


@dataclass(frozen=True, slots=True)
class Fields:
    """The parts that one manager owns, and the parts that others own."""

    ours: frozenset[Path]
    others: frozenset[Path]

    def only_ours(self, path: Path) -> bool:
        return path in self.ours and path not in self.others


def fields_of(obj: Mapping[str, Any], manager: str) -> Fields:
    """Return the parts of the object that this manager owns, and the parts that others own."""
    ours: set[Path] = set()
    others: set[Path] = set()
    for entry in _entries(obj):
        mine = entry.get("manager") == manager and not entry.get("subresource")
        (ours if mine else others).update(_parts(entry))
    return Fields(frozenset(ours), frozenset(others))


def parts_of(obj: Mapping[str, Any], is_meant: Callable[[str], bool]) -> frozenset[Path]:
    """Return the parts that any manager with a matching name owns."""
    return frozenset(part for entry in _entries(obj) if is_meant(str(entry.get("manager"))) for part in _parts(entry))


def holders_of(obj: Mapping[str, Any], is_meant: Callable[[str], bool]) -> dict[Path, set[str]]:
    """Return each part that managers with a matching name own, with their names."""
    found: dict[Path, set[str]] = {}
    for entry in _entries(obj):
        if is_meant(manager := str(entry.get("manager"))):
            for part in _parts(entry):
                found.setdefault(part, set()).add(manager)
    return found


def managers_of(obj: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of all managers of the object."""
    return frozenset(str(entry.get("manager")) for entry in _entries(obj))


def conversion(obj: Mapping[str, Any], manager: str) -> list[JsonObject]:
    """Return a JSON patch that merges our entries into one of server-side apply, which can then remove their fields.

    It changes managedFields only, and only on this version of the object. Empty if all our entries are of apply.
    """
    entries = [dict(entry) for entry in _entries(obj)]
    mine = [entry for entry in entries if entry.get("manager") == manager and not entry.get("subresource")]
    if all(entry.get("operation") == "Apply" for entry in mine):
        return []
    merged: JsonObject = {}
    for entry in mine:
        merged = _union(merged, entry.get("fieldsV1") or {})
    kept = {**mine[0], "operation": "Apply", "fieldsV1": merged}
    rest = [entry for entry in entries if all(entry is not one for one in mine)]
    metadata = obj.get("metadata") or {}
    return [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion")},
        {"op": "replace", "path": "/metadata/managedFields", "value": [*rest, kept]},
    ]


def beginning(obj: Mapping[str, Any], manager: str, path: Path) -> list[JsonObject]:
    """Return the managedFields to send with a write of `path`; empty if the object has managedFields.

    An API server does not track an object that was created without any field, for example an empty ConfigMap, until a
    write brings managedFields.
    """
    if _entries(obj):
        return []
    fields: JsonObject = {}
    for step in reversed(path):
        fields = {f"f:{step}": fields}
    kind = {"apiVersion": obj.get("apiVersion"), "fieldsType": "FieldsV1"}
    return [{"manager": manager, "operation": "Update", **kind, "fieldsV1": fields}]


def _entries(obj: Mapping[str, Any]) -> list[JsonObject]:
    metadata = obj.get("metadata") or {}
    return [entry for entry in metadata.get("managedFields") or [] if isinstance(entry, dict)]


def _parts(entry: JsonObject) -> Iterator[Path]:
    for section in SECTIONS:
        for key in _below(entry, section):
            if key.startswith("f:"):
                yield (*section, key.removeprefix("f:"))
    for key in _below(entry, FINALIZERS):
        if key.startswith("v:"):
            yield (*FINALIZERS, str(_element(key)))
    for key in _below(entry, OWNERS):
        if key.startswith("k:") and isinstance(named := _element(key), dict):
            yield (*OWNERS, str(named.get("uid")))


def _below(entry: JsonObject, section: Path) -> JsonObject:
    found: Any = entry.get("fieldsV1")
    for step in section:
        found = found.get(f"f:{step}") if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _element(key: str) -> Any:
    """Parse the name of a list element: JSON after a prefix such as `v:` or `k:`."""
    try:
        return msgspec.json.decode(key[2:])
    except msgspec.DecodeError:
        return None


def _union(one: JsonObject, other: JsonObject) -> JsonObject:
    """Return the union of two field trees."""
    joined = dict(one)
    for key, below in other.items():
        held = joined.get(key)
        joined[key] = _union(held, below) if isinstance(held, dict) and isinstance(below, dict) else below
    return joined
