"""The `metadata` of a PushSecret entry for a parameter.

Fields that the metadata does not name stay unchanged at an existing parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from eso_provider_aws.envelope import decoded
from eso_sdk.errors import invalid_request
from eso_sdk.pushmetadata import Told
from eso_wire.values import DeleteItem, PushItem


class Tier(Told, frozen=True, kw_only=True):
    """The tier of the parameter."""

    type: Literal["Standard", "Advanced", "Intelligent-Tiering"] = "Standard"
    policies: list[Any] | None = None
    """Expiration and notifications, as Parameter Store writes them."""


class ParameterMetadata(Told, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    secret_type: Literal["String", "StringList", "SecureString"] | None = None
    """Absent keeps the type of a parameter that exists, and is String for a new one."""
    kms_key_id: str | None = msgspec.field(default=None, name="kmsKeyID")
    """Key that encrypts a SecureString; absent means alias/aws/ssm."""
    tier: Tier | None = None
    encode_as_decoded: bool | None = None
    """Whether values of a whole Secret are stored as text; absent means base64."""
    tags: dict[str, str] | None = None
    """All tags of the parameter, besides the mark of External Secrets; absent leaves tags alone."""
    description: str | None = None


def metadata_of(item: PushItem | DeleteItem) -> ParameterMetadata:
    """Decode the metadata of one item."""
    key = item.remote.key
    found = decoded(item.provider_metadata, ParameterMetadata, key)
    if found.tier is not None and found.tier.policies and found.tier.type == "Standard":
        raise invalid_request(f'metadata of "{key}": tier.policies needs tier.type Advanced or Intelligent-Tiering')
    return found


def merged(metadata: Iterable[ParameterMetadata]) -> ParameterMetadata:
    """Merge the metadata of several items of one parameter; for each field, the last item that sets it wins."""
    result = ParameterMetadata()
    for each in metadata:
        names = ParameterMetadata.__struct_fields__
        named = {name: value for name in names if (value := getattr(each, name)) is not None}
        result = msgspec.structs.replace(result, **named)
    return result
