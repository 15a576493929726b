"""Who owns which parts of an object, as its managedFields say. Pure.

Parts are paths such as `("data", "password")` or `("metadata", "labels", "app")`. Only what a target needs is looked
at: keys of data (which many kinds have in their spec), labels, annotations, finalizers, owner references (by uid).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kuberun.meta import JsonObject

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
    """What the object says about this manager."""
    ours: set[Path] = set()
    others: set[Path] = set()
    for entry in _entries(obj):
        mine = entry.get("manager") == manager and not entry.get("subresource")
        (ours if mine else others).update(_parts(entry))
    return Fields(frozenset(ours), frozenset(others))


def parts_of(obj: Mapping[str, Any], is_meant: Callable[[str], bool]) -> frozenset[Path]:
    """The parts that any manager of these names owns."""
    return frozenset(part for entry in _entries(obj) if is_meant(str(entry.get("manager"))) for part in _parts(entry))


def managers_of(obj: Mapping[str, Any]) -> frozenset[str]:
    """Who owns anything of the object."""
    return frozenset(str(entry.get("manager")) for entry in _entries(obj))


def conversion(obj: Mapping[str, Any], manager: str) -> list[JsonObject]:
    """The patch that turns our entries into ones of server-side apply, so that it can give up what they name.

    Nothing but the bookkeeping changes, and only on this very version of the object. An entry of that kind that is
    there already takes the fields of the others.
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
    """The entries to send along with a write of `path` to an object that has none.

    An API server keeps no account of objects that were created without a single field, an empty ConfigMap for example,
    until somebody begins one.
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
    """Elements of lists are named by their JSON, behind a letter for how they are told apart."""
    try:
        return msgspec.json.decode(key[2:])
    except msgspec.DecodeError:
        return None


def _union(one: JsonObject, other: JsonObject) -> JsonObject:
    """Both trees of fields as one."""
    joined = dict(one)
    for key, below in other.items():
        held = joined.get(key)
        joined[key] = _union(held, below) if isinstance(held, dict) and isinstance(below, dict) else below
    return joined
