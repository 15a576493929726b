"""Parts of values and of metadata that a reference names."""

from __future__ import annotations

from typing import Any

import msgspec

from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import Stored
from eso_sdk.errors import property_not_found
from eso_sdk.extract import NotAnObjectError, json_map, property_of
from eso_wire.values import RemoteRef


def part_of(value: bytes, ref: RemoteRef) -> bytes:
    """Return a property of a value, or the whole value: a gjson path, then the literal member."""
    if not ref.property:
        return value
    found = property_of(value, path_in(value, ref.property))
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


def path_in(value: bytes, name: str) -> str:
    """Return the path to a property. Dots are part of the name if only a member of that name exists."""
    literal = name.replace(".", "\\.")
    is_literal = "." in name and property_of(value, name) is None and property_of(value, literal) is not None
    return literal if is_literal else name


def value_of(stored: Stored, name: Name, ref: RemoteRef) -> bytes:
    """Return the value that a reference names. A certificate has no properties."""
    return stored.value if name.kind is Kind.CERTIFICATE else part_of(stored.value, ref)


def metadata_of(stored: Stored, ref: RemoteRef) -> bytes:
    """Return the tags and times of an object, or the one that a property names: `TAG`, or `TAG.gjson`."""
    known = {**stored.tags, **stored.attributes}
    if not ref.property:
        return msgspec.json.encode(known, order="sorted")
    if ref.property in known:
        return known[ref.property].encode()
    tag, dot, path = ref.property.partition(".")
    found = property_of(known[tag].encode(), path) if dot and tag in known else None
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


def metadata_map(stored: Stored, name: Name, ref: RemoteRef) -> dict[str, bytes]:
    """Return tags and times as `NAME_TAG`; a tag with a JSON object becomes `NAME_TAG_MEMBER`."""
    if ref.property:
        return {f"{ref.key}_{ref.property}": metadata_of(stored, ref)}
    found: dict[str, bytes] = {}
    for tag, text in stored.tags.items():
        members = _strings(text)
        if members is None:
            found[f"{name.name}_{tag}"] = text.encode()
        else:
            found |= {f"{name.name}_{tag}_{member}": value for member, value in members.items()}
    return found | {f"{name.name}_{time}": text.encode() for time, text in stored.attributes.items()}


def _strings(text: str) -> dict[str, bytes] | None:
    """Return the members of a JSON object whose members are all strings; None for every other text."""
    try:
        found: Any = msgspec.json.decode(text, type=dict[str, str])
        return json_map(text.encode()) if found is not None else None
    except (msgspec.DecodeError, msgspec.ValidationError, NotAnObjectError, RecursionError):
        return None
