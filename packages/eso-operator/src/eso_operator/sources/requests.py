"""The reads of an ExternalSecret's entries, as values of the wire. Pure."""

from __future__ import annotations

from eso_api.externalsecret import Find, RemoteRef
from eso_wire import values as wire


def remote_ref(ref: RemoteRef) -> wire.RemoteRef:
    """Return the reference as a wire value."""
    policy = wire.MetadataPolicy.FETCH if ref.metadata_policy == "Fetch" else wire.MetadataPolicy.NONE
    return wire.RemoteRef(ref.key, ref.version, ref.property, policy)


def find_query(find: Find) -> wire.FindQuery:
    """Return the search as a wire value."""
    name = find.name.regexp if find.name is not None else ""
    return wire.FindQuery(path=find.path or "", name_regexp=name, tags=find.tags)
