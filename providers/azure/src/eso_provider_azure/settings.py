"""`metadata` of a PushSecret entry: expiry, content type and tags of the pushed object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from eso_provider_azure.objects import MARK, Stored
from eso_sdk import pushmetadata
from eso_sdk.errors import invalid_request
from eso_wire.values import PushItem


class PushMetadata(pushmetadata.MetadataSpec, frozen=True, kw_only=True):
    """The metadata of an entry."""

    expiration_date: str = ""
    """When the secret expires, as RFC 3339 has it."""
    content_type: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one push to one object."""

    expires: datetime | None = None
    content_type: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    def fit(self, present: Stored) -> bool:
        """Return whether an object has these settings already. A content type counts only if the metadata names it."""
        return (
            self.expires == present.expires
            and self.content_type in ("", present.content_type)
            and all(present.tags.get(name) == value for name, value in self.tags.items())
        )


def settings_of(item: PushItem) -> Settings:
    """Decode the metadata of one pushed entry."""
    key = item.remote.key
    metadata = pushmetadata.decoded(item.provider_metadata, PushMetadata, key)
    if MARK in metadata.tags:
        raise invalid_request(f'metadata of "{key}" sets the tag {MARK}, which is set by External Secrets; remove it')
    return Settings(_moment(metadata.expiration_date, key), metadata.content_type, metadata.tags)


def merged(settings: Iterable[Settings]) -> Settings:
    """Return the settings of several entries for one object; later ones win."""
    found = Settings()
    for each in settings:
        found = Settings(
            each.expires or found.expires, each.content_type or found.content_type, {**found.tags, **each.tags}
        )
    return found


def _moment(text: str, key: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid_request(
            f'expirationDate of "{key}" is not an RFC 3339 time; write one such as 2030-12-31T20:30:00Z'
        )
    return moment.astimezone(UTC).replace(microsecond=0)  # Key Vault stores seconds
