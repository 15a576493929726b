"""A Secret of the remote cluster, and the lookup of remote references in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from eso_sdk.errors import not_json, property_not_found
from eso_sdk.extract import NotAnObjectError, json_map, property_of
from eso_wire.values import MetadataPolicy, RemoteRef
from kubebase.meta import Kind, Object, Resource

SECRETS: Final = Resource("", "v1", "secrets", "Secret")

_INVALID: Final = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python decodes them; Go writes U+FFFD for each."""


class Secret(Object, kw_only=True):
    """The part of a Secret that is read. Its repr shows no data."""

    type: str = ""
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.key})"

    @property
    def values(self) -> dict[str, bytes]:
        return self.data or {}


SECRET_KIND: Final = Kind(SECRETS, Secret)


async def value_of(secret: Secret, ref: RemoteRef) -> bytes:
    """Return the value that a reference names."""
    if ref.metadata_policy is MetadataPolicy.FETCH:
        return await _metadata_value(secret, ref)
    if not ref.property:
        return json_text(secret.values)
    found = await _property(secret.values, ref)
    if found is None:
        raise property_not_found(ref.key, ref.property, known=secret.values)
    return found


async def map_of(secret: Secret, ref: RemoteRef) -> dict[str, bytes]:
    """Return all members of the value that a reference names."""
    if ref.property:
        try:
            return json_map(await value_of(secret, ref))
        except NotAnObjectError:
            raise not_json(f"{ref.key}, property {ref.property}") from None
    if ref.metadata_policy is MetadataPolicy.FETCH:
        return {name: _plain_json(members) for name, members in _metadata(secret).items()}
    return secret.values


def json_text(values: Mapping[str, bytes]) -> bytes:
    """Return the data as one JSON object of strings, formatted as Go does without HTML escaping."""
    texts = {name: _INVALID.sub("\ufffd", raw.decode(errors="surrogateescape")) for name, raw in values.items()}
    text = msgspec.json.encode(texts, order="sorted")
    for separator in ("\u2028", "\u2029"):
        text = text.replace(separator.encode(), f"\\u{ord(separator):x}".encode())
    return text


async def _property(values: Mapping[str, bytes], ref: RemoteRef) -> bytes | None:
    """Return the data key of that name; else a path inside the value of the key before the first dot."""
    if ref.property in values:
        return values[ref.property]
    name, _, inner = ref.property.partition(".")
    if not inner or name not in values:
        return None
    return await property_of(values[name], inner, ref.key)


def _metadata(secret: Secret) -> dict[str, Mapping[str, str]]:
    return {"annotations": secret.metadata.annotations, "labels": secret.metadata.labels}


async def _metadata_value(secret: Secret, ref: RemoteRef) -> bytes:
    parts = _metadata(secret)
    if not ref.property:
        return _plain_json(parts)
    part, _, name = ref.property.partition(".")
    members = parts.get(part)
    found = None
    if members is not None:
        found = _plain_json(members) if not name else await _labelled(members, name, ref.key)
    if found is None:
        raise property_not_found(ref.key, ref.property)
    return found


async def _labelled(members: Mapping[str, str], name: str, remote_key: str) -> bytes | None:
    """Return the value under a key that may itself contain dots.

    The longest key wins; the rest is a path in its value.
    """
    if name in members:
        return members[name].encode()
    prefixes = [key for key in members if name.startswith(f"{key}.")]
    for key in sorted(prefixes, key=len, reverse=True):
        if (found := await property_of(members[key].encode(), name[len(key) + 1 :], remote_key)) is not None:
            return found
    return None


def _plain_json(value: Mapping[str, str] | Mapping[str, Mapping[str, str]]) -> bytes:
    return msgspec.json.encode(value, order="sorted")
