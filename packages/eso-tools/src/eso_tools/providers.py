"""Installed providers and the objects that need them: what each serves, and the Service that makes one known.

object -> wanted_by -> Want -> offers -> name of a provider
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from eso_api import references
from eso_api.v2.connection import GENERATOR_CONFIG_API_VERSION, STORE_CONFIG_API_VERSION
from eso_api.v2.generator import GENERATOR
from eso_api.v2.secretstore import SECRET_STORE_V2
from eso_operator.stores.loading import PLUGIN_KEY
from eso_operator.stores.resolved import ServiceKey
from eso_sdk.installed import ProviderNameError, load
from eso_wire.values import KindInfo, KindRole
from kubebase.meta import JsonObject

CORE_NAMESPACE: Final = "external-secrets"
STARTED_HERE: Final = {"app.kubernetes.io/managed-by": "eso-up"}
"""Labels of the Services that `eso up` creates, so that a later run can remove obsolete ones."""


class Want(NamedTuple):
    """A kind that a provider must serve, or a key of `spec.provider` of a v1 store (then `group` is empty)."""

    group: str
    name: str


def wanted_by(obj: JsonObject) -> Want | None:
    """Return the kind or key that an object needs a provider for, or None if the object names none."""
    group, kind = str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))
    match group, kind, obj.get("spec"):
        case (references.CORE_GROUP, "SecretStore" | "ClusterSecretStore", {"provider": dict(blocks)}):
            config = blocks.get(PLUGIN_KEY)
            if isinstance(config, dict):
                return _configured(config, STORE_CONFIG_API_VERSION)
            return Want("", next(iter(blocks))) if len(blocks) == 1 else None
        case (references.CORE_GROUP, "Provider" | "ClusterProvider", dict(spec)):
            return _configured(spec.get("config", spec), STORE_CONFIG_API_VERSION)
        case (SECRET_STORE_V2.group, _, {"providerConfig": config}):
            return _configured(config, STORE_CONFIG_API_VERSION)
        case (GENERATOR.group, _, {"providerConfig": config}):
            return _configured(config, GENERATOR_CONFIG_API_VERSION)
        case (references.GENERATORS_GROUP, "ClusterGenerator", {"kind": str(embedded)}):
            return Want(group, embedded)
        case (references.GENERATORS_GROUP, "GeneratorState", {"resource": {"kind": str(made_by)} as generator}):
            return None if made_by == kind else wanted_by(generator)
        case _:
            return Want(group, kind) if group else None


def _configured(config: Any, api_version: str) -> Want | None:
    """Return the kind that a connection names, by reference or inline."""
    match config:
        case {"providerRef": {"kind": str(kind)} as named} | {"inline": {"kind": str(kind)} as named}:
            return Want(str(named.get("apiVersion") or api_version).rpartition("/")[0], kind)
        case _:
            return None


def offers(names: Iterable[str], warn: Callable[[str], None]) -> dict[Want, str]:
    """Map kinds and keys to providers; if two providers serve the same one, the first wins. Imports every provider."""
    found: dict[Want, str] = {}
    for name in names:
        try:
            infos = load(name).kind_infos
        except ProviderNameError as problem:
            warn(str(problem))
            continue
        for info in infos:
            found.setdefault(Want(info.kind.group, info.kind.kind), name)
            if info.v1_provider_key:
                group = "" if info.role is KindRole.STORE else references.GENERATORS_GROUP
                found.setdefault(Want(group, info.v1_provider_key), name)
    return found


def service_object(service: ServiceKey, port: int, infos: Iterable[KindInfo]) -> dict[str, Any]:
    """Return the Service that makes a provider with these kinds known to the operator."""
    kinds = tuple(infos)
    keys = sorted({info.v1_provider_key for info in kinds if info.v1_provider_key})
    annotations = {"external-secrets.io/provider-kinds": ",".join(str(info.kind) for info in kinds)}
    if keys:
        annotations["external-secrets.io/provider-v1-keys"] = ",".join(keys)
    metadata = {
        "name": service.name,
        "namespace": service.namespace,
        "labels": {"external-secrets.io/provider": "true", **STARTED_HERE},
        "annotations": annotations,
    }
    ports = [{"name": "grpc", "port": port, "targetPort": port}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}}
