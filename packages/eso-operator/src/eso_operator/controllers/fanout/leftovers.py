"""Removes the finalizers of the existing operator from namespaces: one for each ClusterExternalSecret.

We set none (`docs/adr/0010-no-namespace-finalizers.md`). A leftover blocks the deletion of its namespace forever once
its ClusterExternalSecret is deleted, so it is removed whether that still exists or not.
"""

from __future__ import annotations

from typing import Final

import structlog

from kubebase.meta import Object, Resource, metadata_of
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.errors import ApiError, NotFound
from kuberun.ownership import remove_finalizer

NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)

_KIND: Final = metadata_of(NAMESPACES)
_log = structlog.get_logger(__name__)


class Leftovers:
    """Finalizers with this prefix, followed by the name of a parent. An empty prefix means that there are none."""

    def __init__(self, client: Client, namespaces: Cache[Object], prefix: str) -> None:
        self._client = client
        self._namespaces = namespaces
        self._prefix = prefix

    async def release(self, parent: str) -> list[str]:
        """Take the parent's finalizer off every namespace; the names of those where that did not work."""
        if not self._prefix:
            return []
        finalizer = f"{self._prefix}{parent}"
        held = [namespace for namespace in self._namespaces.objects() if finalizer in namespace.metadata.finalizers]
        return [namespace.metadata.name for namespace in held if not await self._released(namespace, finalizer)]

    async def _released(self, namespace: Object, finalizer: str) -> bool:
        try:
            await remove_finalizer(self._client, _KIND, namespace.metadata, finalizer)
        except NotFound:
            return True
        except ApiError as error:
            _log.warning("finalizer not removed", namespace=namespace.metadata.name, problem=error.reason or error.code)
            return False
        _log.info("finalizer of an earlier operator removed", namespace=namespace.metadata.name, finalizer=finalizer)
        return True
