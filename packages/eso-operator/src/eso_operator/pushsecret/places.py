"""Where values are pushed to, and what is known of a value at its place."""

from __future__ import annotations

from typing import Final, NamedTuple

from eso_operator.pushsecret.records import split_key

_CLUSTER_KIND: Final = "Cluster"
"""How kinds begin that mean the same object in every namespace."""


class Place(NamedTuple):
    """Where a value is: a store by its key in the status, and where in its backend."""

    store: str
    remote_key: str
    property: str
    location: str = ""
    """As of `Spot`."""

    def contains(self, other: Place) -> bool:
        """Whether the other place is a part of this one: a property of the whole, or `a.b` of `a`."""
        if self._replace(property="") != other._replace(property="") or self.property == other.property:
            return False
        return not self.property or other.property.startswith(f"{self.property}.")

    def overlaps(self, other: Place) -> bool:
        """Whether writing or deleting one of them touches the other."""
        return self == other or self.contains(other) or other.contains(self)


class RemoteKey(NamedTuple):
    """One remote key, wherever it is pushed from. `namespace` is that of the store, empty for cluster-scoped stores."""

    namespace: str
    store: str
    remote_key: str
    location: str = ""

    @staticmethod
    def of(place: Place, namespace: str) -> RemoteKey:
        """The remote key of a place of a PushSecret in that namespace."""
        _, kind, _ = split_key(place.store)
        return RemoteKey(
            "" if kind.startswith(_CLUSTER_KIND) else namespace, place.store, place.remote_key, place.location
        )


class Known(NamedTuple):
    """A value that is known to be at its place: what we pushed (empty if it is another), its version, whose it is."""

    digest: bytes
    version: str
    ours: bool = True
    value: bytes = b""
    """Digest of the value alone, to compare PushSecrets; empty under IfNotExists, where any value is accepted."""
    order: int = 0
    """Of the write that put it there; grows with every write of this process."""
    made: str = ""
    """The version that this write gave the remote key. `version` may be a later one that was seen with our value."""
