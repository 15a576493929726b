"""The part of a value that a reference names: a literal member first if its name has a dot, then a gjson path."""

from __future__ import annotations

from eso_sdk.errors import property_not_found
from eso_sdk.extract import property_names, property_of
from eso_wire.values import RemoteRef


def part_of(value: bytes, ref: RemoteRef) -> bytes:
    """Return a property of a value, or the whole value."""
    if not ref.property:
        return value
    found = property_of(value, path_in(value, ref.property))
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(value, ref.property))
    return found


def path_in(value: bytes, name: str) -> str:
    """Return the path to a property. If the value has a member of that name, dots are part of the name."""
    literal = name.replace(".", "\\.")
    return literal if "." in name and property_of(value, literal) is not None else name
