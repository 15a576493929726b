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


async def part_of(value: bytes, ref: RemoteRef, dots: Dots = Dots.MEMBER_FIRST) -> bytes:
    """Return a property of a value, or the whole value."""
    if not ref.property:
        return value
    found = await property_of(value, await path_in(value, ref.property, dots, ref.key), ref.key)
    if found is None:
        raise property_not_found(ref.key, ref.property, known=property_names(value, ref.property))
    return found


async def path_in(value: bytes, name: str, dots: Dots = Dots.MEMBER_FIRST, key: str = "") -> str:
    """Return the path to a property. If a member of that name is meant, its dots are escaped."""
    literal = name.replace(".", "\\.")
    if "." not in name or await property_of(value, literal, key) is None:
        return name
    return name if dots is Dots.PATH_FIRST and await property_of(value, name, key) is not None else literal
