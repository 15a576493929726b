"""Which objects to look at again when something else changes: a Secret, a configuration, a store, a provider.

Whoever was looked at (a store, a class, an ExternalSecret, …) names what it went by. One that did not get as far as a
provider waits for any provider to appear. One table for all kinds, so that it is known when nobody needs a connection
any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from eso_operator.stores.target import Connection
from eso_operator.telemetry.objects import Subsystem
from eso_wire.values import ObjectRef
from kuberun.meta import ObjectKey


class Dependant(NamedTuple):
    """An object that is reconciled: which controller handles it, and its key there."""

    controller: Subsystem
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class OnObject:
    """An object of the cluster, by group and kind: versions are spellings of the same object."""

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
    """A provider by the name messages give it: its class, or its Service."""

    label: str


@dataclass(frozen=True, slots=True)
class OnAnyProvider:
    """Some provider, wherever it appears."""


Dependency = OnObject | OnConnection | OnLabel | OnAnyProvider
ANY_PROVIDER = OnAnyProvider()


def on_object(ref: ObjectRef) -> OnObject:
    return OnObject(ref.api_version.rpartition("/")[0], ref.kind, ObjectKey(ref.namespace, ref.name))


def on_connection(connection: Connection) -> OnConnection:
    return OnConnection(connection.key, connection)


class Dependencies:
    """Both directions; bounded by the objects that are reconciled."""

    def __init__(self) -> None:
        self._of: dict[Dependant, frozenset[Dependency]] = {}
        self._dependants: dict[Dependency, set[Dependant]] = {}

    def record(self, dependant: Dependant, on: Iterable[Dependency]) -> list[Connection]:
        """What it depends on now, instead of what it did before. Returns the connections nobody depends on any more."""
        now, before = frozenset(on), self._of.get(dependant, frozenset())
        for new in now - before:
            self._dependants.setdefault(new, set()).add(dependant)
        unused = [gone for gone in before - now if self._drop(gone, dependant)]
        if now:
            self._of[dependant] = now
        else:
            self._of.pop(dependant, None)
        return [gone.connection for gone in unused if isinstance(gone, OnConnection)]

    def of(self, dependant: Dependant) -> frozenset[Dependency]:
        """What it depends on now."""
        return self._of.get(dependant, frozenset())

    def forget(self, dependant: Dependant) -> list[Connection]:
        return self.record(dependant, ())

    def dependants(self, dependency: Dependency) -> list[Dependant]:
        return sorted(self._dependants.get(dependency, ()))

    def __len__(self) -> int:
        return len(self._of)

    def _drop(self, dependency: Dependency, dependant: Dependant) -> bool:
        """Whether that was the last one."""
        dependants = self._dependants[dependency]
        dependants.discard(dependant)
        if dependants:
            return False
        del self._dependants[dependency]
        return True
