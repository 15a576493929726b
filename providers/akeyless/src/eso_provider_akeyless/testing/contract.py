"""What Akeyless's API description has about the commands that this provider uses.

| | |
|---|---|
| source | `akeylesslabs/akeyless-go`, commit 8754e76ee43c5dbb8edc15af62b44fbb22e64448 (v4.1.0), `api/openapi.yaml` |
| its licence | Apache 2.0 |

The facts are written anew as types, with the members that the provider sends or reads; no text of it is here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from eso_sdk.testing.standin import ApiContract, Operation

Text = str | UnsetType


class Authorized(msgspec.Struct, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """The token of a command, in one of two members."""

    token: Text = UNSET
    uid_token: Text = UNSET


class Auth(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """A login."""

    access_id: Text = UNSET
    access_key: Text = UNSET
    access_type: Text = UNSET
    cloud_id: Text = UNSET
    k8s_auth_config_name: Text = UNSET
    k8s_service_account_token: Text = UNSET


class AuthOutput(msgspec.Struct):
    """The response to a login."""

    token: Text = UNSET


class OneItem(Authorized):
    """A command about one item."""

    name: str


class Values(Authorized):
    """A read of static secrets."""

    names: list[str]
    version: int | UnsetType = UNSET
    ignore_cache: Text = UNSET


class RotatedValue(Authorized):
    """A read of a rotated secret, whose one name is in a member for names."""

    names: str
    version: int | UnsetType = UNSET
    ignore_cache: Text = UNSET


class CertificateValue(OneItem):
    """A read of a certificate."""

    version: int | UnsetType = UNSET
    ignore_cache: Text = UNSET


class CertificateOutput(msgspec.Struct):
    """A certificate."""

    certificate_pem: Text = UNSET
    private_key_pem: Text = UNSET


class ListItems(Authorized):
    """A search."""

    type: list[str] | UnsetType = UNSET
    filter: Text = UNSET
    tag: Text = UNSET
    minimal_view: bool | UnsetType = UNSET
    pagination_token: Text = UNSET


class Item(msgspec.Struct):
    """The description of an item."""

    item_name: Text = UNSET
    item_type: Text = UNSET
    item_tags: list[str] | UnsetType = UNSET
    item_id: int | UnsetType = UNSET
    last_version: int | UnsetType = UNSET


class ListOutput(msgspec.Struct):
    """A page of a search."""

    items: list[Item] | UnsetType = UNSET
    folders: list[str] | UnsetType = UNSET
    next_page: Text = UNSET


class NewSecret(OneItem):
    """A new static secret."""

    value: str
    tags: list[str] | UnsetType = UNSET


class NewValue(OneItem):
    """A new version of a static secret."""

    value: str


class NameOutput(msgspec.Struct):
    """The name of what was written."""

    name: Text = UNSET


class DeleteOutput(msgspec.Struct):
    """What was deleted."""

    item_name: Text = UNSET
    item_id: int | UnsetType = UNSET
    version_deleted: int | UnsetType = UNSET


class Failure(msgspec.Struct):
    """An error."""

    error: Text = UNSET


Object = dict[str, Any]
COMMANDS: Final = {
    "auth": (Auth, AuthOutput),
    "describe-item": (OneItem, Item),
    "get-secret-value": (Values, Object),
    "get-rotated-secret-value": (RotatedValue, Object),
    "get-certificate-value": (CertificateValue, CertificateOutput),
    "get-dynamic-secret-value": (OneItem, Object),
    "list-items": (ListItems, ListOutput),
    "create-secret": (NewSecret, NameOutput),
    "update-secret-val": (NewValue, NameOutput),
    "delete-item": (OneItem, DeleteOutput),
}


def api(root: str) -> ApiContract:
    """Return the contract of an API below a path."""
    operations = [Operation("POST", f"/{name}", {200: shown}, body=sent) for name, (sent, shown) in COMMANDS.items()]
    return ApiContract(root, *operations, errors=Failure)
