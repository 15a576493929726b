"""The kinds that the operator watches, with the informer and the indexes of each.

Our own kinds are watched from the start. A kind of a provider is watched from the first reference to it, if the API
server serves it. A kind that is not served is looked up again every few seconds, with one request for all such kinds of
an API version, until no object has needed it for an hour. Objects of providers and generators are cached as plain
JSON, because their specs are sent unchanged. The resolver reads its objects from `WatchedKinds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

import structlog

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret
from eso_api.generators.clustergenerator import CLUSTER_GENERATOR
from eso_api.generators.generatorstate import GENERATOR_STATE, GeneratorState
from eso_api.kinds import GENERATOR_KINDS
from eso_api.pushsecret import PUSH_SECRET, PushSecret
from eso_api.references import CORE_GROUP
from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_operator.controllers.externalsecret.controller import target_of
from eso_operator.controllers.fanout.controller import CHILD_NAME_INDEX, PARENT_INDEX, by_child_name, by_parent
from eso_operator.controllers.fanout.kinds import CLUSTER_EXTERNAL_SECRETS, CLUSTER_PUSH_SECRETS, FanOut
from eso_operator.controllers.malformed import TypedKind
from eso_operator.controllers.outcomes import FAILED
from eso_operator.controllers.pushsecret.controller import INDEXES as PUSH_INDEXES
from eso_operator.controllers.pushsecret.status import ERRORED
from eso_operator.controllers.secretstore.controller import STORES_INDEX, stores_of
from eso_operator.controllers.secretstore.kinds import CLUSTER_KINDS, NAMESPACED_KINDS, Generation, StoreKind
from eso_operator.controllers.secretstore.status import INVALID_PROVIDER_CONFIG
from eso_operator.generators.ledger import OWNER_INDEX, owner_of
from eso_operator.missingkinds import LeftOutKinds, Presence, ServedKinds, present
from eso_operator.settings import FeatureGate, Settings
from eso_operator.stores.discovery import PROVIDER_LABEL
from eso_operator.stores.resolved import CLASS, CLUSTER_CLASS, Reason, Scope, WatchedObjects
from eso_operator.targets.discovery import served_resource, served_resources
from eso_operator.targets.metadata import FINALIZER, MANAGED, MANAGED_LABEL, TARGET_INDEX
from eso_operator.targets.secret import CREATED_BY_INDEX, created_by_of
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import KindId
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock
from kubebase.deadline import Deadline
from kubebase.meta import JsonObject, Kind, Object, ObjectKey, Resource, meta_of, metadata_of, raw, version_of
from kuberun.cache import Change, IndexFunction
from kuberun.client import Client
from kuberun.errors import ApiError
from kuberun.informer import Informer
from kuberun.packing import Packing
from kuberun.requests import Selection
from kuberun.watch import ServerRecovery, Source, WatchSettings

T = TypeVar("T")

ObjectListener = Callable[[KindId, Change[Any]], None]
KindListener = Callable[[KindId], None]

MAX_INCLUDED: Final = 256
MAX_MISSING: Final = 32
_INCLUDE_SECONDS: Final = 5.0
_MISSED_SECONDS: Final = 3600.0
"""The lookup of a missing kind stops this long after the last request, which waiting objects make every few minutes."""
_SYNC_SECONDS: Final = 10.0
_BY_NAMESPACE: Final = "namespace"
_ALWAYS_WATCHED: Final = frozenset({KindId("", "v1", "Secret"), KindId("", "v1", "ConfigMap")})
"""Kinds that are watched from the start in all watched namespaces; their changes reach the same listeners."""

_LATER: Final = WatchSettings(spread=2.0)

_log = structlog.get_logger(__name__)


class WatchedKinds(WatchedObjects):
    """All watched kinds; `run` is a service of the manager."""

    def __init__(self, client: Client, clock: Clock, namespace: str = "") -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self.left_out = LeftOutKinds(client, namespace)
        self._recovery = ServerRecovery()
        self._served = ServedKinds(client, clock)
        self.required: list[Resource] = []
        self._informers: dict[KindId, tuple[Resource, tuple[Informer[Any], ...]]] = {}
        self._included: set[KindId] = set()
        self._followed: set[KindId] = set()
        self._missing: BoundedDict[KindId, float] = BoundedDict(MAX_MISSING)
        self._including = asyncio.Lock()
        self._listeners: list[ObjectListener] = []
        self._kind_listeners: list[KindListener] = []
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
        """Return an informer of a kind, for the caller to run. `LeftOutKinds` decides about cluster-scoped kinds.

        `packing` is for kinds of which there are many objects; most of them are then cached packed. After an outage of
        the API server, kinds with `first` are watched again at once, and the others over some time.
        """
        if presence is Presence.REQUIRED:
            self.required.append(kind.resource)
        if kind.resource.namespaced:
            source: Source[T] = self._source(kind, Selection(self._namespace, label_selector=labels))
        else:
            source = self.left_out.source(kind, needs)
        source = present(source, kind.resource, presence, self._served)
        informer = self._over(source, str(kind.resource), indexes, packing, first=first)
        self._informers[kind_id(kind.resource)] = (kind.resource, (informer,))
        return informer

    def add_in(self, kind: Kind[T], namespaces: Iterable[str], *, labels: str = "") -> tuple[Informer[T], ...]:
        """Watch these further namespaces for a kind that was added before."""
        resource, before = self._informers[kind_id(kind.resource)]
        more = tuple(self._informer(kind, namespace, labels=labels) for namespace in namespaces)
        self._informers[kind_id(kind.resource)] = (resource, (*before, *more))
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
        if found is None or found[0] in self.left_out:
            return None
        return Scope.NAMESPACED if found[0].namespaced else Scope.CLUSTER

    def revision(self, kind: KindId) -> int:
        found = self._informers.get(kind)
        return -1 if found is None else sum(informer.cache.revision for informer in found[1])

    def _watching(self, kind: KindId) -> tuple[Informer[Any], ...]:
        found = self._informers.get(kind)
        return () if found is None else found[1]

    # --- on demand ----------------------------------------------------------------------------------------------------

    def listen(self, listener: ObjectListener) -> None:
        """Call the listener on every change of an object of an included or followed kind."""
        self._listeners.append(listener)

    def listen_for_kinds(self, listener: KindListener) -> None:
        """Call the listener when a kind that was missing is watched."""
        self._kind_listeners.append(listener)

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
        kind = kind_id(resource)
        full = len(self._followed) >= MAX_INCLUDED
        if kind in self._followed or kind in _ALWAYS_WATCHED or kind in self._included or full or self._group is None:
            return
        self._followed.add(kind)
        labels = f"{MANAGED_LABEL}={MANAGED}"
        informer = self._informer(metadata_of(resource), self._namespace_for(resource), labels=labels)
        self._group.create_task(informer.run())
        self._group.create_task(self._notify_listeners(kind, informer))
        _log.info("kind is followed", kind=str(kind))

    async def run(self) -> None:
        """Run the watches of included kinds and look up missing kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            while True:
                await self._clock.sleep(_INCLUDE_SECONDS)
                await self._include_missing()

    def _miss(self, kind: KindId) -> None:
        self._missing[kind] = self._clock.monotonic()

    async def _include_missing(self) -> None:
        for kind, requested_at in list(self._missing.items()):
            if self._clock.monotonic() - requested_at > _MISSED_SECONDS:
                self._missing.pop(kind, None)
        for version in dict.fromkeys(kind.api_version for kind in self._missing):
            with suppress(ApiError):  # `include` has logged it
                await self._include_served(version)

    async def _include_served(self, api_version: str) -> None:
        """Watch the missing kinds of an API version that are served by now."""
        for resource in await served_resources(self._client, api_version):
            if (kind := kind_id(resource)) in self._missing:
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
        await self._check_readable(resource)
        if not await self._start(kind, resource, self._group):
            return False
        if self._missing.pop(kind, None) is not None:
            for listener in self._kind_listeners:
                listener(kind)
        return True

    async def _check_readable(self, resource: Resource) -> None:
        """List one object, so that a kind that we may not read fails now and not after the sync deadline."""
        source = self._client.source(raw(resource), Selection(self._namespace_for(resource)))
        await source.list_page(limit=1, continue_token="", resource_version="")

    async def _start(self, kind: KindId, resource: Resource, group: asyncio.TaskGroup) -> bool:
        informer = self._informer(raw(resource), self._namespace_for(resource))
        running = [group.create_task(informer.run()), group.create_task(self._notify_listeners(kind, informer))]
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

    async def _notify_listeners(self, kind: KindId, informer: Informer[Any]) -> None:
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

    def _namespace_for(self, resource: Resource) -> str:
        return self._namespace if resource.namespaced else ""


def is_our_annotation(name: str) -> bool:
    """Return whether a metadata-only cache keeps an annotation. Others are read with the whole object."""
    group = name.partition("/")[0]
    return group == CORE_GROUP or group.endswith(f".{CORE_GROUP}")


def _namespace_of(obj: Any) -> Iterable[str]:
    return (meta_of(obj).namespace,)


def kind_id(resource: Resource) -> KindId:
    return KindId(resource.group, resource.version, resource.kind)


# --- kinds that are watched from the start ----------------------------------------------------------------------------


_PUSH_INDEXES: Final = {STORES_INDEX: stores_of, PARENT_INDEX: by_parent, **PUSH_INDEXES}

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SERVICES = Resource("", "v1", "services", "Service")


@dataclass(frozen=True, slots=True)
class Informers:
    """The informers of every kind that is watched from the start."""

    stores: dict[StoreKind, Informer[Any]]
    classes: dict[KindId, Informer[Any]]
    services: Informer[JsonObject]
    shared_services: tuple[Informer[JsonObject], ...]
    """Services of the core and provider namespaces, if `--namespace` limits the other informers to one namespace."""
    secrets: Informer[Object]
    config_maps: Informer[Object]
    service_accounts: Informer[Object]
    push_secrets: Informer[PushSecret]
    external_secrets: Informer[ExternalSecret]
    parents: dict[Subsystem, Informer[Any]]
    """Cluster-scoped objects that fan out over namespaces."""
    namespaces: Informer[Object]
    generator_states: Informer[GeneratorState]
    others: tuple[Informer[Any], ...]

    @property
    def everything(self) -> tuple[Informer[Any], ...]:
        known = (self.services, self.secrets, self.config_maps, self.service_accounts, self.push_secrets)
        synced = (self.external_secrets, self.generator_states)
        parents = self.parents.values()
        own = (*self.stores.values(), *self.classes.values())
        return (*own, *known, *self.shared_services, *synced, *parents, self.namespaces, *self.others)

    def version_of(self, kind: str, key: ObjectKey) -> str:
        """Return the cached resourceVersion of a Secret, ConfigMap or ServiceAccount; empty if it is not cached."""
        holding = {"Secret": self.secrets, "ConfigMap": self.config_maps, "ServiceAccount": self.service_accounts}
        found = holding[kind].cache.get(key)
        return "" if found is None else version_of(found)


def informers_of(watched: WatchedKinds, settings: Settings) -> Informers:
    both = (*NAMESPACED_KINDS, *(CLUSTER_KINDS if settings.reconcilers.cluster_store else ()))
    kinds = tuple(kind for kind in both if settings.v2_stores or kind.generation is Generation.V1)
    generators = (*GENERATOR_KINDS, CLUSTER_GENERATOR)
    providers = "" if FeatureGate.PROVIDER_NAMING_CONVENTION in settings.gates else f"{PROVIDER_LABEL}=true"
    return Informers(
        stores={kind: watched.add(kind.kind, presence=_store_presence(kind, settings), first=True) for kind in kinds},
        classes={CLASS: watched.add(PROVIDER_CLASS.kind()), CLUSTER_CLASS: watched.add(CLUSTER_PROVIDER_CLASS.kind())},
        services=watched.add(raw(SERVICES), labels=providers),
        shared_services=watched.add_in(raw(SERVICES), _other_namespaces(settings), labels=providers),
        secrets=watched.add(
            metadata_of(SECRETS), indexes={CREATED_BY_INDEX: created_by_of}, packing=Packing(Object), first=True
        ),
        config_maps=watched.add(metadata_of(CONFIG_MAPS), packing=Packing(Object)),
        service_accounts=watched.add(metadata_of(SERVICE_ACCOUNTS), packing=Packing(Object)),
        push_secrets=watched.add(
            PUSH_SECRET.kind(),
            indexes=_PUSH_INDEXES,
            packing=Packing(PushSecret),
            presence=_push_presence(settings),
            first=True,
        ),
        external_secrets=watched.add(
            EXTERNAL_SECRET.kind(),
            indexes={TARGET_INDEX: target_of, PARENT_INDEX: by_parent},
            packing=Packing(ExternalSecret),
            first=True,
        ),
        parents={each.subsystem: _parents(watched, each) for each in fan_outs(settings)},
        namespaces=watched.add(metadata_of(NAMESPACES)),
        generator_states=watched.add(
            GENERATOR_STATE.kind(),
            indexes={OWNER_INDEX: owner_of},
            packing=Packing(GeneratorState),
            presence=Presence.REQUIRED if settings.reconcilers.generator_state else Presence.OFF,
        ),
        others=tuple(watched.add(raw(each.resource()), presence=Presence.OPTIONAL) for each in generators),
    )


def _store_presence(kind: StoreKind, settings: Settings) -> Presence:
    """Return OPTIONAL for stores that are read but not validated: other objects may refer to them."""
    validated = settings.reconcilers.secret_store or kind in CLUSTER_KINDS
    return Presence.REQUIRED if validated else Presence.OPTIONAL


def _push_presence(settings: Settings) -> Presence:
    used = settings.reconcilers.push_secret or settings.reconcilers.cluster_push_secret
    return Presence.REQUIRED if used else Presence.OFF


def fan_outs(settings: Settings) -> tuple[FanOut, ...]:
    external = (CLUSTER_EXTERNAL_SECRETS,) if settings.reconcilers.cluster_external_secret else ()
    push = (CLUSTER_PUSH_SECRETS,) if settings.reconcilers.cluster_push_secret else ()
    return (*external, *push)


def _other_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces with providers that the other informers do not watch."""
    if not settings.namespace:
        return ()
    return tuple(each for each in settings.namespaces if each != settings.namespace)


def _parents(watched: WatchedKinds, fan_out: FanOut) -> Informer[Any]:
    # Without a list of namespaces no namespace matches the selector, and all children would look obsolete.
    return watched.add(fan_out.parent, indexes={CHILD_NAME_INDEX: by_child_name(fan_out)}, needs=NAMESPACES)


def typed_kinds(informers: Informers) -> Iterator[tuple[TypedKind, Informer[Any]]]:
    """Yield each kind with the informer of its objects."""
    for kind, stores in informers.stores.items():
        invalid = INVALID_PROVIDER_CONFIG if kind.generation is Generation.V1 else Reason.MALFORMED.value
        yield TypedKind(kind.resource, stores.cache, invalid), stores
    for custom, kind_id in ((PROVIDER_CLASS, CLASS), (CLUSTER_PROVIDER_CLASS, CLUSTER_CLASS)):
        classes = informers.classes[kind_id]
        yield TypedKind(custom.resource(), classes.cache, Reason.MALFORMED.value), classes
    for each in (CLUSTER_EXTERNAL_SECRETS, CLUSTER_PUSH_SECRETS):
        if (parents := informers.parents.get(each.subsystem)) is not None:
            yield TypedKind(each.parent.resource, parents.cache, ERRORED, each.finalizer), parents
    external, push, states = informers.external_secrets, informers.push_secrets, informers.generator_states
    yield TypedKind(EXTERNAL_SECRET.resource(), external.cache, f"Secret{FAILED}", FINALIZER), external
    yield TypedKind(PUSH_SECRET.resource(), push.cache, ERRORED), push
    yield TypedKind(GENERATOR_STATE.resource(), states.cache, ERRORED), states
