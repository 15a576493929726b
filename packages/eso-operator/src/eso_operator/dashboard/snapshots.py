"""The overview from the caches of the operator, built at most once a second for all viewers.

A row is rebuilt only if its object changed, so that a large cluster does not block the operator's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from eso_operator.insight.overview import MAX_ROWS, AnyKind, CachedObjects, Overview, Row, gather, row_of
from eso_operator.insight.times import span
from eso_operator.stores.resolved import CLASS, CLUSTER_CLASS
from kubebase.clock import Clock
from kubebase.meta import Malformed, ObjectKey, version_of
from kuberun.informer import Informer

_FRESH_SECONDS: Final = 1.0
_STALE_SECONDS: Final = 10.0
"""A watch may be interrupted for this long before pages say so: most interruptions end within a second or two."""


class Snapshots:
    """Makes overviews from caches."""

    def __init__(self, informers: Mapping[AnyKind, Informer[Any]], clock: Clock) -> None:
        self._informers = informers
        self._caches = caches = {custom: informer.cache for custom, informer in informers.items()}
        self._clock = clock
        self._objects = CachedObjects(caches, {})
        self._rows: dict[tuple[AnyKind, ObjectKey], tuple[str, Row]] = {}
        self._last: Overview | None = None
        self._made_at = 0.0
        self._lock = asyncio.Lock()

    async def overview(self) -> Overview:
        async with self._lock:
            if self._last is None or self._clock.monotonic() - self._made_at > _FRESH_SECONDS:
                self._last = await gather(self._objects, row=self._row)
                self._made_at = self._clock.monotonic()
                if len(self._rows) > 2 * MAX_ROWS:  # deleted objects
                    self._rows.clear()
            return self._last

    def stale(self) -> str:
        """Return why the caches are not current; empty while they are."""
        informers = self._informers.values()
        if not all(informer.synced for informer in informers):
            return "The operator is still reading the objects. This page does not show all of them yet."
        age = max((informer.age for informer in informers if informer.unreachable), default=0.0)
        if age < _STALE_SECONDS:
            return ""
        return f"The API server does not answer the operator. This page shows the state of {span(age)} ago."

    def provider_labels(self) -> dict[tuple[str, ObjectKey], tuple[str, ...]]:
        """Return how metrics name the provider of each class, by kind and key of the class."""
        return {
            (custom.name, obj.metadata.key): _labels(obj)
            for custom, cache in self._caches.items()
            if custom.name in (CLASS.kind, CLUSTER_CLASS.kind)
            for obj in cache.objects()
        }

    def _row(self, custom: AnyKind, obj: Any) -> Row:
        key, version = (custom, obj.metadata.key), version_of(obj)
        known = self._rows.get(key)
        if known is None or known[0] != version or isinstance(obj, Malformed):
            known = self._rows[key] = (version, row_of(custom, obj))
        return known[1]


def _labels(obj: Any) -> tuple[str, ...]:
    """Return the class, and its Service: the provider may also be found without the class."""
    host = obj.spec.address.rpartition("//")[2].rpartition(":")[0]
    match host.split("."):
        case [name, namespace, "svc", *_]:
            return obj.metadata.name, f"{namespace}/{name}"
        case _:
            return (obj.metadata.name,)
