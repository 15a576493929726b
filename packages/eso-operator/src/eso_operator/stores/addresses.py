"""Endpoints from addresses that users write, if the author of the address may dial them.

| host | dialled |
|---|---|
| a trusted Service, or its configured address | at the configured address |
| a Service: `svc`, `svc.ns`, `svc.ns.svc`, `svc.ns.svc.<domain>` | as `svc.ns.svc`, if the author reaches `ns` |
| any other | only if the allow-list has it; IP addresses only literally, link-local and metadata addresses never |

A Service is dialled by its full name, so that no DNS search list can turn it into another host. The IP addresses of a
name, and aliases among Services, are checked when the connection is made.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from eso_api.v2.connection import AddressError, NetworkAddress, SocketAddress, parse_address
from eso_operator.stores.resolved import (
    CLUSTER_CLASS,
    ClusterView,
    Endpoint,
    EndpointSource,
    Reason,
    ResolutionError,
    ResolverSettings,
    ServiceKey,
)
from eso_wire.kinds import ObjectRef
from kubebase.addresses import METADATA_HOSTS, Address, is_metadata_service
from kubebase.meta import JsonObject

_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Author:
    """The author of an address: the object, the namespace of a bare host, the reachable namespaces (None: all)."""

    ref: ObjectRef
    namespace: str
    reach: frozenset[str] | None


def author_of(ref: ObjectRef, settings: ResolverSettings) -> Author:
    """Return the author for an object. A cluster-scoped object reaches every namespace.

    A namespaced object reaches the shared provider namespaces, and its own if the administrator allows providers there.
    """
    if not ref.namespace:
        return Author(ref, settings.core_namespace, None)
    own = (ref.namespace,) if settings.may_have_providers(ref.namespace) else ()
    return Author(ref, ref.namespace, frozenset({*own, *settings.shared_namespaces}))


def endpoint_at(
    address: str, author: Author, *, source: EndpointSource, settings: ResolverSettings, view: ClusterView
) -> Endpoint:
    """Return the endpoint of an address. Raises ResolutionError if its author may not dial it."""
    try:
        parsed = parse_address(address)
    except AddressError as error:
        raise ResolutionError(
            Reason.ADDRESS_INVALID, f"{_whose(author)} is invalid: {error}", subject=author.ref
        ) from None
    match parsed:
        case SocketAddress(path=path):
            return _socket(path, author, source, settings)
        case NetworkAddress(host=host, port=port):
            host = host.lower().rstrip(".")
            service = _trusted_at(f"{host}:{port}", settings) or service_of(host, author.namespace, settings)
            if service is not None:
                vouched = author.reach is None or _is_vouched_for(service, settings, view)
                _check_reach(service, author, vouched=vouched, settings=settings)
                endpoint = service_endpoint(service, port, source, settings)
                return replace(endpoint, tenant="") if vouched else endpoint
            return _external(host, port, author, source, settings)


def service_endpoint(service: ServiceKey, port: int, source: EndpointSource, settings: ResolverSettings) -> Endpoint:
    """Return the endpoint of a Service, without a check whether it may be dialled."""
    name = f"{service.name}.{service.namespace}.svc"
    dial = settings.trusted.get(service)
    uri = f"dns:///{name}:{port}" if dial is None else _uri(dial)
    ours = dial is not None or service.namespace in settings.shared_namespaces
    tenant = "" if ours else service.namespace
    return Endpoint(uri=uri, server_name=name, source=source, label=str(service), service=service, tenant=tenant)


def service_of(host: str, namespace: str, settings: ResolverSettings) -> ServiceKey | None:
    """Return the Service that a host name means; None if the host is not in a form of a Service name."""
    parts = host.split(".", 3)
    name, namespace, *rest = parts if len(parts) > 1 else (host, namespace)
    if rest not in ([], ["svc"], ["svc", settings.cluster_domain]):
        return None
    if not (_SERVICE_NAME.fullmatch(name) and _NAMESPACE_NAME.fullmatch(namespace)):
        return None
    return ServiceKey(namespace, name)


def is_alias(service: JsonObject) -> bool:
    """Return whether a Service is an alias of another host. Pass a live Service, not a cached one."""
    spec = service.get("spec")
    return isinstance(spec, dict) and spec.get("type") == "ExternalName"


def is_never_dialled(address: str) -> bool:
    """Return whether this is the IP address, in any notation, of a link-local host or a cloud's metadata server."""
    literal = _ip(address)
    return literal is not None and is_metadata_service(literal)


def _trusted_at(dialled: str, settings: ResolverSettings) -> ServiceKey | None:
    return next((service for service, address in settings.trusted.items() if address == dialled), None)


def _check_reach(service: ServiceKey, author: Author, *, vouched: bool, settings: ResolverSettings) -> None:
    if service in settings.trusted:
        return
    own = service.namespace == author.ref.namespace
    if author.reach is not None and service.namespace not in author.reach and not (own and vouched):
        how = (
            "; an administrator can name it in a ClusterProviderClass, or allow providers of this namespace"
            " (--provider-namespace, --namespaced-providers)"
        )
        raise _denied(
            author,
            f"is Service {service.name} of namespace {service.namespace}; a namespaced object may dial Services of"
            f" {', '.join(sorted(author.reach))}{how if own else ''}",
        )


def _is_vouched_for(service: ServiceKey, settings: ResolverSettings, view: ClusterView) -> bool:
    """Return whether a ClusterProviderClass, which only administrators write, names this tenant Service."""
    if service.namespace in settings.shared_namespaces:
        return False  # not a tenant Service
    return any(_service_at(_address(obj), settings) == service for obj in view.objects.list(CLUSTER_CLASS))


def _address(cls: Any) -> str:
    """Return the address in the spec of a class, which is JSON or typed; empty if there is none."""
    spec = cls.get("spec") if isinstance(cls, dict) else getattr(cls, "spec", None)
    address = spec.get("address") if isinstance(spec, dict) else getattr(spec, "address", "")
    return address if isinstance(address, str) else ""


def _service_at(address: str, settings: ResolverSettings) -> ServiceKey | None:
    """Return the Service that an address of a cluster-scoped object means; None if it means none."""
    try:
        parsed = parse_address(address)
    except AddressError:
        return None
    host = parsed.host.lower().rstrip(".") if isinstance(parsed, NetworkAddress) else ""
    return service_of(host, settings.core_namespace, settings) if host else None


def _external(host: str, port: int, author: Author, source: EndpointSource, settings: ResolverSettings) -> Endpoint:
    literal = _ip(host)
    if is_never_dialled(host):
        raise _denied(author, "is a link-local or metadata address, which is never dialled")
    if not any(_allows(entry, host, port, literal) for entry in settings.allowed_addresses):
        what = "is an IP address" if literal is not None else "is neither a Service nor on the operator's allow-list"
        raise _denied(author, f"{what}: name a Service, or have the address allowed (--allowed-provider-address)")
    shown = f"[{host}]" if literal is not None and literal.version == 6 else host
    # The label appears in metrics, where an address must not: use the name of the object that wrote it.
    label = f"{author.ref.kind}/{author.ref.name}"
    return Endpoint(uri=_uri(f"{shown}:{port}"), server_name=host, source=source, label=label)


def _socket(path: str, author: Author, source: EndpointSource, settings: ResolverSettings) -> Endpoint:
    if not settings.unix_sockets:
        raise ResolutionError(
            Reason.FEATURE_DISABLED,
            f"{_whose(author)} is a Unix socket: use the Service of the provider, or turn on UnixSocketProviders",
            subject=author.ref,
        )
    label = f"{author.ref.kind}/{author.ref.name}"
    return Endpoint(uri=f"unix:{path}", server_name="localhost", source=source, label=label)


def _uri(dialled: str) -> str:
    """Return the target URI for gRPC. IP addresses must not go to a resolver."""
    host = dialled.rpartition(":")[0].strip("[]")
    literal = _ip(host)
    if literal is None:
        return f"dns:///{dialled}"
    return f"ipv{literal.version}:{dialled}"


def _ip(host: str) -> Address | None:
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = literal.ipv4_mapped if isinstance(literal, ipaddress.IPv6Address) else None
    return mapped or literal


def _allows(entry: str, host: str, port: int, literal: Address | None) -> bool:
    entry = entry.lower()
    if "*" not in entry:
        shown = f"[{host}]" if ":" in host else host
        return entry in (host, shown, f"{shown}:{port}")
    # A wildcard matches names only: never metadata hosts, and no IP address in any notation.
    if literal is not None or host in METADATA_HOSTS or host.replace(".", "").isdecimal() or host.startswith("0x"):
        return False
    pattern = re.compile(".*".join(re.escape(part) for part in entry.split("*")))
    return pattern.fullmatch(host) is not None or pattern.fullmatch(f"{host}:{port}") is not None


def _denied(author: Author, problem: str) -> ResolutionError:
    return ResolutionError(Reason.ADDRESS_DENIED, f"{_whose(author)} {problem}", subject=author.ref)


def _whose(author: Author) -> str:
    return f"{author.ref.kind} {author.ref.name}: its address"
