"""metadata.managedFields: the fields of each manager, read into a dict and written back in the API's order."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from kubebase.clock import parse_rfc3339, rfc3339
from kubebase.meta import JsonObject
from localkube.patch.fields import FieldSet, checked, fitted, ordered, union
from localkube.patch.types import SchemaType

Operation = Literal["Apply", "Update"]

MAX_UPDATERS: Final = 10
_BUCKET: Final = "ancient-changes"
"""Holds the fields of the oldest updaters once there are more than the maximum."""


class Manager(NamedTuple):
    """Identity of one entry. An applier is the same across versions; an updater is one for each version it uses."""

    name: str
    operation: Operation
    api_version: str
    subresource: str

    @property
    def sort_text(self) -> str:
        parts = {"manager": self.name, "operation": self.operation, "apiVersion": self.api_version}
        if not self.api_version:
            del parts["apiVersion"]
        if self.subresource:
            parts["subresource"] = self.subresource
        return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

    @property
    def described(self) -> str:
        """Return the manager's name in conflicts."""
        text = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            text += f" with subresource {json.dumps(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Holding:
    """The fields of one manager in one API version. `raw` is the stored entry it was read from, if any."""

    api_version: str
    fields: FieldSet
    time: str = ""
    raw: JsonObject | None = None


Managed = dict[Manager, Holding]


def applier(name: str, subresource: str) -> Manager:
    return Manager(name or "unknown", "Apply", "", subresource)


def updater(name: str, api_version: str, subresource: str) -> Manager:
    return Manager(name or "unknown", "Update", api_version, subresource)


def entries_of(obj: JsonObject | None) -> Any:
    """Return the managedFields of an object; None if it has none."""
    metadata = obj.get("metadata") if obj else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def stored(obj: JsonObject | None, kind: SchemaType) -> Managed:
    """Return the managers of a stored object, converted to the current schema. Stored entries need no other check."""
    result: Managed = {}
    for entry in entries_of(obj) or ():
        fields = entry.get("fieldsV1") or {}
        fit = fitted(fields, kind)
        holding = Holding(entry["apiVersion"], fit, entry.get("time") or "", entry if fit is fields else None)
        result[_identity(entry)] = holding
    return result


def sent(entries: list[Any], kind: SchemaType) -> Managed:
    """Return the managers that a client wrote itself.

    Raises ValueError or TypeError for anything that is not a list of entries.
    """
    result: Managed = {}
    for index, entry in enumerate(entries):
        if entry.get("operation") not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not entry.get("apiVersion"):
            raise ValueError("apiVersion must not be empty")
        if entry.get("fieldsType") != "FieldsV1":
            raise ValueError(f"invalid fieldsType {entry.get('fieldsType')!r} in managed fields entry {index}")
        time = entry.get("time")
        fields = fitted(checked(entry.get("fieldsV1") or {}), kind)
        result[_identity(entry)] = Holding(entry["apiVersion"], fields, rfc3339(parse_rfc3339(time)) if time else "")
    return result


def _identity(entry: JsonObject) -> Manager:
    operation: Operation = entry["operation"]
    version = "" if operation == "Apply" else entry["apiVersion"]
    return Manager(entry.get("manager") or "", operation, version, entry.get("subresource") or "")


def is_reset(entries: Any) -> bool:
    """Return whether a client requests to forget all managers, with an empty list or one empty entry."""
    return isinstance(entries, list) and (not entries or (len(entries) == 1 and not entries[0]))


def encoded(managed: Managed) -> list[JsonObject]:
    """Return the entries as stored: appliers first, then by time, name, version and subresource."""
    order = sorted(
        managed.items(), key=lambda pair: (pair[0].operation, pair[1].time, pair[0].name, pair[1].api_version, pair[0])
    )
    return [_entry(manager, holding) for manager, holding in order]


def _entry(manager: Manager, holding: Holding) -> JsonObject:
    if holding.raw is not None:
        return holding.raw
    entry: JsonObject = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": holding.api_version,
        "time": holding.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": ordered(holding.fields),
        "subresource": manager.subresource,
    }
    return {name: value for name, value in entry.items() if value or name == "fieldsV1"}


def held(holding: Holding, fields: FieldSet) -> Holding:
    """Return the holding with other fields."""
    return holding if fields is holding.fields else replace(holding, fields=fields, raw=None)


def drop_unserved(managed: Managed, served: Collection[str]) -> None:
    """Forget the fields held in versions that no longer exist. Without versions, keep all."""
    if not served:
        return
    for manager in [manager for manager, holding in managed.items() if holding.api_version not in served]:
        del managed[manager]


def cap_updaters(managed: Managed) -> None:
    """Merge the oldest updaters, version by version, until there are at most MAX_UPDATERS."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return
    updaters.sort(key=lambda manager: (managed[manager].time, manager.sort_text))
    first: dict[str, Manager] = {}
    for manager in updaters:
        if excess <= 0:
            return
        version = managed[manager].api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = updater(_BUCKET, version, "")
        if bucket not in managed:
            managed[bucket] = managed.pop(first[version])
        newest = managed.pop(manager)
        fields = union(newest.fields, managed[bucket].fields)
        managed[bucket] = Holding(version, fields, newest.time)
        excess -= 1
