"""Everything the operator watches, by kind: what the resolver looks at.

Kinds of our own are watched from the start. A provider's kinds are watched from the moment somebody refers to one, if
the API server has it; one that it does not have is looked for every few seconds, while somebody still asks for it.
Objects of providers and generators are kept as plain JSON: their specs go out as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeVar

import structlog

from eso_operator.reach import Reach
from eso_operator.stores.snapshot import Scope
from eso_operator.targets.discovery import served_resource
from eso_operator.targets.marks import MANAGED, MANAGED_LABEL
from eso_wire.values import KindId
from kuberun.cache import Change, IndexFunction
from kuberun.client import Client
from kuberun.clock import Clock
from kuberun.deadline import Deadline
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.meta import Kind, ObjectKey, Resource, meta_of, metadata_of, raw
from kuberun.requests import Selection
from kuberun.watch import Source

T = TypeVar("T")

Heard = Callable[[KindId, Change[Any]], None]
Appeared = Callable[[KindId], None]

MAX_INCLUDED: Final = 256
MAX_MISSING: Final = 32
_LOOK_AGAIN_SECONDS: Final = 5.0
_MISSED_SECONDS: Final = 3600.0
"""Whoever needs a kind asks again within minutes; one that nobody asks for any more is not looked for any longer."""
_SYNC_SECONDS: Final = 10.0
_BY_NAMESPACE: Final = "namespace"
_ALWAYS_TOLD: Final = frozenset({KindId("", "v1", "Secret"), KindId("", "v1", "ConfigMap")})
"""Watched from the start, wherever we look, with their changes fed to the same listeners."""

_log = structlog.get_logger(__name__)


class WatchedKinds:
    """Implements `stores.snapshot.Objects`. `run` is a service of the manager."""

    def __init__(self, client: Client, clock: Clock, namespace: str = "") -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self.reach = Reach(client, namespace)
        self.from_the_start: list[Resource] = []
        self._informers: dict[KindId, tuple[Resource, tuple[Informer[Any], ...]]] = {}
        self._included: set[KindId] = set()
        self._followed: set[KindId] = set()
        self._missing: dict[KindId, float] = {}
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
        needs: Resource | None = None,
    ) -> Informer[T]:
        """Watch a kind; a cluster-scoped one as `Reach` says. The informer is the caller's to run."""
        self.from_the_start.append(kind.resource)
        if kind.resource.namespaced:
            informer = self._informer(kind, self._namespace, labels=labels, indexes=indexes)
        else:
            informer = self._over(self.reach.source(kind, needs), str(kind.resource), indexes)
        self._informers[_id(kind.resource)] = (kind.resource, (informer,))
        return informer

    def add_in(self, kind: Kind[T], namespaces: Iterable[str], *, labels: str = "") -> tuple[Informer[T], ...]:
        """Watch a kind that is watched already in these other namespaces as well."""
        resource, before = self._informers[_id(kind.resource)]
        more = tuple(self._informer(kind, namespace, labels=labels) for namespace in namespaces)
        self._informers[_id(kind.resource)] = (resource, (*before, *more))
        return more

    # --- what the resolver asks ---------------------------------------------------------------------------------------

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        for informer in self._watching(kind):
            if (found := informer.store.get(key)) is not None:
                return found
        return None

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        stores = [informer.store for informer in self._watching(kind)]
        found = (store.find(_BY_NAMESPACE, namespace) if namespace else store.objects() for store in stores)
        return chain.from_iterable(found)

    def scope(self, kind: KindId) -> Scope | None:
        found = self._informers.get(kind)
        if found is None or self.reach.leaves_out(found[0]):
            return None
        return Scope.NAMESPACED if found[0].namespaced else Scope.CLUSTER

    def revision(self, kind: KindId) -> int:
        found = self._informers.get(kind)
        return -1 if found is None else sum(informer.store.revision for informer in found[1])

    def _watching(self, kind: KindId) -> tuple[Informer[Any], ...]:
        found = self._informers.get(kind)
        return () if found is None else found[1]

    # --- on demand ----------------------------------------------------------------------------------------------------

    def listen(self, listener: Heard) -> None:
        """Have it told of every change of a kind that was included."""
        self._listeners.append(listener)

    def listen_for_kinds(self, listener: Appeared) -> None:
        """Have it told of every kind that was missed and is watched now."""
        self._appeared.append(listener)

    async def include(self, kind: KindId) -> bool:
        """Watch a kind from now on; whether the API server has it and lets us read it. If not, it is looked for."""
        async with self._including:
            try:
                included = await self._included_now(kind)
            except ApiError as error:
                _log.warning("kind cannot be read", kind=str(kind), reason=error.reason or error.code)
                included = False
            if not included:
                self._miss(kind)
            return included

    async def follow(self, resource: Resource) -> None:
        """Have listeners told of changes of managed objects of a kind. Only their metadata is read, and kept.

        Returns at once: objects that are there already are told of when the first list arrives.
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
        """Owns the watches of included kinds, and looks for those that are missing; until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                await self._clock.sleep(_LOOK_AGAIN_SECONDS)
                await self._look_for_missing()

    def _miss(self, kind: KindId) -> None:
        """Those asked for last stand last."""
        self._missing.pop(kind, None)
        self._missing[kind] = self._clock.monotonic()
        if len(self._missing) > MAX_MISSING:
            del self._missing[next(iter(self._missing))]

    async def _look_for_missing(self) -> None:
        for kind, asked_at in list(self._missing.items()):
            if self._clock.monotonic() - asked_at > _MISSED_SECONDS:
                self._missing.pop(kind, None)
                continue
            async with self._including:
                with suppress(ApiError):  # said when somebody asked for it
                    await self._included_now(kind)

    async def _included_now(self, kind: KindId) -> bool:
        """Raises ApiError when the API server does not let us."""
        if kind in self._informers:
            return True
        if self._group is None or len(self._included) >= MAX_INCLUDED:
            return False
        resource = await served_resource(self._client, kind.api_version, kind.kind)
        if resource is None:
            return False
        await self._try(resource)
        if not await self._start(kind, resource, self._group):
            return False
        if self._missing.pop(kind, None) is not None:
            for appeared in self._appeared:
                appeared(kind)
        return True

    async def _try(self, resource: Resource) -> None:
        """One object: anybody may name a kind that we must not read, and nobody should wait until that is clear."""
        source = self._client.source(raw(resource), Selection(self._home(resource)))
        await source.list_page(limit=1, continue_token="", resource_version="")

    async def _start(self, kind: KindId, resource: Resource, group: asyncio.TaskGroup) -> bool:
        informer = self._informer(raw(resource), self._home(resource))
        running = [group.create_task(informer.run()), group.create_task(self._tell(kind, informer))]
        try:
            async with Deadline(self._clock, _SYNC_SECONDS):
                await informer.wait_synced()
        except BaseException as error:  # whoever asked may be cancelled meanwhile: nobody would know of this watch
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

    def _informer(
        self, kind: Kind[T], namespace: str, *, labels: str = "", indexes: dict[str, IndexFunction[T]] | None = None
    ) -> Informer[T]:
        source = self._client.source(kind, Selection(namespace, label_selector=labels))
        return self._over(source, str(kind.resource), indexes)

    def _over(self, source: Source[T], name: str, indexes: dict[str, IndexFunction[T]] | None) -> Informer[T]:
        return Informer(source, clock=self._clock, name=name, indexes={_BY_NAMESPACE: _namespace_of, **(indexes or {})})

    def _home(self, resource: Resource) -> str:
        return self._namespace if resource.namespaced else ""


def _namespace_of(obj: Any) -> Iterable[str]:
    return (meta_of(obj).namespace,)


def _id(resource: Resource) -> KindId:
    return KindId(resource.group, resource.version, resource.kind)
