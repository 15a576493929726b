"""Creates a ProviderClass for every labelled Service, so that users need not write one.

Only in namespaces that may have providers (`ResolverSettings.may_have_providers`); in other namespaces, classes that
were created for a Service are deleted. The class has the Service's name and namespace and is owned by it: it is deleted
with the Service, or when the label is removed. A class of that name that a user wrote stays unchanged.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from eso_api.v2.providerclass import PROVIDER_CLASS, ProviderClass
from eso_operator.controllers.base import api_error_text
from eso_operator.stores.discovery import PORT_NAME, PROVIDER_LABEL, service_candidate
from eso_operator.stores.resolved import ResolverSettings
from kubebase.meta import JsonObject, Malformed, ObjectKey, ObjectMeta, Resource, meta_of
from kuberun.cache import Cache
from kuberun.client import Client
from kuberun.controller import Backoff, Done, ReconcileContext, Result
from kuberun.errors import ApiError, NotFound
from kuberun.ownership import controller_reference, is_controlled_by
from kuberun.requests import DeleteOptions

FIELD_MANAGER: Final = "external-secrets-provider-classes"
SERVICES: Final = Resource("", "v1", "services", "Service")

_CLASSES: Final = PROVIDER_CLASS.kind()

_log = structlog.get_logger(__name__)


class ServiceClasses:
    """Reconciles labelled Services. One that lost its label looks deleted, whether the informer has others or not."""

    def __init__(
        self, services: Cache[JsonObject], classes: Cache[ProviderClass], *, client: Client, settings: ResolverSettings
    ) -> None:
        self._services = services
        self._classes = classes
        self._client = client
        self._settings = settings

    async def reconcile(self, key: ObjectKey, _: ReconcileContext) -> Result:
        """Create, update or delete the class of one Service."""
        service, existing = self._services.get(key), self._classes.get(key)
        try:
            allowed = self._settings.may_have_providers(key.namespace)
            if not allowed or service is None or isinstance(service, Malformed) or not _is_labelled(service):
                await self._remove(existing)
            else:
                await self._provide(service, existing)
        except ApiError as error:
            return Backoff(f"class not written: {api_error_text(error)}")
        return Done()

    async def _provide(self, service: JsonObject, existing: ProviderClass | Malformed | None) -> None:
        owner = meta_of(service)
        if existing is not None and not is_controlled_by(existing.metadata, owner.uid):
            _log.info("class was written by a user and stays as it is", provider_class=str(owner.key))
            return
        wanted = class_of(service, self._settings)
        if wanted is None or _agrees(existing, wanted):
            return
        await self._client.apply(_CLASSES, wanted, field_manager=FIELD_MANAGER, force=True)
        _log.info("class follows its Service", provider_class=str(owner.key))

    async def _remove(self, existing: ProviderClass | Malformed | None) -> None:
        """Delete a class that was created for a Service. For a deleted Service the garbage collector does the same.

        The deletion is bound to the version that was seen: a class that a user has taken over since then stays.
        """
        if existing is None or not _follows_a_service(existing.metadata):
            return
        metadata = existing.metadata
        exactly = DeleteOptions(uid=metadata.uid, resource_version=metadata.resource_version)
        try:
            await self._client.delete(_CLASSES, metadata.key, exactly)
        except NotFound:
            return


def class_of(service: JsonObject, settings: ResolverSettings) -> JsonObject | None:
    """Return the class of a Service; None if the Service has no usable port."""
    candidate, owner = service_candidate(service, settings), meta_of(service)
    if candidate is None or not _is_labelled(service):
        return None
    port = _port(service)
    reference = controller_reference(SERVICES, owner)
    spec: dict[str, Any] = {"address": f"grpc://{owner.name}.{owner.namespace}.svc:{port}"}
    if candidate.kinds:
        spec["serves"] = [kind._asdict() for kind in sorted(candidate.kinds)]
    if candidate.v1_keys:
        spec["v1ProviderKeys"] = sorted(candidate.v1_keys)
    return {
        "apiVersion": PROVIDER_CLASS.resource().api_version,
        "kind": PROVIDER_CLASS.name,
        "metadata": {
            "name": owner.name,
            "namespace": owner.namespace,
            "ownerReferences": [
                {
                    "apiVersion": reference.api_version,
                    "kind": reference.kind,
                    "name": reference.name,
                    "uid": reference.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def _is_labelled(service: JsonObject) -> bool:
    return meta_of(service).labels.get(PROVIDER_LABEL) == "true"


def _port(service: JsonObject) -> int:
    """Return the Service's own port, even if its provider is dialled elsewhere: a candidate needs a port."""
    ports = service["spec"]["ports"]
    port: int = next((entry for entry in ports if entry.get("name") == PORT_NAME), ports[0])["port"]
    return port


def _agrees(existing: ProviderClass | Malformed | None, wanted: JsonObject) -> bool:
    if existing is None or isinstance(existing, Malformed):
        return False
    spec = wanted["spec"]
    serves = [{"group": kind.group, "version": kind.version, "kind": kind.kind} for kind in existing.spec.serves]
    return bool(
        existing.spec.address == spec["address"]
        and serves == spec.get("serves", [])
        and existing.spec.v1_provider_keys == spec.get("v1ProviderKeys", [])
    )


def _follows_a_service(about: ObjectMeta) -> bool:
    return any(
        reference.controller and reference.kind == SERVICES.kind and reference.name == about.name
        for reference in about.owner_references
    )
