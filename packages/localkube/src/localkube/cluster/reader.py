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

    def read(self, kind: ServedKind, record: Record) -> JsonObject:
        """A copy of one's own."""
        obj = record.decode()
        if kind.custom:
            self._catch_up(kind, obj, record.revision)
        obj["apiVersion"] = kind.resource.api_version
        return obj

    def shown(self, kind: ServedKind, obj: JsonObject, revision: int) -> JsonObject:
        """A shared, decoded object in the given version; it is not edited, and the result must not be either."""
        if kind.custom and self._is_older_than_schema(kind, revision):
            obj = {**obj}  # pruning goes deeper than this copy, but only removes what no reader may see
            self._catch_up(kind, obj, revision)
        if obj["apiVersion"] != kind.resource.api_version:
            return {**obj, "apiVersion": kind.resource.api_version}
        return obj

    def _catch_up(self, kind: ServedKind, obj: JsonObject, revision: int) -> None:
        """An object written under an earlier schema is shown as the present one sees it."""
        if not self._is_older_than_schema(kind, revision):
            return
        stored = self._catalog.stored(kind.storage_key) or kind
        stored.schema.prune(obj)
        stored.schema.default(obj)

    def _is_older_than_schema(self, kind: ServedKind, revision: int) -> bool:
        definition = self._catalog.definitions.get(kind.storage_key)
        return definition is not None and revision < definition.changed_at
