"""The places of pushed values, and the known state of a value at its place."""

from __future__ import annotations

from typing import Final, NamedTuple

from eso_operator.controllers.pushsecret.records import split_key

_CLUSTER_KIND: Final = "Cluster"
"""Prefix of cluster-scoped kinds, whose name means the same object in every namespace."""


class Place(NamedTuple):
    """The place of a value: a store by its key in the status, and the location in its backend."""

    store: str
    remote_key: str
    property: str
    location: str = ""
    """As in `Spot`."""

    def contains(self, other: Place) -> bool:
        """Return whether the other place is a part of this one: a property of the whole, or `a.b` of `a`."""
        if self._replace(property="") != other._replace(property="") or self.property == other.property:
            return False
        return not self.property or other.property.startswith(f"{self.property}.")

    def overlaps(self, other: Place) -> bool:
        """Return whether writing or deleting one of them affects the other."""
        return self == other or self.contains(other) or other.contains(self)


class RemoteKey(NamedTuple):
    """One remote key, independent of who pushes it.

    `namespace` is that of the store, empty for cluster-scoped stores.
    """

    namespace: str
    store: str
    remote_key: str
    location: str = ""

    @staticmethod
    def of(place: Place, namespace: str) -> RemoteKey:
        """Return the remote key of a place of a PushSecret in that namespace."""
        _, kind, _ = split_key(place.store)
        return RemoteKey(
            "" if kind.startswith(_CLUSTER_KIND) else namespace, place.store, place.remote_key, place.location
        )


class Known(NamedTuple):
    """A value that is known to be at its place: the digest of our push (empty for a foreign value), version, owner."""

    digest: bytes
    version: str
    ours: bool = True
    value: bytes = b""
    """Digest of the value alone, to compare PushSecrets; empty under IfNotExists, where any value is accepted."""
    order: int = 0
    """The number of its write; it grows with every write of this process."""
    made: str = ""
    """The version that this write gave the remote key. `version` may be a later one that was seen with our value."""
    written: int = 0
    """The number of the last write that changed the value there; 0 if none did."""
