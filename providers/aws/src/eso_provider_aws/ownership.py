"""The tag `managed-by: external-secrets`, which marks values that External Secrets may overwrite and delete.

`decoded` parses the `metadata` of a PushSecret entry, which cannot set that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from eso_sdk import pushmetadata
from eso_sdk.errors import invalid_request
from eso_wire.errors import ErrorReason, ProviderError
from eso_wire.values import DeleteItem, PushItem

MARK: Final = "managed-by"
OWNER: Final = "external-secrets"
DESCRIPTION: Final = "secret 'managed-by:external-secrets'"
"""The description of values that are created without one."""


def owner_of(items: Iterable[PushItem | DeleteItem]) -> str:
    """Return the value of the mark for the writes of one call."""
    return next((item.owner_token for item in items if item.owner_token), OWNER)


def tags_of(listed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Convert the tag list of AWS to a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in listed}


def listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Convert tags from a mapping to a list for AWS."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def foreign(what: str) -> ProviderError:
    """Return the error for a write to a value without the mark. `what` names it: `secret "db" in eu-west-1`."""
    return ProviderError(
        ErrorReason.OWNERSHIP_CONFLICT,
        f"{what} exists and was not created by External Secrets: it has no tag {MARK}: {OWNER}; choose another"
        " remoteKey, or add that tag to hand it over",
    )


T = TypeVar("T", bound=pushmetadata.MetadataSpec)


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    found = pushmetadata.decoded(metadata, spec, key)
    if MARK in (getattr(found, "tags", None) or ()):
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return found
