"""Which provider a store or generator goes to, as far as objects declare it.

The operator finds a provider by an address, by a class, or by what classes declare and providers say when they are
asked (`eso_operator/stores/discovery.py`). Nobody is asked here: a route that only a handshake can tell stays open.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from eso_api.v2.clusterprovider import CLUSTER_PROVIDER
from eso_api.v2.clusterproviderclass import CLUSTER_PROVIDER_CLASS
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION
from eso_api.v2.generator import GENERATOR
from eso_api.v2.provider import PROVIDER
from eso_api.v2.providerclass import PROVIDER_CLASS
from eso_api.v2.secretstore import SECRET_STORE_V2
from kuberun.meta import JsonObject, ObjectKey, Resource, key_of

SERVICES: Final = Resource("", "v1", "services", "Service")

_NO_KEY: Final = ObjectKey("", "")
_CLUSTER: Final = "Cluster"
_PROVIDERS: Final = {(kind.group, kind.name) for kind in (PROVIDER, CLUSTER_PROVIDER)}
_V2_GROUPS: Final = {SECRET_STORE_V2.group, GENERATOR.group}


@dataclass(frozen=True, slots=True)
class Route:
    """What a provider must serve (`v1_key`, or one of `kinds` as group and kind), or the object that is named."""

    said: str = ""
    v1_key: str = ""
    kinds: tuple[tuple[str, str], ...] = ()
    resource: Resource | None = None
    key: ObjectKey = _NO_KEY


NOWHERE: Final = Route()


def route_of(resource: Resource, document: JsonObject) -> Route:
    """Where the spec of a store or generator leads."""
    spec = _map(document, "spec")
    config = _connection(resource, spec)
    if address := _text(config, "address"):
        return _addressed(address)
    if class_ref := _map(config, "classRef"):
        kind = PROVIDER_CLASS if class_ref.get("kind") == PROVIDER_CLASS.name else CLUSTER_PROVIDER_CLASS
        key = ObjectKey(key_of(document).namespace if kind.namespaced else "", _text(class_ref, "name"))
        return Route(f"classRef {kind.name} {key.name}", resource=kind.resource(), key=key)
    if (named := _map(config, "providerRef") or _map(config, "inline")) and _text(named, "kind"):
        generates = resource.group == GENERATOR.group
        default = GENERATOR_CONFIG_API_VERSION if generates else STORE_CONFIG_API_VERSION
        group = (_text(named, "apiVersion") or default).rpartition("/")[0]
        return Route(f"kind {_text(named, 'kind')}", kinds=_twins(group, _text(named, "kind")))
    if len(provider := _map(spec, "provider")) == 1:
        (key_of_provider,) = provider
        return Route(f"spec.provider.{key_of_provider}", v1_key=str(key_of_provider))
    return Route(f"kind {resource.kind}", kinds=_twins(resource.group, resource.kind))


@dataclass(frozen=True, slots=True)
class Class:
    resource: Resource
    document: JsonObject = field(repr=False)


class Classes:
    """The provider classes of the cluster."""

    RESOURCES: ClassVar = (PROVIDER_CLASS.resource(), CLUSTER_PROVIDER_CLASS.resource())

    def __init__(self) -> None:
        self._classes: list[Class] = []

    def add(self, resource: Resource, documents: Iterable[JsonObject]) -> None:
        self._classes += [Class(resource, document) for document in documents]

    def serving(self, route: Route, home: str) -> list[Class]:
        """The class that is named; else those that declare it, of the nearest level that has any."""
        if route.resource is not None:
            named = (route.resource, route.key)
            return [each for each in self._classes if (each.resource, key_of(each.document)) == named]
        serving = [each for each in self._classes if _serves(each.document, route)]
        own = [each for each in serving if home and key_of(each.document).namespace == home]
        shared = [each for each in serving if not each.resource.namespaced]
        return own or shared or serving


def _connection(resource: Resource, spec: JsonObject) -> JsonObject:
    """How the provider is reached, in the kinds that say so; a field of that name in others is about the backend."""
    if (resource.group, resource.kind) in _PROVIDERS:
        return _map(spec, "config") or spec
    return _map(spec, "providerConfig") if resource.group in _V2_GROUPS else {}


def _addressed(address: str) -> Route:
    """An address of the cluster names a Service; of any other nothing can be looked at."""
    host = address.rpartition("//")[2].rpartition(":")[0]
    match host.split("."):
        case [name, namespace, "svc", *_]:
            return Route(f"address {address}", resource=SERVICES, key=ObjectKey(namespace, name))
        case _:
            return Route(f"address {address}")


def _twins(group: str, kind: str) -> tuple[tuple[str, str], ...]:
    """A cluster-scoped kind is served wherever its namespaced twin is."""
    twin = kind.removeprefix(_CLUSTER)
    return ((group, kind), (group, twin)) if twin and twin != kind else ((group, kind),)


def _serves(document: JsonObject, route: Route) -> bool:
    spec, status = _map(document, "spec"), _map(document, "status")
    if route.v1_key:
        return route.v1_key in (spec.get("v1ProviderKeys") or [])
    declared = [*(spec.get("serves") or []), *(status.get("kinds") or [])]
    return any(isinstance(one, dict) and (_text(one, "group"), _text(one, "kind")) in route.kinds for one in declared)


def _map(document: JsonObject, name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(document: JsonObject, name: str) -> str:
    found = document.get(name)
    return found if isinstance(found, str) else ""
