"""`metadata` of a PushSecret entry: how labels and annotations are merged, and into which namespace to write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from eso_sdk.pushmetadata import Told, decoded


class PushMetadata(Told, frozen=True, kw_only=True):
    """The metadata of a PushSecret for the Secret that it writes."""

    source_merge_policy: Literal["", "Merge", "Replace"] = "Merge"
    target_merge_policy: Literal["", "Merge", "Replace", "Ignore"] = "Merge"
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    remote_namespace: Annotated[str, Meta(max_length=63)] = ""


def read_metadata(plain: Mapping[str, Any] | None, key: str) -> PushMetadata:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    return decoded(plain, PushMetadata, key)


_NOT_COPIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""Holds the values of the source Secret."""


def merged_metadata(
    live: Mapping[str, str], source: Mapping[str, str], given: Mapping[str, str], policy: PushMetadata
) -> dict[str, str]:
    """Merge the labels or annotations of the target, of the source Secret and of the entry."""
    if policy.target_merge_policy == "Ignore":
        return dict(live)
    copied = {} if policy.source_merge_policy == "Replace" else source
    ours = {name: value for name, value in copied.items() if name not in _NOT_COPIED} | dict(given)
    return ours if policy.target_merge_policy == "Replace" else {**live, **ours}
