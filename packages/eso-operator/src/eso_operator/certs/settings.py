"""What an administrator decides about certificates, and whom a Service's certificates are for by those decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from eso_operator.certs.authority import ServerNames, service_dns
from eso_operator.certs.bundle import Identity, Lifetimes
from eso_operator.stores.target import ServiceKey
from eso_wire.tls import client_id, service_id


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """`namespaces` are those whose Services get certificates; none named means all. `interval` is in seconds.

    Services of the core namespace and of `shared` ones get certificates when they are labelled. Those of any other
    namespace get them when a store that may use them asks, and for their label only if `namespaced_providers` says so;
    at most `max_namespaced` in one such namespace, because two Secrets of each are in the core namespace.
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
        """Where labelled Services are looked for; none named means everywhere."""
        if self.namespaced_providers:
            return self.namespaces
        return tuple(dict.fromkeys((self.core_namespace, *self.shared)))

    @property
    def client_identity(self) -> str:
        """Who the core is to every provider; a provider lets nobody else in."""
        return client_id(self.trust_domain, self.core_namespace, self.service_account)


def identity_of(service: ServiceKey, settings: CertificateSettings, *, local: tuple[str, ...] = ()) -> Identity:
    """The names in a Service's certificates. `local` are addresses of a process that runs beside us."""
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
