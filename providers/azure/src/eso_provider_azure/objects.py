"""Objects of a vault in one form: a secret, a key or a certificate with its value, version, tags and times."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from azure.keyvault.certificates import KeyVaultCertificate
from azure.keyvault.keys import JsonWebKey, KeyVaultKey
from azure.keyvault.secrets import KeyVaultSecret

from eso_wire.values import ValueMetadata

MARK: Final = "managed-by"
OWNER: Final = "external-secrets"

_TIMES: Final = {
    "attribute.expires": "expires_on",
    "attribute.created": "created_on",
    "attribute.updated": "updated_on",
    "attribute.notBefore": "not_before",
}
_NUMBERS: Final = ("n", "e", "d", "dp", "dq", "qi", "p", "q", "k", "x", "y")


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object."""

    value: bytes = field(repr=False)
    version: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, datetime] = field(default_factory=dict)
    """By their name in metadata: `attribute.expires` and so on."""
    content_type: str = ""

    def is_of(self, owner: str) -> bool:
        """Return whether External Secrets created it."""
        return self.tags.get(MARK) == owner

    @property
    def expires(self) -> datetime | None:
        return self.times.get("attribute.expires")

    @property
    def attributes(self) -> dict[str, str]:
        """Return the times as texts."""
        return {name: _rfc3339(moment) for name, moment in self.times.items()}

    @property
    def metadata(self) -> ValueMetadata:
        return ValueMetadata(
            provider_version=self.version, updated_at=self.times.get("attribute.updated"), expires_at=self.expires
        )


def secret(received: KeyVaultSecret) -> Stored:
    return _stored((received.value or "").encode(), received.properties, received.properties.content_type or "")


def certificate(received: KeyVaultCertificate) -> Stored:
    return _stored(bytes(received.cer or b""), received.properties)


def key(received: KeyVaultKey) -> Stored:
    return _stored(json_web_key(received.key), received.properties)


def tags_of(properties: Any) -> dict[str, str]:
    return dict(properties.tags or {})


def json_web_key(received: JsonWebKey) -> bytes:
    """Return a key as JSON, as the service sends it."""
    members: dict[str, Any] = {"kid": getattr(received, "kid", None), "kty": _text(getattr(received, "kty", None))}
    members["key_ops"] = [_text(operation) for operation in getattr(received, "key_ops", None) or ()] or None
    members["crv"] = _text(getattr(received, "crv", None))
    for name in _NUMBERS:
        number = getattr(received, name, None)
        members[name] = base64.urlsafe_b64encode(number).rstrip(b"=").decode() if number else None
    return msgspec.json.encode({name: member for name, member in members.items() if member is not None})


def _stored(value: bytes, properties: Any, content_type: str = "") -> Stored:
    times = {name: getattr(properties, member, None) for name, member in _TIMES.items()}
    return Stored(
        value,
        properties.version or "",
        tags_of(properties),
        {name: moment for name, moment in times.items() if moment is not None},
        content_type,
    )


def _text(value: Any) -> str | None:
    """Return the text of an enumeration's member, or the text itself."""
    return None if value is None else str(getattr(value, "value", value))


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
