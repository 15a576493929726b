"""What 1Password's description of the Connect API has about the operations that this provider uses.

| | |
|---|---|
| source | `1Password/connect`, commit bad1808c6d57277f9098ef93818b43c74bde539a, `docs/openapi/spec.yaml` (1.7.1) |
| its licence | none is named, so the description itself is not here |

The facts are written anew as types, with the members that the provider sends or reads.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from eso_sdk.testing.standin import ApiContract, Operation

_ID: Final = "[0-9a-z]{26}"
Id = Annotated[str, Meta(pattern=f"^{_ID}$")]
Text = str | UnsetType
Whole = int | UnsetType
Category = Literal[
    "LOGIN", "PASSWORD", "API_CREDENTIAL", "SERVER", "DATABASE", "CREDIT_CARD", "MEMBERSHIP", "PASSPORT",
    "SOFTWARE_LICENSE", "OUTDOOR_LICENSE", "SECURE_NOTE", "WIRELESS_ROUTER", "BANK_ACCOUNT", "DRIVER_LICENSE",
    "IDENTITY", "REWARD_PROGRAM", "DOCUMENT", "EMAIL_ACCOUNT", "SOCIAL_SECURITY_NUMBER", "MEDICAL_RECORD", "SSH_KEY",
    "CUSTOM",
]  # fmt: skip
FieldType = Literal["STRING", "EMAIL", "CONCEALED", "URL", "TOTP", "DATE", "MONTH_YEAR", "MENU"]


class Vault(msgspec.Struct, rename="camel"):
    """A vault."""

    id: Id | UnsetType = UNSET
    name: Text = UNSET
    attribute_version: Whole = UNSET
    content_version: Whole = UNSET
    items: Whole = UNSET
    type: Literal["USER_CREATED", "PERSONAL", "EVERYONE", "TRANSFER"] | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    updated_at: datetime | UnsetType = UNSET


class Reference(msgspec.Struct):
    """The vault of an item."""

    id: Id


class Url(msgspec.Struct):
    """An address that an item is for."""

    href: str
    label: Text = UNSET
    primary: bool | UnsetType = UNSET


class Section(msgspec.Struct):
    """A part of an item."""

    id: Text = UNSET
    label: Text = UNSET


class Field(msgspec.Struct):
    """A field of an item."""

    id: str
    type: FieldType
    label: Text = UNSET
    value: Text = UNSET
    purpose: Literal["", "USERNAME", "PASSWORD", "NOTES"] | UnsetType = UNSET
    section: Section | UnsetType = UNSET


class File(msgspec.Struct):
    """A file of an item."""

    id: Text = UNSET
    name: Text = UNSET
    size: Whole = UNSET
    content_path: Text = UNSET
    section: Section | UnsetType = UNSET


class Item(msgspec.Struct, rename="camel", kw_only=True):
    """An item, as a list has it."""

    vault: Reference
    category: Category
    id: Id | UnsetType = UNSET
    title: Text = UNSET
    tags: list[str] | UnsetType = UNSET
    urls: list[Url] | UnsetType = UNSET
    favorite: bool | UnsetType = UNSET
    version: Whole = UNSET
    state: Literal["ARCHIVED", "DELETED"] | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    updated_at: datetime | UnsetType = UNSET
    last_edited_by: Text = UNSET


class FullItem(Item, kw_only=True):
    """An item with its fields."""

    sections: list[Section] | UnsetType = UNSET
    fields: list[Field] | UnsetType = UNSET
    files: list[File] | UnsetType = UNSET


class Failure(msgspec.Struct):
    """An error."""

    status: Whole = UNSET
    message: Text = UNSET


ITEMS: Final = "/vaults/{vault}/items"
IDS: Final = {"vault": _ID, "item": _ID}

API: Final = ApiContract(
    "/v1",
    Operation("GET", "/vaults", {200: list[Vault]}, query=frozenset({"filter"})),
    Operation("GET", ITEMS, {200: list[Item]}, query=frozenset({"filter"}), parameters=IDS),
    Operation("POST", ITEMS, {200: FullItem}, body=FullItem, parameters=IDS),
    Operation("GET", f"{ITEMS}/{{item}}", {200: FullItem}, parameters=IDS),
    Operation("PUT", f"{ITEMS}/{{item}}", {200: FullItem}, body=FullItem, parameters=IDS),
    Operation("DELETE", f"{ITEMS}/{{item}}", {204: None}, parameters=IDS),
    Operation("GET", f"{ITEMS}/{{item}}/files/{{file}}/content", {200: bytes}, parameters=IDS),
    errors=Failure,
)
