"""Parts of values and of metadata that a reference names."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eso_provider_azure.names import Kind, Name
from eso_provider_azure.objects import Stored
from eso_sdk.errors import property_not_found
from eso_sdk.extract import NotAnObjectError, json_map, property_of
from eso_sdk.properties import Dots, part_of
from eso_wire.values import RemoteRef

DOTS: Final = Dots.PATH_FIRST
"""What the operator in Go does for this backend."""


async def value_of(stored: Stored, name: Name, ref: RemoteRef) -> bytes:
    """Return the value that a reference names. A certificate has no properties."""
    return stored.value if name.kind is Kind.CERTIFICATE else await part_of(stored.value, ref, DOTS)


async def metadata_of(stored: Stored, ref: RemoteRef) -> bytes:
    """Return the tags and times of an object, or the one that a property names: `TAG`, or `TAG.gjson`."""
    known = {**stored.tags, **stored.attributes}
    if not ref.property:
        return msgspec.json.encode(known, order="sorted")
    if ref.property in known:
        return known[ref.property].encode()
    tag, dot, path = ref.property.partition(".")
    found = await property_of(known[tag].encode(), path, ref.key) if dot and tag in known else None
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


async def metadata_map(stored: Stored, name: Name, ref: RemoteRef) -> dict[str, bytes]:
    """Return tags and times as `NAME_TAG`; a tag with a JSON object becomes `NAME_TAG_MEMBER`."""
    if ref.property:
        return {f"{ref.key}_{ref.property}": await metadata_of(stored, ref)}
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
