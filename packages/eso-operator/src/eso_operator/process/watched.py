"""The informers of the operator, by kind. The resolver reads its objects from them.

Our own kinds are watched from the start. A kind of a provider is watched from the first reference to it, if the API
server serves it. A kind that is not served is looked up again every few seconds, with one request for all such kinds of
an API version, until no object has asked for it for an hour. Objects of providers and generators are cached as plain
JSON, because their specs are sent unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeVar

import structlog

from eso_api.references import CORE_GROUP
from eso_operator.process.presence import Presence, ServedKinds, present
from eso_operator.process.reach import Reach
from eso_operator.stores.inputs import Scope
from eso_operator.targets.discovery import served_resource, served_resources
from eso_operator.targets.metadata import MANAGED, MANAGED_LABEL
from eso_wire.values import KindId
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import Kind, ObjectKey, Resource, meta_of, metadata_of, raw
from kuberun.cache import Change, IndexFunction
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.packing import Packing
from kuberun.requests import Selection
from kuberun.watch import ServerRecovery, Source, WatchSettings

T = TypeVar("T")

Heard = Callable[[KindId, Change[Any]], None]
Appeared = Callable[[KindId], None]

MAX_INCLUDED: Final = 256
MAX_MISSING: Final = 32
_LOOK_AGAIN_SECONDS: Final = 5.0
_MISSED_SECONDS: Final = 3600.0
"""The lookup of a missing kind stops this long after the last request for it. Waiting objects ask every few minutes."""
_SYNC_SECONDS: Final = 10.0
_BY_NAMESPACE: Final = "namespace"
_ALWAYS_TOLD: Final = frozenset({KindId("", "v1", "Secret"), KindId("", "v1", "ConfigMap")})
"""Kinds that are watched from the start in all watched namespaces; their changes reach the same listeners."""

_LATER: Final = WatchSettings(spread=2.0)

_log = structlog.get_logger(__name__)


class WatchedKinds:
    """All watched kinds. Implements `resolving.view.Objects`; `run` is a service of the manager."""

    def __init__(self, client: Client, clock: Clock, namespace: str = "") -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self.reach = Reach(client, namespace)
        self._recovery = ServerRecovery()
        self._served = ServedKinds(client, clock)
        self.required: list[Resource] = []
        self._informers: dict[KindId, tuple[Resource, tuple[Informer[Any], ...]]] = {}
        self._included: set[KindId] = set()
        self._followed: set[KindId] = set()
        self._missing: BoundedDict[KindId, float] = BoundedDict(MAX_MISSING)
        self._including = asyncio.Lock()
        self._listeners: list[Heard] = []
        self._appeared: list[Appeared] = []
        self._group: asyncio.TaskGroup | None = None

    # --- from the start -----------------------------------------------------------------------------------------------

    def add(
        self,
        kind: Kind[T],
        *,
        labels: str = "",
        indexes: dict[str, IndexFunction[T]] | None = None,
        packing: Packing[T] | None = None,
        needs: Resource | None = None,
        presence: Presence = Presence.REQUIRED,
        first: bool = False,
    ) -> Informer[T]:
        """Return an informer of a kind, for the caller to run. `Reach` decides about cluster-scoped kinds.

        `packing` is for kinds of which there are many objects; most of them are then cached packed. After an outage of
        the API server, kinds with `first` are watched again at once, and the others over some time.
        """
        if presence is Presence.REQUIRED:
            self.required.append(kind.resource)
        if kind.resource.namespaced:
            source: Source[T] = self._source(kind, Selection(self._namespace, label_selector=labels))
        else:
            source = self.reach.source(kind, needs)
        source = present(source, kind.resource, presence, self._served)
        informer = self._over(source, str(kind.resource), indexes, packing, first=first)
        self._informers[_id(kind.resource)] = (kind.resource, (informer,))
        return informer

    def add_in(self, kind: Kind[T], namespaces: Iterable[str], *, labels: str = "") -> tuple[Informer[T], ...]:
        """Watch these further namespaces for a kind that was added before."""
        resource, before = self._informers[_id(kind.resource)]
        more = tuple(self._informer(kind, namespace, labels=labels) for namespace in namespaces)
        self._informers[_id(kind.resource)] = (resource, (*before, *more))
        return more

    # --- queries of the resolver --------------------------------------------------------------------------------------

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        for informer in self._watching(kind):
            if (found := informer.cache.get(key)) is not None:
                return found
        return None

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        stores = [informer.cache for informer in self._watching(kind)]
        found = (store.find(_BY_NAMESPACE, namespace) if namespace else store.objects() for store in stores)
        return chain.from_iterable(found)

    def scope(self, kind: KindId) -> Scope | None:
        found = self._informers.get(kind)
        if found is None or self.reach.leaves_out(found[0]):
            return None
        return Scope.NAMESPACED if found[0].namespaced else Scope.CLUSTER

    def revision(self, kind: KindId) -> int:
        found = self._informers.get(kind)
        return -1 if found is None else sum(informer.cache.revision for informer in found[1])

    def _watching(self, kind: KindId) -> tuple[Informer[Any], ...]:
        found = self._informers.get(kind)
        return () if found is None else found[1]

    # --- on demand ----------------------------------------------------------------------------------------------------

    def listen(self, listener: Heard) -> None:
        """Call the listener on every change of an object of an included or followed kind."""
        self._listeners.append(listener)

    def listen_for_kinds(self, listener: Appeared) -> None:
        """Call the listener when a kind that was missing is watched."""
        self._appeared.append(listener)

    async def include(self, kind: KindId) -> bool:
        """Watch a kind.

        Return whether the API server serves it and permits us to read it; if not, `run` tries again.
        """
        async with self._including:
            try:
                resource = await self._resource_of(kind)
                included = resource is not None and await self._included_now(kind, resource)
            except ApiError as error:
                _log.warning("kind cannot be read", kind=str(kind), reason=error.reason or error.code)
                included = False
            if not included:
                self._miss(kind)
            return included

    async def follow(self, resource: Resource) -> None:
        """Report changes of managed objects of a kind to the listeners. Only metadata is read and cached.

        Returns at once. Existing objects are reported when the first list arrives.
        """
        kind = _id(resource)
        full = len(self._followed) >= MAX_INCLUDED
        if kind in self._followed or kind in _ALWAYS_TOLD or kind in self._included or full or self._group is None:
            return
        self._followed.add(kind)
        labels = f"{MANAGED_LABEL}={MANAGED}"
        informer = self._informer(metadata_of(resource), self._home(resource), labels=labels)
        self._group.create_task(informer.run())
        self._group.create_task(self._tell(kind, informer))
        _log.info("kind is followed", kind=str(kind))

    async def run(self) -> None:
        """Run the watches of included kinds and look up missing kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                await self._clock.sleep(_LOOK_AGAIN_SECONDS)
                await self._look_for_missing()

    def _miss(self, kind: KindId) -> None:
        self._missing[kind] = self._clock.monotonic()

    async def _look_for_missing(self) -> None:
        for kind, asked_at in list(self._missing.items()):
            if self._clock.monotonic() - asked_at > _MISSED_SECONDS:
                self._missing.pop(kind, None)
        for version in dict.fromkeys(kind.api_version for kind in self._missing):
            with suppress(ApiError):  # `include` has logged it
                await self._include_served(version)

    async def _include_served(self, api_version: str) -> None:
        """Watch the missing kinds of an API version that are served by now."""
        for resource in await served_resources(self._client, api_version):
            if (kind := _id(resource)) in self._missing:
                async with self._including:
                    with suppress(ApiError):  # a kind that may not be read must not hide the others
                        await self._included_now(kind, resource)

    async def _resource_of(self, kind: KindId) -> Resource | None:
        """Return the resource of a kind that is watched or served."""
        if (watched := self._informers.get(kind)) is not None:
            return watched[0]
        if self._group is None or len(self._included) >= MAX_INCLUDED:
            return None
        return await served_resource(self._client, kind.api_version, kind.kind)

    async def _included_now(self, kind: KindId, resource: Resource) -> bool:
        """Return whether the kind is watched, after trying to start its watch. Raises ApiError if that is refused."""
        if kind in self._informers:
            return True
        if self._group is None or len(self._included) >= MAX_INCLUDED:
            return False
        await self._try(resource)
        if not await self._start(kind, resource, self._group):
            return False
        if self._missing.pop(kind, None) is not None:
            for appeared in self._appeared:
                appeared(kind)
        return True

    async def _try(self, resource: Resource) -> None:
        """List one object, so that a kind that we may not read fails now and not after the sync deadline."""
        source = self._client.source(raw(resource), Selection(self._home(resource)))
        await source.list_page(limit=1, continue_token="", resource_version="")

    async def _start(self, kind: KindId, resource: Resource, group: asyncio.TaskGroup) -> bool:
        informer = self._informer(raw(resource), self._home(resource))
        running = [group.create_task(informer.run()), group.create_task(self._tell(kind, informer))]
        try:
            async with Deadline(self._clock, _SYNC_SECONDS):
                await informer.wait_synced()
        except BaseException as error:  # cancellation included: an unrecorded watch would never be stopped
            for task in running:
                task.cancel()
            if not isinstance(error, TimeoutError):
                raise
            _log.warning("kind cannot be read", kind=str(kind))
            return False
        self._informers[kind] = (resource, (informer,))
        self._included.add(kind)
        _log.info("kind is watched", kind=str(kind))
        return True

    async def _tell(self, kind: KindId, informer: Informer[Any]) -> None:
        subscription = informer.subscribe()
        while True:
            for change in await subscription.take():
                for listener in self._listeners:
                    listener(kind, change)

    def _informer(self, kind: Kind[T], namespace: str, *, labels: str = "") -> Informer[T]:
        source = self._source(kind, Selection(namespace, label_selector=labels))
        return self._over(source, str(kind.resource))

    def _source(self, kind: Kind[T], selection: Selection) -> Source[T]:
        return self._client.source(kind, selection, annotations=is_our_annotation)

    def _over(
        self,
        source: Source[T],
        name: str,
        indexes: dict[str, IndexFunction[T]] | None = None,
        packing: Packing[T] | None = None,
        *,
        first: bool = False,
    ) -> Informer[T]:
        return Informer(
            source,
            clock=self._clock,
            name=name,
            indexes={_BY_NAMESPACE: _namespace_of, **(indexes or {})},
            packing=packing,
            settings=WatchSettings() if first else _LATER,
            recovery=self._recovery,
        )

    def _home(self, resource: Resource) -> str:
        return self._namespace if resource.namespaced else ""


def is_our_annotation(name: str) -> bool:
    """Return whether a metadata-only cache keeps an annotation. What others say is read with the whole object."""
    group = name.partition("/")[0]
    return group == CORE_GROUP or group.endswith(f".{CORE_GROUP}")


def _namespace_of(obj: Any) -> Iterable[str]:
    return (meta_of(obj).namespace,)


def _id(resource: Resource) -> KindId:
    return KindId(resource.group, resource.version, resource.kind)
