"""Stored records as the objects of one served version."""

from __future__ import annotations

from kuberun.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.model import ServedKind
from localkube.storage import Record


class Reader:
    """Turns records into objects. Conversion between versions is None: only apiVersion changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def read(self, kind: ServedKind, record: Record, *, written: int | None = None) -> JsonObject:
        """A copy of one's own. `written` is when the content was last written, if not at the record's revision."""
        obj = record.decode()
        if kind.custom and self.is_outdated(kind, record.revision if written is None else written):
            stored = self._catalog.stored(kind.storage_key) or kind
            stored.schema.prune(obj)
            stored.schema.default(obj)
        obj["apiVersion"] = kind.resource.api_version
        return obj

    def shown(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """A shared, decoded object in the given version; neither it nor the result may be edited."""
        if obj["apiVersion"] != kind.resource.api_version:
            return {**obj, "apiVersion": kind.resource.api_version}
        return obj

    def is_outdated(self, kind: ServedKind, written: int) -> bool:
        """Whether content was written under an earlier schema; it is shown as the present one sees it."""
        definition = self._catalog.definitions.get(kind.storage_key)
        return definition is not None and written < definition.changed_at
