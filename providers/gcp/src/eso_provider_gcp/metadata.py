"""The `metadata` of a PushSecret entry for a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from eso_sdk.errors import invalid_request
from eso_sdk.pushmetadata import Told, decoded
from eso_wire.values import PushItem

MARK: Final = "managed-by"
OWNER: Final = "external-secrets"
"""The label that says that External Secrets may overwrite and delete a secret."""


class SecretMetadata(Told, frozen=True, kw_only=True):
    """`spec` of the metadata."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """All annotations of the secret."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the secret, besides the mark of External Secrets."""
    topics: list[str] | None = None
    """Pub/Sub topics that are told of changes: projects/P/topics/T; absent leaves topics alone."""
    merge_policy: Literal["", "Replace", "Merge"] = ""
    """What becomes of labels that the secret already has: Replace (default) removes them, Merge keeps them."""
    cmek_key_name: str = ""
    """Key of Cloud KMS that encrypts the secret; set at creation."""
    replication_location: str = ""
    """The only location of the secret; set at creation."""
    replication_locations: list[str] = msgspec.field(default_factory=list)
    """The locations of the secret; set at creation."""

    @property
    def locations(self) -> list[str]:
        """Return where the secret is kept; empty lets Google choose."""
        return self.replication_locations or ([self.replication_location] if self.replication_location else [])


def metadata_of(items: Sequence[PushItem]) -> SecretMetadata | None:
    """Decode the metadata of the items of one secret; the last item that has some counts. None if there is none."""
    found: SecretMetadata | None = None
    for item in items:
        if not item.provider_metadata:
            continue
        if item.remote.property:
            raise invalid_request(
                f'metadata of "{item.remote.key}" cannot be set by an entry with remoteRef.property; set it by an entry'
                " that pushes the whole value"
            )
        found = decoded(item.provider_metadata, SecretMetadata, item.remote.key)
    return found


def labels_of(metadata: SecretMetadata | None, existing: Mapping[str, str], owner: str) -> dict[str, str]:
    """Return the labels that a secret should have."""
    if metadata is None:
        return {**existing, MARK: owner}
    kept = existing if metadata.merge_policy == "Merge" else {}
    return {**metadata.labels, **kept, MARK: owner}


def replication_of(metadata: SecretMetadata | None) -> dict[str, Any]:
    """Return the replication of a new secret."""
    encryption: dict[str, Any] = {}
    if metadata is not None and metadata.cmek_key_name:
        encryption = {"customer_managed_encryption": {"kms_key_name": metadata.cmek_key_name}}
    if metadata is None or not metadata.locations:
        return {"automatic": encryption}
    return {"user_managed": {"replicas": [{"location": each, **encryption} for each in metadata.locations]}}
