"""The dependencies of reconciled objects: on Secrets, configurations, stores and providers.

A reconcile (of a store, a class, an ExternalSecret, …) records everything its result depends on. An object that could
not be resolved to a provider depends on the appearance of any provider. All kinds share one table, so that unused
connections are known.

Requeues reconciled objects (stores, classes, ExternalSecrets, …) when one of their dependencies changes.

change                               requeued objects
Secret, ConfigMap, configuration     those that read it or miss it
class, Service                       those that use the provider, and those that wait for one
provider (dis)appears                the same
kind of a provider appears           those that could not be resolved

Classes, Services and providers of a namespace concern objects of that namespace and cluster-scoped objects. Those of
the core namespace and of shared provider namespaces concern all objects.

A store may have 50,000 dependants. They are requeued some hundred at a time (`Wakes.run`), so that the event loop never
stops for all of them. Those that failed and wait for another attempt come first: they may need just this change. The
others only check whether something is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from eso_operator.memory import Memory, Record
from eso_operator.providers.directory import Change as ProviderChange
from eso_operator.stores.resolved import Connection, ServiceKey
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import KindId, ObjectRef
from kubebase.clock import Clock
from kubebase.meta import ObjectKey, meta_of
from kuberun import triggers
from kuberun.cache import Change
from kuberun.informer import Informer, Subscription
from kuberun.workqueue import ReconcileRequest, WorkQueue, phase


class Dependant(NamedTuple):
    """A reconciled object: its controller and its key."""

    controller: Subsystem
    key: ObjectKey


class OnObject(msgspec.Struct, frozen=True, cache_hash=True):
    """An object of the API server, by group and kind; the API version does not matter.

    A struct of msgspec: each reconcile makes and hashes several of them, which takes a dataclass four times as long.
    """

    group: str
    kind: str
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class OnConnection:
    """A provider process."""

    key: str
    connection: Connection = field(compare=False)


@dataclass(frozen=True, slots=True)
class OnLabel:
    """A provider by the name that messages use: its class or its Service."""

    label: str


@dataclass(frozen=True, slots=True)
class OnAnyProvider:
    """The appearance of any provider."""


Dependency = OnObject | OnConnection | OnLabel | OnAnyProvider
ANY_PROVIDER = OnAnyProvider()


def on_object(ref: ObjectRef) -> OnObject:
    return OnObject(ref.api_version.rpartition("/")[0], ref.kind, ObjectKey(ref.namespace, ref.name))


def on_connection(connection: Connection) -> OnConnection:
    return OnConnection(connection.key, connection)


class Dependencies:
    """The dependencies in both directions: those of an object are in its record, dependants in an index."""

    def __init__(self, memories: Mapping[Subsystem, Memory[Record]]) -> None:
        self._memories = memories
        self._dependants: dict[Dependency, _Known] = {}
        self._listeners: list[Callable[[Connection], None]] = []
        for controller, memory in memories.items():
            memory.on_forget(partial(self._forgotten, controller))

    def listen(self, listener: Callable[[Connection], None]) -> None:
        """Call the listener with every connection that becomes unused."""
        self._listeners.append(listener)

    def record(self, dependant: Dependant, on: Iterable[Dependency]) -> list[Connection]:
        """Replace the dependencies of an object. Return the connections that became unused."""
        now, before = frozenset(on), self.of(dependant)
        for new in now - before:
            if (known := self._dependants.get(new)) is None:
                known = self._dependants[new] = _Known(new)
            known.dependants.add(dependant)
        if now or before:
            record = self._memories[dependant.controller].at(dependant.key)
            if now != before:
                record.depends_on = frozenset(self._dependants[each].dependency for each in now)
        return self._release(dependant, before - now)

    def of(self, dependant: Dependant) -> frozenset[Dependency]:
        """Return the current dependencies of an object."""
        found = self._memories[dependant.controller].find(dependant.key)
        return frozenset() if found is None else found.depends_on

    def dependants(self, dependency: Dependency) -> list[Dependant]:
        """Return the dependants in any order: to sort 50,000 would stop the event loop."""
        known = self._dependants.get(dependency)
        return list(known.dependants) if known else []

    def __len__(self) -> int:
        """Return the number of objects that depend on something."""
        return len({dependant for known in self._dependants.values() for dependant in known.dependants})

    def _forgotten(self, controller: Subsystem, key: ObjectKey, record: Record) -> None:
        self._release(Dependant(controller, key), record.depends_on)

    def _release(self, dependant: Dependant, on: Iterable[Dependency]) -> list[Connection]:
        dropped = [gone for gone in on if self._drop(gone, dependant)]
        unused = [gone.connection for gone in dropped if isinstance(gone, OnConnection)]
        for connection in unused:
            for listener in self._listeners:
                listener(connection)
        return unused

    def _drop(self, dependency: Dependency, dependant: Dependant) -> bool:
        """Remove a dependant; return whether it was the last one of this dependency."""
        dependants = self._dependants[dependency].dependants
        dependants.discard(dependant)
        if dependants:
            return False
        del self._dependants[dependency]
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A dependency with its dependants, whose records share this one value of it."""

    dependency: Dependency
    dependants: set[Dependant] = field(default_factory=set)


# --- requeuing dependants ---------------------------------------------------------------------------------------------

changed_by_user = triggers.any_of(
    triggers.generation_changed, triggers.labels_changed, triggers.annotations_changed, triggers.deletion_started
)
"""True if the spec, labels or annotations changed or the deletion started, as opposed to the status."""


def _finalizers_changed(change: Change[Any]) -> bool:
    if change.old is None or change.new is None:
        return False
    return meta_of(change.old).finalizers != meta_of(change.new).finalizers


user_changes = triggers.when(
    triggers.any_of(changed_by_user, triggers.resynced, _finalizers_changed), triggers.itself()
)
"""The requests of an object for changes by users and removed finalizers, but not for our own reports."""


def service_changed(change: Change[Any]) -> bool:
    """Return the same for a Service, which has no generation: its spec is compared."""
    if changed_by_user(change) or not isinstance(change.old, dict) or not isinstance(change.new, dict):
        return True
    return bool(change.old.get("spec") != change.new.get("spec"))


_AT_A_TIME: Final = 500
_WAKES_PER_SECOND: Final = 200.0
_LONGEST_SPREAD: Final = 15.0
"""Many dependants of one object are spread over up to this many seconds, each with a constant offset."""


class Wakes:
    """Requeues all dependants of a changed dependency."""

    def __init__(self, dependencies: Dependencies, clock: Clock, shared: Iterable[str] = ()) -> None:
        self._dependencies = dependencies
        self._clock = clock
        self._shared = frozenset({"", *shared})
        self._queues: dict[Subsystem, WorkQueue] = {}
        self._large: dict[tuple[Dependency, str], _Wave] = {}
        """Waves that `run` requeues; at most one for each dependency and namespace."""
        self._arrived = asyncio.Event()

    def add(self, controller: Subsystem, queue: WorkQueue) -> None:
        self._queues[controller] = queue

    def wake(self, dependency: Dependency, reason: str, *, namespace: str = "") -> None:
        """Requeue the dependants; of a namespace that is not shared only those in it, and cluster-scoped ones."""
        dependants = self._dependencies.dependants(dependency)
        if namespace not in self._shared:
            dependants = [each for each in dependants if each.key.namespace in ("", namespace)]
        wave = self._wave(dependants, reason)
        if len(dependants) <= _AT_A_TIME:
            for part in wave.parts():
                self._requeue(part)
        else:
            self._large[dependency, namespace] = wave
            self._arrived.set()

    async def run(self) -> None:
        """Requeue large waves until cancelled. A service of the manager."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._large:
                wave = self._large.pop(next(iter(self._large)))
                for part in wave.parts():
                    self._requeue(part)
                    await self._clock.sleep(0)

    def _wave(self, dependants: Iterable[Dependant], reason: str) -> _Wave:
        wave = _Wave(reason)
        for each in dependants:
            if (queue := self._queues.get(each.controller)) is not None:
                (wave.failed if queue.failures(each.key) else wave.others).append(each)
        return wave

    def _requeue(self, part: _Part) -> None:
        for each in part.dependants:
            delay = phase(str(each.key), part.spread) if part.spread > 1 else 0.0
            self._queues[each.controller].add(ReconcileRequest(each.key, part.reason), after=delay)

    def provider_changed(self, connection: Connection, change: ProviderChange) -> None:
        """Requeue objects that use the provider or wait for one. A listener of the directory."""
        label = connection.endpoint.label
        self.wake(on_connection(connection), f"provider {label}: {change.value}")
        if change in (ProviderChange.CONNECTED, ProviderChange.DIFFERENT):
            self.wake(ANY_PROVIDER, f"provider {label} answers", namespace=connection.owner)

    def object_changed(self, kind: KindId, change: Change[Any]) -> None:
        """Requeue objects that read the changed object or missed it."""
        self.wake(OnObject(kind.group, kind.kind, change.key), f"{kind.kind} {change.key} changed")

    def kind_appeared(self, kind: KindId) -> None:
        """Requeue objects that could not be resolved: they may need this kind."""
        self.wake(ANY_PROVIDER, f"{kind} is served now")

    def certificates_changed(self, service: ServiceKey) -> None:
        """Requeue objects that depend on the Service. Called when the issuer reports other certificates."""
        key = ObjectKey(service.namespace, service.name)
        self.wake(OnObject("", "Service", key), f"certificates of Service {key} changed")

    def place_changed(self, kind: KindId, change: Change[Any]) -> None:
        """Requeue objects that use, or wait for, the provider of a changed class or Service."""
        if not (changed_by_user(change) if kind.group else service_changed(change)):
            return
        self.object_changed(kind, change)
        label = change.key.name if kind.group else str(change.key)
        for dependency in (OnLabel(label), ANY_PROVIDER):
            self.wake(dependency, f"{kind.kind} {change.key} changed", namespace=change.key.namespace)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the objects of a wave. `spread` is computed from all of them."""

    dependants: Sequence[Dependant]
    reason: str
    spread: float


@dataclass(frozen=True, slots=True)
class _Wave:
    """The objects that one change wakes."""

    reason: str
    failed: list[Dependant] = field(default_factory=list)
    """Those whose last reconcile failed."""
    others: list[Dependant] = field(default_factory=list)

    def parts(self) -> Iterator[_Part]:
        for group in (self.failed, self.others):
            spread = min(len(group) / _WAKES_PER_SECOND, _LONGEST_SPREAD)
            for start in range(0, len(group), _AT_A_TIME):
                yield _Part(group[start : start + _AT_A_TIME], self.reason, spread)


class Feeds:
    """Passes changes from informers to `Wakes`, which it runs. A service of the manager."""

    def __init__(self, wakes: Wakes) -> None:
        self._wakes = wakes
        self._feeds: list[tuple[Subscription[Any], Callable[[Change[Any]], None]]] = []

    def add(self, informer: Informer[Any], handler: Callable[[Change[Any]], None]) -> None:
        self._feeds.append((informer.subscribe(), handler))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wakes.run())
            for subscription, handler in self._feeds:
                group.create_task(_feed(subscription, handler))


async def _feed(subscription: Subscription[Any], handler: Callable[[Change[Any]], None]) -> None:
    while True:
        for change in await subscription.take():
            handler(change)
