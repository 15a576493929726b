"""Decoding of the `metadata` of a PushSecret entry. It cannot set our `managed-by` tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from eso_provider_aws.ownership import MARK
from eso_sdk import pushmetadata
from eso_sdk.errors import invalid_request

T = TypeVar("T", bound=pushmetadata.Told)


def decoded(metadata: Mapping[str, Any] | None, spec: type[T], key: str) -> T:
    """Decode the metadata of one pushed entry; without it, return the defaults."""
    found = pushmetadata.decoded(metadata, spec, key)
    if MARK in (getattr(found, "tags", None) or ()):
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return found
