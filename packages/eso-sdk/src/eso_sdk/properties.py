"""The part of a value that a reference names. A name with dots is a member of that very name, or a gjson path."""

from __future__ import annotations

from enum import Enum, auto

from eso_sdk.errors import property_not_found
from eso_sdk.extract import property_names, property_of
from eso_wire.values import RemoteRef


class Dots(Enum):
    """What a name with dots means if the value has both a member of that name and the path."""

    MEMBER_FIRST = auto()
    PATH_FIRST = auto()


def part_of(value: bytes, ref: RemoteRef, dots: Dots = Dots.MEMBER_FIRST) -> bytes:
    """Return a property of a value, or the whole value."""
    if not ref.property:
        return value
    found = property_of(value, path_in(value, ref.property, dots))
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(value, ref.property))
    return found


def path_in(value: bytes, name: str, dots: Dots = Dots.MEMBER_FIRST) -> str:
    """Return the path to a property. If a member of that name is meant, its dots are escaped."""
    literal = name.replace(".", "\\.")
    if "." not in name or property_of(value, literal) is None:
        return name
    return name if dots is Dots.PATH_FIRST and property_of(value, name) is not None else literal
