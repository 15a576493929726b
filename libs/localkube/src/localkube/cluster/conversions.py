"""Conversion between stored records and the objects of a served version.

The strategy is None: the versions of a kind share their fields, so only apiVersion changes, and fields that the
stored version's schema does not have are dropped. Kinds that show another kind's objects have their own conversion.
"""

from __future__ import annotations

from kubebase.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.model import ServedKind
from localkube.storage import Record


class Conversions:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def read(self, kind: ServedKind, record: Record, *, written: int | None = None) -> JsonObject:
        """Decode a fresh copy. `written` is the revision of the last write, if it is not the record's."""
        obj = record.decode()
        if kind.custom and self.is_outdated(kind, record.revision if written is None else written):
            stored = self._catalog.stored(kind.storage_key) or kind
            stored.schema.prune(obj)
            stored.schema.default(obj)
        return self.shown(kind, obj)

    def shown(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """Convert a stored object to the served version. The result may share parts with the argument."""
        if kind.from_stored is not None:
            return kind.from_stored(obj)
        if obj["apiVersion"] != kind.resource.api_version:
            return {**obj, "apiVersion": kind.resource.api_version}
        return obj

    def stored(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """Convert an object of the served version to its stored form. The argument is consumed."""
        if kind.to_stored is not None:
            return kind.to_stored(obj)
        if kind.resource.version == kind.storage_version:
            return obj
        stored = self._catalog.stored(kind.storage_key)
        if stored is not None and stored.resource.version == kind.storage_version:
            stored.schema.prune(obj)
            stored.schema.default(obj)
        group = kind.resource.group
        obj["apiVersion"] = f"{group}/{kind.storage_version}" if group else kind.storage_version
        return obj

    def is_outdated(self, kind: ServedKind, written: int) -> bool:
        """Return whether content was written under an earlier schema.

        It must then be pruned and defaulted when it is read.
        """
        definition = self._catalog.definitions.get(kind.storage_key)
        return definition is not None and written < definition.changed_at
