"""What `metadata` of a PushSecret may say about a certificate."""

from __future__ import annotations

from typing import Final

from eso_provider_aws.envelope import Told, decoded
from eso_sdk.errors import invalid_request
from eso_wire.values import PushItem

REMOTE_KEY: Final = "external-secrets-remote-key"
"""Tag with the remote key of a certificate, by which it is found again."""


class CertificateMetadata(Told, frozen=True, kw_only=True):
    """How a certificate is tagged."""

    tags: dict[str, str] | None = None
    """All tags besides ours: others are removed. Absent means to leave other tags alone."""


def metadata_of(item: PushItem) -> CertificateMetadata:
    """The metadata of one push."""
    told = decoded(item.provider_metadata, CertificateMetadata, item.remote.key)
    if REMOTE_KEY in (told.tags or ()):
        raise invalid_request(
            f'metadata of "{item.remote.key}" sets the tag {REMOTE_KEY}, which is set by External Secrets; remove it'
        )
    return told
