"""The part of a value that a reference names: a literal member first if its name has a dot, then a gjson path."""

from __future__ import annotations

from eso_sdk.errors import property_not_found
from eso_sdk.extract import property_of
from eso_wire.values import RemoteRef


def part_of(value: bytes, ref: RemoteRef) -> bytes:
    """The property of a value, or all of it."""
    name = ref.property
    if not name:
        return value
    found = property_of(value, name.replace(".", "\\.")) if "." in name else None
    if found is None:
        found = property_of(value, name)
    if found is None:
        raise property_not_found(ref.key, name)
    return found
