"""The content of a vault: versions of secrets, keys and certificates, and those that were deleted."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

COLLECTIONS: Final = ("secrets", "keys", "certificates")
RECOVERABLE: Final = "Recoverable+Purgeable"
RETENTION: Final = 90 * 86400


@dataclass(slots=True)
class Version:
    """One version of an object. `body` is what its kind adds: value, key or cer."""

    body: dict[str, Any] = field(repr=False)
    tags: dict[str, str]
    attributes: dict[str, Any]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class Contents:
    """All objects of one vault."""

    host: str
    now: Callable[[], int]
    live: dict[str, dict[str, list[Version]]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    deleted: dict[str, dict[str, list[Version]]] = field(default_factory=lambda: {name: {} for name in COLLECTIONS})
    recovering: dict[str, int] = field(default_factory=dict)
    """Names whose recovery is announced as unfinished so many times more."""

    def add(self, collection: str, name: str, body: dict[str, Any], sent: dict[str, Any]) -> Version:
        """Add a version, as the service does after an import or a set."""
        requested = dict(sent.get("attributes") or {})
        times = {"created": self.now(), "updated": self.now()}
        attributes = {"enabled": True, "recoveryLevel": RECOVERABLE, "recoverableDays": 90, **requested, **times}
        version = Version(body, dict(sent.get("tags") or {}), attributes)
        self.live[collection].setdefault(name, []).append(version)
        return version

    def put(self, name: str, value: str, **sent: Any) -> str:
        """Set a secret, for a test; return its version."""
        content_type = sent.pop("content_type", None)
        body = {"value": value} | ({"contentType": content_type} if content_type else {})
        return self.add("secrets", name, body, sent).id

    def value(self, name: str) -> str:
        """Return the current value of a secret."""
        found: str = self.current("secrets", name).body["value"]
        return found

    def current(self, collection: str, name: str) -> Version:
        return self.live[collection][name][-1]

    def find(self, collection: str, name: str, version: str) -> Version | None:
        versions = self.live[collection].get(name, [])
        if not version:
            return versions[-1] if versions else None
        return next((each for each in versions if each.id == version), None)

    def delete(self, collection: str, name: str) -> None:
        self.deleted[collection][name] = self.live[collection].pop(name)

    def recover(self, collection: str, name: str) -> None:
        self.live[collection][name] = self.deleted[collection].pop(name)

    def address(self, collection: str, name: str, version: str = "") -> str:
        return f"https://{self.host}/{collection}/{name}" + (f"/{version}" if version else "")

    def bundle(self, collection: str, name: str, version: Version) -> dict[str, Any]:
        """Return a whole version, as a GET has it."""
        address = self.address(collection, name, version.id)
        common: dict[str, Any] = {"attributes": version.attributes, "tags": version.tags}
        if collection == "keys":
            return common | {"key": {"kid": address, **version.body["key"]}}
        return common | {"id": address, **version.body}

    def item(self, collection: str, name: str, version: Version) -> dict[str, Any]:
        """Return a version without its value, as a list has it."""
        kind = {"contentType": version.body["contentType"]} if "contentType" in version.body else {}
        member = "kid" if collection == "keys" else "id"
        return {member: self.address(collection, name), "attributes": version.attributes, "tags": version.tags, **kind}

    def epitaph(self, collection: str, name: str) -> dict[str, Any]:
        """Return a deleted object, which has no value."""
        version = self.deleted[collection][name][-1]
        bundle = self.bundle(collection, name, version)
        bundle.pop("value", None)
        when = self.now()
        return bundle | {
            "recoveryId": f"https://{self.host}/deleted{collection}/{name}",
            "deletedDate": when,
            "scheduledPurgeDate": when + RETENTION,
        }
