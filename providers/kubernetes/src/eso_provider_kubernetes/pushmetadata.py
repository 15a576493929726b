"""`metadata` of a PushSecret entry: how labels and annotations are merged, and into which namespace to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from eso_sdk.errors import invalid_request
from eso_sdk.pushmetadata import MetadataSpec, decoded

MARK: Final = "reconcile.external-secrets.io/managed-by"
"""The label of Secrets that a push created. Only the provider sets it."""
OWNER: Final = "external-secrets"


class PushMetadata(MetadataSpec, frozen=True, kw_only=True):
    """The metadata of a PushSecret for the Secret that it writes."""

    source_merge_policy: Literal["", "Merge", "Replace"] = "Merge"
    target_merge_policy: Literal["", "Merge", "Replace", "Ignore"] = "Merge"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    remote_namespace: Annotated[str, Meta(max_length=63)] = ""


def read_metadata(plain: Mapping[str, Any] | None, key: str) -> PushMetadata:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    found = decoded(plain, PushMetadata, key)
    if MARK in found.labels:
        raise invalid_request(f'metadata of "{key}" sets the label {MARK}, which only External Secrets sets; remove it')
    return found


_NOT_COPIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration", MARK})
"""The first holds the values of the source Secret. The second says who created the source, not the target."""


def merged_metadata(
    live: Mapping[str, str], source: Mapping[str, str], given: Mapping[str, str], policy: PushMetadata
) -> dict[str, str]:
    """Merge the labels or annotations of the target, of the source Secret and of the entry."""
    if policy.target_merge_policy == "Ignore":
        return dict(live)
    copied = {} if policy.source_merge_policy == "Replace" else source
    ours = {name: value for name, value in copied.items() if name not in _NOT_COPIED} | dict(given)
    kept = {MARK: live[MARK]} if MARK in live else {}
    return {**ours, **kept} if policy.target_merge_policy == "Replace" else {**live, **ours}
