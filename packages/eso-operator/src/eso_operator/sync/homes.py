"""Namespaces that are being deleted: what still has to be said about objects in them is said about the namespace."""

from __future__ import annotations

from typing import Final

from kuberun.cache import Store
from kuberun.meta import Object, ObjectKey, ObjectMeta, Resource, meta_of

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


class Homes:
    """The namespaces there are."""

    def __init__(self, namespaces: Store[Object]) -> None:
        self._namespaces = namespaces

    def ending(self, namespace: str) -> ObjectMeta | None:
        """The namespace, if it is being deleted."""
        found = self._namespaces.get(ObjectKey("", namespace))
        meta = None if found is None else meta_of(found)
        return None if meta is None or meta.deletion_timestamp is None else meta

    def subject(self, resource: Resource, metadata: ObjectMeta) -> tuple[Resource, ObjectMeta]:
        """What events about an object are about: a namespace that is being deleted takes none any more."""
        ending = self.ending(metadata.namespace)
        return (resource, metadata) if ending is None else (NAMESPACES, ending)
