"""Namespaces that are being deleted: events about their objects are recorded on the namespace."""

from __future__ import annotations

from typing import Final

from kubebase.meta import Object, ObjectKey, ObjectMeta, Resource, meta_of
from kuberun.cache import Cache

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


class Homes:
    """The existing namespaces."""

    def __init__(self, namespaces: Cache[Object]) -> None:
        self._namespaces = namespaces

    def ending(self, namespace: str) -> ObjectMeta | None:
        """Return the namespace if it is being deleted, else None."""
        found = self._namespaces.get(ObjectKey("", namespace))
        meta = None if found is None else meta_of(found)
        return None if meta is None or meta.deletion_timestamp is None else meta

    def accepts_events(self, namespace: str) -> bool:
        """Return whether the namespace is not being deleted.

        A namespace that the cache does not have may be new: the API server refuses the event if it is gone.
        """
        return self.ending(namespace) is None

    def subject(self, resource: Resource, metadata: ObjectMeta) -> tuple[Resource, ObjectMeta]:
        """Return the object that events refer to.

        A namespace that is being deleted accepts no events, so it is the subject itself.
        """
        ending = self.ending(metadata.namespace)
        return (resource, metadata) if ending is None else (NAMESPACES, ending)
