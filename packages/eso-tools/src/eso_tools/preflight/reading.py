"""Objects of a cluster as the values of a snapshot. Pure."""

from __future__ import annotations

from typing import Any, Final

from eso_api.references import GENERATORS_GROUP
from eso_api.v2.clusterproviderclass import ClusterProviderClass
from eso_api.v2.providerclass import ProviderClass
from eso_operator.stores.classes import announced
from eso_tools.preflight.helmrecords import KEEP, POLICY, is_managed, owner_of
from eso_tools.preflight.snapshot import Definition, Owner, Running, Webhook, is_ours
from eso_tools.providers import Want
from kubebase.meta import JsonObject, Object, meta_of

_SERVICE_PREFIX: Final = "provider-"
"""The name of a provider's Service is, by convention, this and the name of its package."""


def definition_of(crd: JsonObject) -> Definition | None:
    """Return a definition of a group of External Secrets; None for every other one."""
    metadata, spec, status = meta_of(crd), crd.get("spec") or {}, crd.get("status") or {}
    if not is_ours(str(spec.get("group", ""))):
        return None
    versions = spec.get("versions") or ()
    return Definition(
        name=metadata.name,
        served=tuple(str(each["name"]) for each in versions if each.get("served")),
        storage=next((str(each["name"]) for each in versions if each.get("storage")), ""),
        stored_versions=tuple(status.get("storedVersions") or ()),
        conversion=_conversion(spec.get("conversion") or {}),
        owner=owner_of(metadata.annotations),
        managed_by_helm=is_managed(metadata.labels),
        kept=metadata.annotations.get(POLICY) == KEEP,
        kind=str((spec.get("names") or {}).get("kind", "")),
        namespaced=spec.get("scope") != "Cluster",
    )


def webhook_of(configuration: JsonObject) -> Webhook | None:
    """Return a configuration of the operator in Go; None for others, such as a policy engine that judges our kinds."""
    hooks = [hook for hook in configuration.get("webhooks") or () if is_ours(str(hook.get("name", "")))]
    if not hooks:
        return None
    services = dict.fromkeys(_served_by(hook.get("clientConfig")) for hook in hooks)
    metadata = meta_of(configuration)
    return Webhook(metadata.name, tuple(services), owner_of(metadata.annotations))


def owner_of_role(role: Object) -> Owner | None:
    """Return the Helm release of a role."""
    return owner_of(role.metadata.annotations)


def provider_of_service(service: Object) -> Running:
    """Return the provider behind a labelled Service: what its annotations announce."""
    kinds, keys = announced(service.metadata.annotations)
    serves = {Want(kind.group, kind.kind) for kind in kinds}
    serves |= {Want(group, key) for key in keys for group in ("", GENERATORS_GROUP)}
    name = service.metadata.name.removeprefix(_SERVICE_PREFIX)
    return Running(f"Service {service.key}", frozenset(serves), name)


def provider_of_class(found: ProviderClass | ClusterProviderClass) -> Running:
    """Return the provider of a class: what it must serve, and what it reported."""
    serves = {Want(kind.group, kind.kind) for kind in found.status.kinds}
    keys = {kind.v1_provider_key for kind in found.status.kinds} | {*found.spec.v1_provider_keys}
    serves |= {Want(group, key) for key in keys - {""} for group in ("", GENERATORS_GROUP)}
    return Running(f"{type(found).__name__} {found.key}", frozenset(serves))


def _conversion(conversion: JsonObject) -> str:
    if conversion.get("strategy") != "Webhook":
        return ""
    return _served_by((conversion.get("webhook") or {}).get("clientConfig"))


def _served_by(config: Any) -> str:
    match config:
        case {"service": {"namespace": str(namespace), "name": str(name)}}:
            return f"{namespace}/{name}"
        case _:
            return "a URL"
