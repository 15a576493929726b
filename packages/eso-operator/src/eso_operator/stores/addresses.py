"""From an address as users write it to an endpoint, if it may be dialled.

| host | dialled |
|---|---|
| a trusted Service, or the address it is dialled at | there |
| a Service: `svc`, `svc.ns`, `svc.ns.svc`, `svc.ns.svc.<domain>` | as `svc.ns.svc`, if it is in reach |
| anything else | only if the operator's allow-list has it; IP addresses only literally, link-local ones never |

A Service is always dialled by its full name, so that no search list of a resolver can make another host of it. What a
name resolves to, and whether a Service is one at all, is checked where the connection is made, not here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from eso_api.v2.address import AddressError, NetworkAddress, SocketAddress, parse_address
from eso_operator.stores.settings import ResolverSettings
from eso_operator.stores.snapshot import CLUSTER_CLASS, Snapshot
from eso_operator.stores.target import Endpoint, EndpointSource, Reason, ResolutionError, ServiceKey
from eso_wire.values import ObjectRef
from kuberun.meta import JsonObject

_SERVICE_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where clouds hand out the credentials of a machine.
_METADATA_HOSTS: Final = frozenset({"metadata.google.internal", "instance-data.ec2.internal"})
_METADATA_ADDRESSES: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254", "168.63.129.16")))


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote an address: the object, the namespace a bare host means, the namespaces in reach (None: all)."""

    ref: ObjectRef
    home: str
    reach: frozenset[str] | None


def author_of(ref: ObjectRef, settings: ResolverSettings) -> Author:
    """A cluster-scoped object reaches every Service, a namespaced one those of the providers' namespaces.

    Its own namespace is one of them only if the administrator lets namespaces have providers of their own.
    """
    if not ref.namespace:
        return Author(ref, settings.core_namespace, None)
    own = (ref.namespace,) if settings.may_have_providers(ref.namespace) else ()
    return Author(ref, ref.namespace, frozenset({*own, *settings.shared_namespaces}))


def endpoint_at(
    address: str, author: Author, *, source: EndpointSource, settings: ResolverSettings, snapshot: Snapshot
) -> Endpoint:
    """The endpoint of an address, if its author may dial it."""
    try:
        parsed = parse_address(address)
    except AddressError as error:
        raise ResolutionError(
            Reason.ADDRESS_INVALID, f"{_whose(author)} is no address: {error}", subject=author.ref
        ) from None
    match parsed:
        case SocketAddress(path=path):
            return _socket(path, author, source, settings)
        case NetworkAddress(host=host, port=port):
            host = host.lower().rstrip(".")
            service = _trusted_at(f"{host}:{port}", settings) or service_of(host, author.home, settings)
            if service is not None:
                vouched = author.reach is None or _is_vouched_for(service, settings, snapshot)
                _check_reach(service, author, vouched=vouched, settings=settings)
                endpoint = service_endpoint(service, port, source, settings)
                return replace(endpoint, tenant="") if vouched else endpoint
            return _external(host, port, author, source, settings)


def service_endpoint(service: ServiceKey, port: int, source: EndpointSource, settings: ResolverSettings) -> Endpoint:
    """The endpoint of a Service that is known to be one in reach."""
    name = f"{service.name}.{service.namespace}.svc"
    dial = settings.trusted.get(service)
    target = f"dns:///{name}:{port}" if dial is None else _target(dial)
    ours = dial is not None or service.namespace in settings.shared_namespaces
    tenant = "" if ours else service.namespace
    return Endpoint(target=target, server_name=name, source=source, label=str(service), service=service, tenant=tenant)


def service_of(host: str, home: str, settings: ResolverSettings) -> ServiceKey | None:
    """The Service that a host spells; None when it spells none."""
    parts = host.split(".", 3)
    name, namespace, *rest = parts if len(parts) > 1 else (host, home)
    if rest not in ([], ["svc"], ["svc", settings.cluster_domain]):
        return None
    if not (_SERVICE_NAME.fullmatch(name) and _NAMESPACE_NAME.fullmatch(namespace)):
        return None
    return ServiceKey(namespace, name)


def is_alias(service: JsonObject) -> bool:
    """Whether a Service only stands for another host. Asked live, before a dial and before a certificate is issued."""
    spec = service.get("spec")
    return isinstance(spec, dict) and spec.get("type") == "ExternalName"


def is_never_dialled(address: str) -> bool:
    """Whether an IP address, however it is spelled, is where clouds hand out the credentials of a machine."""
    literal = _ip(address)
    return literal is not None and (literal.is_link_local or literal in _METADATA_ADDRESSES)


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


def _is_vouched_for(service: ServiceKey, settings: ResolverSettings, snapshot: Snapshot) -> bool:
    """Whether an administrator's ClusterProviderClass names this Service."""
    if service.namespace in settings.shared_namespaces:
        return False  # whose it is says enough
    return any(_service_at(_address(obj), settings) == service for obj in snapshot.objects.list(CLUSTER_CLASS))


def _address(cls: Any) -> str:
    """What the spec of a class says, in whichever form it is held; empty if it says none."""
    spec = cls.get("spec") if isinstance(cls, dict) else getattr(cls, "spec", None)
    said = spec.get("address") if isinstance(spec, dict) else getattr(spec, "address", "")
    return said if isinstance(said, str) else ""


def _service_at(address: str, settings: ResolverSettings) -> ServiceKey | None:
    """The Service that a cluster-scoped object means by an address."""
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
    # The address itself must not become a label of a metric, hence the name of the object that wrote it.
    label = f"{author.ref.kind}/{author.ref.name}"
    return Endpoint(target=_target(f"{shown}:{port}"), server_name=host, source=source, label=label)


def _socket(path: str, author: Author, source: EndpointSource, settings: ResolverSettings) -> Endpoint:
    if not settings.unix_sockets:
        raise ResolutionError(
            Reason.FEATURE_DISABLED,
            f"{_whose(author)} is a Unix socket: use the Service of the provider, or turn on UnixSocketProviders",
            subject=author.ref,
        )
    label = f"{author.ref.kind}/{author.ref.name}"
    return Endpoint(target=f"unix:{path}", server_name="localhost", source=source, label=label)


def _target(dialled: str) -> str:
    """As gRPC spells it: an IP address must not go to a resolver."""
    host = dialled.rpartition(":")[0].strip("[]")
    literal = _ip(host)
    if literal is None:
        return f"dns:///{dialled}"
    return f"ipv{literal.version}:{dialled}"


def _ip(host: str) -> _Ip | None:
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = literal.ipv4_mapped if isinstance(literal, ipaddress.IPv6Address) else None
    return mapped or literal


def _allows(entry: str, host: str, port: int, literal: _Ip | None) -> bool:
    entry = entry.lower()
    if "*" not in entry:
        shown = f"[{host}]" if ":" in host else host
        return entry in (host, shown, f"{shown}:{port}")
    # A wildcard is for names: nobody means the metadata service with it, and a number may be spelled in many ways.
    if literal is not None or host in _METADATA_HOSTS or host.replace(".", "").isdecimal() or host.startswith("0x"):
        return False
    pattern = re.compile(".*".join(re.escape(part) for part in entry.split("*")))
    return pattern.fullmatch(host) is not None or pattern.fullmatch(f"{host}:{port}") is not None


def _denied(author: Author, problem: str) -> ResolutionError:
    return ResolutionError(Reason.ADDRESS_DENIED, f"{_whose(author)} {problem}", subject=author.ref)


def _whose(author: Author) -> str:
    return f"{author.ref.kind} {author.ref.name}: its address"
