"""The `metadata` of a PushSecret entry for a certificate."""

from __future__ import annotations

from typing import Final

from eso_provider_aws.envelope import decoded
from eso_sdk.errors import invalid_request
from eso_sdk.pushmetadata import Told
from eso_wire.values import PushItem

REMOTE_KEY: Final = "external-secrets-remote-key"
"""Tag with the remote key of a certificate, by which it is found again."""


class CertificateMetadata(Told, frozen=True, kw_only=True):
    """The tags of a certificate."""

    tags: dict[str, str] | None = None
    """All tags besides ours; other tags are removed. If absent, other tags stay unchanged."""


def metadata_of(item: PushItem) -> CertificateMetadata:
    """Decode the metadata of one push."""
    told = decoded(item.provider_metadata, CertificateMetadata, item.remote.key)
    if REMOTE_KEY in (told.tags or ()):
        raise invalid_request(
            f'metadata of "{item.remote.key}" sets the tag {REMOTE_KEY}, which is set by External Secrets; remove it'
        )
    return told
