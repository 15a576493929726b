"""Correlation of the parts of a new object with those of the old one, to detect changes.

Fields correlate by name, items only in lists that are maps, by their key fields. Values that cannot be correlated count
as changed, except that everything below an unchanged value is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubebase.meta import JsonObject
from localkube.schema.problems import Step


@dataclass(frozen=True, slots=True)
class Correlation:
    new: Any
    old: Any
    schema: JsonObject
    inherited: bool = False
    """A value around this one is known to be unchanged."""
    known: bool = True
    """False if nothing of the old object corresponds to this value."""

    @classmethod
    def of(cls, new: Any, old: Any, schema: JsonObject) -> Correlation:
        return cls(new, old, schema)

    def unchanged(self) -> bool:
        return self.inherited or (self.known and same(self.new, self.old))

    def key(self, name: str) -> Correlation:
        extra = self.schema.get("additionalProperties")
        schema = (self.schema.get("properties") or {}).get(name) or (extra if isinstance(extra, dict) else None)
        old = self.old.get(name, _ABSENT) if isinstance(self.old, dict) and self.known else _ABSENT
        if schema is None or old is _ABSENT:
            return Correlation(self.new[name], None, schema or {}, self.unchanged(), known=False)
        return Correlation(self.new[name], old, schema, self.inherited)

    def item(self, index: int) -> Correlation:
        items = self.schema.get("items")
        schema = items if isinstance(items, dict) else {}
        old = old_item(self.new[index], self.old, self.schema) if isinstance(self.old, list) and self.known else None
        if old is None:
            return Correlation(self.new[index], None, schema, self.unchanged(), known=False)
        return Correlation(self.new[index], old, schema, self.inherited)

    def follow(self, steps: Iterable[Step]) -> Correlation:
        """Follow steps to the correlation of an inner value."""
        location = self
        for step in steps:
            match step:
                case int():
                    location = location.item(step)
                case str():
                    location = location.key(step)
                case (name,):
                    location = location.key(name)
        return location


def old_item(item: Any, old: list[Any], schema: JsonObject) -> Any | None:
    """Find the item of the old list with the same keys, if the list is a map."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(item, dict):
        return None
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    wanted = [item.get(key) for key in keys]
    for candidate in old:
        if isinstance(candidate, dict) and [candidate.get(key) for key in keys] == wanted:
            return candidate
    return None


def same(one: Any, two: Any) -> bool:
    """Return deep equality of JSON, where true is not 1."""
    if one.__class__ is not two.__class__:
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(two) and all(same(left, right) for left, right in zip(one, two, strict=True))
    return bool(one == two)


_ABSENT = object()
