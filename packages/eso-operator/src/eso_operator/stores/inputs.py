"""The inputs of a resolution: a view of the cluster, the settings, and the needs of the caller.

The view has cached objects and the handshakes of providers. It is read-only, and the resolver has no other input, so
equal views give equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_operator.stores.resolved import ServiceKey
from eso_wire.kinds import Handshake, KindId, Operation
from kubebase.meta import ObjectKey

NAMESPACE = KindId("", "v1", "Namespace")
SERVICE = KindId("", "v1", "Service")
CLASS = KindId(PROVIDER_CLASS.group, PROVIDER_CLASS.versions[0], PROVIDER_CLASS.name)
CLUSTER_CLASS = KindId(CLUSTER_PROVIDER_CLASS.group, CLUSTER_PROVIDER_CLASS.versions[0], CLUSTER_PROVIDER_CLASS.name)


class Scope(StrEnum):
    NAMESPACED = "namespaced"
    CLUSTER = "cluster-scoped"


class Objects(Protocol):
    """The objects of the cluster, each typed, as a plain dict, or as `Malformed`.

    Generators and kinds of providers must be plain dicts, because their specs are sent unchanged. Namespaces and
    Services may be either. Of Services, the labelled ones are enough.
    """

    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        """Return one object; None if it does not exist."""
        ...

    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        """Return all objects of a kind, or those of one namespace."""
        ...

    def scope(self, kind: KindId) -> Scope | None:
        """Return the scope of a kind; None if it is not watched or does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The inputs of one resolution. `handshakes` maps `Connection.key` to a handshake or the reason for none."""

    objects: Objects
    handshakes: Mapping[str, Handshake | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Rules for which stores this operator handles, which providers it may call, and how it finds them."""

    core_namespace: str
    """Namespace of the operator: a bare host in a cluster-scoped object means a Service of it."""
    controller_class: str = "default"
    provider_namespaces: tuple[str, ...] = ()
    """Namespaces, besides the core namespace, whose labelled Services are providers for all namespaces."""
    namespaced_providers: bool = False
    """True if any other namespace may run providers that only that namespace can use."""
    cluster_domain: str = "cluster.local"
    allowed_addresses: tuple[str, ...] = ()
    """Hosts that may be dialled although they are not Services: `host` or `host:port`; `*` matches any characters."""
    trusted: Mapping[ServiceKey, str] = field(default_factory=dict)
    """Services whose provider listens at another address, for example on loopback: `host:port` to dial."""
    expected: frozenset[ServiceKey] = frozenset()
    """Members of `trusted` whose provider may start later. They are used only once their Service exists."""
    unix_sockets: bool = False
    naming_convention: bool = False
    flood_gate: bool = True
    v2_stores: bool = True
    """False if the gate V2Stores is off: references to v2 stores, generators and providers' own kinds are refused."""

    @property
    def shared_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces with providers for all namespaces; the core namespace first."""
        return tuple(dict.fromkeys((self.core_namespace, *self.provider_namespaces)))

    def may_have_providers(self, namespace: str) -> bool:
        """Return whether Services of a namespace may be providers without a cluster-scoped object that names them."""
        return self.namespaced_providers or namespace in self.shared_namespaces


class Gate(StrEnum):
    """The gates that stop this caller while the store is not ready."""

    FULL = "full"
    """The flood gate of v1 stores and the gating policy of v2 stores; for reads."""
    POLICY = "policy"
    """Only the gating policy of v2 stores applies; for pushes and clean-ups."""
    OFF = "off"
    """No gate applies; for the validation of the store, which opens the gate again."""


@dataclass(frozen=True, slots=True)
class Need:
    """The operations that a caller will use, and its gate."""

    operations: frozenset[Operation] = frozenset()
    gate: Gate = Gate.FULL

    @property
    def removes_only(self) -> bool:
        """Return whether the caller only removes values.

        This is allowed while the store is being deleted, because the deletion may wait for it.
        """
        removals = {Operation.DELETE, Operation.EXISTS, Operation.CLEANUP}
        return bool(self.operations) and self.operations <= removals


VALIDATION = Need(gate=Gate.OFF)


def need_to_read(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.FULL)


def need_to_push(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.POLICY)
