"""The settings of the resolver; made once at start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eso_operator.stores.resolved import ServiceKey


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
