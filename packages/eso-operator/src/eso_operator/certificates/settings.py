"""The settings of certificates, and the names in the certificates of a Service that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from eso_operator.certificates.state import Identity, Lifetimes, ServerNames, service_dns
from eso_operator.stores.resolved import ServiceKey
from eso_wire.tls import client_id, service_id


@dataclass(frozen=True, slots=True)
class IssuerSettings:
    """`namespaces` are those whose Services get certificates; an empty set means all. `interval` is in seconds.

    Labelled Services of the core namespace and of `shared` namespaces get certificates. Services of other namespaces
    get them if a store that may use them requests it, and for their label only if `namespaced_providers` is set; at
    most `max_namespaced` in one such namespace, because two Secrets of each are in the core namespace.
    """

    core_namespace: str
    service_account: str = "external-secrets"
    cluster_domain: str = "cluster.local"
    trust_domain: str = "cluster.local"
    namespaces: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    namespaced_providers: bool = False
    max_namespaced: int = 10
    interval: float = 600.0
    workers: int = 4
    lifetimes: Lifetimes = field(default_factory=Lifetimes)

    def allows(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces

    def is_shared(self, namespace: str) -> bool:
        return namespace == self.core_namespace or namespace in self.shared

    @property
    def labelled_in(self) -> tuple[str, ...]:
        """Return the namespaces in which labels of Services count; empty means all."""
        if self.namespaced_providers:
            return self.namespaces
        return tuple(dict.fromkeys((self.core_namespace, *self.shared)))

    @property
    def client_identity(self) -> str:
        """Return the identity of the operator; providers accept no other client."""
        return client_id(self.trust_domain, self.core_namespace, self.service_account)


def identity_of(service: ServiceKey, settings: IssuerSettings, *, local: tuple[str, ...] = ()) -> Identity:
    """Return the names in the certificates of a Service. `local` are the addresses of a supervised process."""
    dns = service_dns(service.namespace, service.name, settings.cluster_domain)
    return Identity(
        authority=str(service),
        server=ServerNames(
            dns=(*dns, "localhost") if local else dns,
            identity=service_id(settings.trust_domain, service.namespace, service.name),
            addresses=local,
        ),
        client=settings.client_identity,
    )
