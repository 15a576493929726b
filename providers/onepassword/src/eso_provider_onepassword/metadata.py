"""The `metadata` of a PushSecret entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from eso_sdk.pushmetadata import MetadataSpec, decoded
from eso_wire.values import DeleteItem, PushItem

FieldType = Literal["", "text", "concealed", "email", "url", "phone", "date", "monthyear"]


class ConnectMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata, for a Connect server."""

    tags: list[str] | None = None
    """Tags of the item; they replace those that it has."""
    vault: str = ""
    """Vault of the item: one of the store's; absent searches all, and creates the item in the first one."""


class SDKMetadata(MetadataSpec, frozen=True, kw_only=True):
    """`spec` of the metadata, with a service account."""

    tags: list[str] | None = None
    """Tags of the item; they replace those that it has."""
    field_type: FieldType = ""
    """Type of the fields that are written; absent means concealed for new fields."""


M = TypeVar("M", ConnectMetadata, SDKMetadata)


def metadata_of(items: Sequence[PushItem] | Sequence[DeleteItem], kind: type[M]) -> M:
    """Decode the metadata of the items of one key; the last item that has some counts."""
    found = kind()
    for item in items:
        if item.provider_metadata:
            found = decoded(item.provider_metadata, kind, item.remote.key)
    return found
