"""The certificates of one Service as three Secrets, and the check that a Secret is ours before it is written.

    <service>-provider-tls              namespace of the Service   server   mounted by the provider
    <namespace>.<service>-client-tls    core namespace             client   read by the operator
    <namespace>.<service>-issuer        core namespace             issuer   private keys of the authorities

All are of type kubernetes.io/tls; `ca.crt` is the trust bundle. A Secret is ours if its labels name its part and the
operator that made it (by namespace), and its annotation names the Service. This module sends no requests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from eso_operator.certificates.problems import Problem, ProblemName
from eso_operator.certificates.state import Authorities, Leaf, join
from eso_operator.stores.resolved import ServiceKey
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject, Kind, Object, ObjectKey, ObjectMeta, OwnerReference, Resource, raw

SECRETS: Final = Resource("", "v1", "secrets", "Secret")
RAW_SECRETS: Final = raw(SECRETS)

PART_LABEL: Final = "external-secrets.io/provider-certificates"
MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
ISSUED_BY_LABEL: Final = "external-secrets.io/certificates-issued-by"
SERVICE_ANNOTATION: Final = "external-secrets.io/provider-service"
WRITTEN_ANNOTATION: Final = "external-secrets.io/written-at"

SERVER: Final = "server"
CLIENT: Final = "client"
ISSUER: Final = "issuer"

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
TRUST: Final = "ca.crt"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
PREVIOUS: Final = "previous.crt"

_MAX_NAME: Final = 253


class SecretObject(Object, kw_only=True):
    """A Secret with its content, which no repr shows."""

    type: str = ""
    data: dict[str, bytes] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"SecretObject({self.key})"


TYPED_SECRETS: Final = Kind(SECRETS, SecretObject)


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys of the three Secrets of one Service."""

    server: ObjectKey
    client: ObjectKey
    issuer: ObjectKey

    def of(self, part: str) -> ObjectKey:
        return dict(self.parts())[part]

    def parts(self) -> tuple[tuple[str, ObjectKey], ...]:
        """Return the parts in the order of writes: an authority is stored before it signs."""
        return (ISSUER, self.issuer), (SERVER, self.server), (CLIENT, self.client)


def keys_of(service: ServiceKey, core_namespace: str) -> SecretKeys:
    qualified = f"{service.namespace}.{service.name}"
    return SecretKeys(
        server=ObjectKey(service.namespace, bounded_name(service.name, "-provider-tls")),
        client=ObjectKey(core_namespace, bounded_name(qualified, "-client-tls")),
        issuer=ObjectKey(core_namespace, bounded_name(qualified, "-issuer")),
    )


def bounded_name(stem: str, suffix: str) -> str:
    """Return stem and suffix as an object name; a stem that is too long is cut and gets a digest."""
    room = _MAX_NAME - len(suffix)
    if len(stem) <= room:
        return stem + suffix
    digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
    return f"{stem[: room - 17].rstrip('.-')}-{digest}{suffix}"


# --- whose it is -----------------------------------------------------------------------------------------------------


def service_of(metadata: ObjectMeta) -> ServiceKey | None:
    """Return the Service that a Secret of ours belongs to; None for a foreign Secret."""
    namespace, _, name = metadata.annotations.get(SERVICE_ANNOTATION, "").partition("/")
    marked = metadata.labels.get(PART_LABEL) in (SERVER, CLIENT, ISSUER)
    return ServiceKey(namespace, name) if marked and namespace and name else None


@dataclass(frozen=True, slots=True)
class CertificateOwner:
    """The Service of a Secret, and the operator that made it."""

    service: ServiceKey
    core_namespace: str


def ours(core_namespace: str) -> str:
    """Return the label selector of all Secrets that the operator in this namespace made."""
    return f"{PART_LABEL},{ISSUED_BY_LABEL}={core_namespace}"


def ownership_problem(metadata: ObjectMeta, part: str, owner: CertificateOwner) -> Problem | None:
    """Return why this Secret must not be written; None if it is ours."""
    issued_by = metadata.labels.get(ISSUED_BY_LABEL, "")
    if metadata.labels.get(PART_LABEL) == part and service_of(metadata) == owner.service:
        if issued_by == owner.core_namespace:
            return None
        whose = f"is managed by the operator in namespace {issued_by}: let one operator serve this provider"
    else:
        whose = "is not managed by the operator: remove or rename it, or name it as your own certificates in the store"
    return Problem(
        ProblemName.SECRET_NOT_OURS,
        f"Secret {metadata.key} stands where the {part} certificates of Service {owner.service} belong, and {whose}",
    )


# --- content ---------------------------------------------------------------------------------------------------------


def issuer_data(issuer: Authorities) -> dict[str, bytes]:
    data = {
        CERTIFICATE: issuer.current.certificate,
        KEY: issuer.current.key.reveal(),
        TRUST: join(issuer.trust),
    }
    if issuer.next is not None:
        data |= {NEXT_CERTIFICATE: issuer.next.certificate, NEXT_KEY: issuer.next.key.reveal()}
    if issuer.previous:
        data[PREVIOUS] = join(issuer.previous)
    return data


def leaf_data(leaf: Leaf) -> dict[str, bytes]:
    return {
        CERTIFICATE: leaf.credential.certificate,
        KEY: leaf.credential.key.reveal(),
        TRUST: join(leaf.trust),
    }


# --- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecretMetadata:
    """The labels, annotations and owner of a Secret."""

    part: str
    owner: CertificateOwner
    written_at: datetime
    reference: OwnerReference | None = None

    def metadata(self, key: ObjectKey) -> JsonObject:
        made_by = {MANAGED_LABEL: "external-secrets", ISSUED_BY_LABEL: self.owner.core_namespace}
        annotations = {SERVICE_ANNOTATION: str(self.owner.service), WRITTEN_ANNOTATION: rfc3339(self.written_at)}
        owners = {} if self.reference is None else {"ownerReferences": [_reference(self.reference)]}
        return {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {PART_LABEL: self.part, **made_by},
            "annotations": annotations,
            **owners,
        }


def new_document(key: ObjectKey, mark: SecretMetadata, data: Mapping[str, bytes]) -> JsonObject:
    return {"metadata": mark.metadata(key), "type": "kubernetes.io/tls", "data": _encoded(data)}


def patch_of(existing: SecretObject, mark: SecretMetadata, data: Mapping[str, bytes]) -> JsonObject:
    """Return the merge patch for exactly the version that was read; labels and annotations of others stay."""
    gone = dict.fromkeys(set(existing.data) & {NEXT_CERTIFICATE, NEXT_KEY, PREVIOUS} - set(data))
    metadata = {
        **mark.metadata(existing.key),
        "uid": existing.metadata.uid,
        "resourceVersion": existing.metadata.resource_version,
    }
    return {"metadata": metadata, "data": {**_encoded(data), **gone}}


def _encoded(data: Mapping[str, bytes]) -> JsonObject:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def _reference(reference: OwnerReference) -> JsonObject:
    return {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "name": reference.name,
        "uid": reference.uid,
    }
