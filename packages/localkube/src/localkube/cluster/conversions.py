"""Between stored records and the objects of a served version.

Conversion is None: the versions of a kind share their fields, so only apiVersion changes, and what the stored version's
schema does not know is not kept. The one exception are kinds that show another kind's objects in their own form.
"""

from __future__ import annotations

from kuberun.meta import JsonObject
from localkube.cluster.catalog import Catalog
from localkube.model import ServedKind
from localkube.storage import Record


class Conversions:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def read(self, kind: ServedKind, record: Record, *, written: int | None = None) -> JsonObject:
        """A copy of one's own. `written` is when the content was last written, if not at the record's revision."""
        obj = record.decode()
        if kind.custom and self.is_outdated(kind, record.revision if written is None else written):
            stored = self._catalog.stored(kind.storage_key) or kind
            stored.schema.prune(obj)
            stored.schema.default(obj)
        return self.shown(kind, obj)

    def shown(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """A stored object in the served version. The argument is left as it is, but parts of it may be shared."""
        if kind.from_stored is not None:
            return kind.from_stored(obj)
        if obj["apiVersion"] != kind.resource.api_version:
            return {**obj, "apiVersion": kind.resource.api_version}
        return obj

    def stored(self, kind: ServedKind, obj: JsonObject) -> JsonObject:
        """An object of the served version as it is stored. The argument is used up."""
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
        """Whether content was written under an earlier schema; it is shown as the present one sees it."""
        definition = self._catalog.definitions.get(kind.storage_key)
        return definition is not None and written < definition.changed_at
