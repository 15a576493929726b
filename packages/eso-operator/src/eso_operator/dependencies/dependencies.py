"""The dependencies of reconciled objects: on Secrets, configurations, stores and providers.

A reconcile (of a store, a class, an ExternalSecret, …) records everything its result depends on. An object that could
not be resolved to a provider depends on the appearance of any provider. All kinds share one table, so that unused
connections are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec

from eso_operator.memory import Memory, Record
from eso_operator.stores.resolved import Connection
from eso_operator.telemetry.subsystems import Subsystem
from eso_wire.values import ObjectRef
from kubebase.meta import ObjectKey


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
