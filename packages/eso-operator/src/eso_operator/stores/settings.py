"""What the resolver goes by, besides the objects of the cluster. Frozen; made once at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eso_operator.stores.target import ServiceKey


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Which stores are ours, which providers may be reached, and how they are found."""

    core_namespace: str
    """Namespace of the operator: a bare host in a cluster-scoped object means a Service of it."""
    controller_class: str = "default"
    provider_namespaces: tuple[str, ...] = ()
    """Besides the core namespace: where Services are providers for everybody."""
    namespaced_providers: bool = False
    """Whether every other namespace may have providers of its own, for itself alone."""
    cluster_domain: str = "cluster.local"
    allowed_addresses: tuple[str, ...] = ()
    """Hosts that are no Service and may be dialled all the same: `host` or `host:port`, `*` for any characters."""
    trusted: Mapping[ServiceKey, str] = field(default_factory=dict)
    """Services whose provider listens somewhere else, say on loopback: `host:port` to dial."""
    expected: frozenset[ServiceKey] = frozenset()
    """Those of `trusted` whose provider may start later. Nobody asks them anything before their Service exists."""
    unix_sockets: bool = False
    naming_convention: bool = False
    flood_gate: bool = True

    @property
    def shared_namespaces(self) -> tuple[str, ...]:
        """Where providers for everybody live, the core namespace first."""
        return tuple(dict.fromkeys((self.core_namespace, *self.provider_namespaces)))

    def may_have_providers(self, namespace: str) -> bool:
        """Whether Services of a namespace may be providers without an administrator's object that names them."""
        return self.namespaced_providers or namespace in self.shared_namespaces
