"""`metadata` of a PushSecret entry: how labels and annotations are merged, and into which namespace to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from eso_sdk.errors import invalid_request

_API_VERSION: Final = "kubernetes.external-secrets.io/v1alpha1"
_KIND: Final = "PushSecretMetadata"
_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)  # repr of a wrong value, in either kind of quotes


class PushMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a PushSecret says about the Secret it writes, besides its data."""

    source_merge_policy: Literal["", "Merge", "Replace"] = "Merge"
    target_merge_policy: Literal["", "Merge", "Replace", "Ignore"] = "Merge"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    remote_namespace: Annotated[str, Meta(max_length=63)] = ""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    spec: PushMetadata = PushMetadata()


def read_metadata(plain: Mapping[str, Any] | None, key: str) -> PushMetadata:
    """The metadata of one pushed entry; the defaults if it has none."""
    if not plain:
        return PushMetadata()
    try:
        envelope = msgspec.convert(dict(plain), _Envelope)
    except msgspec.ValidationError as problem:
        text = _QUOTED.sub("…", str(problem))  # names fields and types; a value that was found stands in quotes
        raise invalid_request(f'metadata of "{key}" does not have the expected form: {text}') from None
    if (envelope.api_version, envelope.kind) != (_API_VERSION, _KIND):
        raise invalid_request(f'metadata of "{key}" must have apiVersion {_API_VERSION} and kind {_KIND}')
    return envelope.spec


_NOT_COPIED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""Holds the values of the source Secret."""


def merged_metadata(
    live: Mapping[str, str], source: Mapping[str, str], given: Mapping[str, str], policy: PushMetadata
) -> dict[str, str]:
    """Labels or annotations of the written Secret: those of the target, of the source Secret and of the entry."""
    if policy.target_merge_policy == "Ignore":
        return dict(live)
    copied = {} if policy.source_merge_policy == "Replace" else source
    ours = {name: value for name, value in copied.items() if name not in _NOT_COPIED} | dict(given)
    return ours if policy.target_merge_policy == "Replace" else {**live, **ours}
