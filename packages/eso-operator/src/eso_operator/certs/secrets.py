"""The certificates of one Service as three Secrets, and the rule that a Secret which is not ours is never written.

    <service>-provider-tls              namespace of the Service   server   mounted by the provider
    <namespace>.<service>-client-tls    core namespace             client   read by the core
    <namespace>.<service>-issuer        core namespace             issuer   private keys of the authorities

All are of type kubernetes.io/tls; `ca.crt` is the trust bundle. A Secret is ours when its labels say which part it
plays and which operator made it (by its namespace), and its annotation names the Service. No API server is called here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from eso_api.values import SecretBytes
from eso_operator.certs import authority
from eso_operator.certs.authority import Credential
from eso_operator.certs.bundle import Authorities, Leaf
from eso_operator.certs.problems import Problem, ProblemName
from eso_operator.stores.target import ServiceKey
from kuberun.clock import parse_rfc3339, rfc3339
from kuberun.meta import JsonObject, Kind, Object, ObjectKey, ObjectMeta, OwnerReference, Resource, raw

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
    """Where the three Secrets of one Service are."""

    server: ObjectKey
    client: ObjectKey
    issuer: ObjectKey

    def of(self, part: str) -> ObjectKey:
        return dict(self.parts())[part]

    def parts(self) -> tuple[tuple[str, ObjectKey], ...]:
        """In the order in which they are written: the key of an authority is safe before anything is signed with it."""
        return (ISSUER, self.issuer), (SERVER, self.server), (CLIENT, self.client)


def keys_of(service: ServiceKey, core_namespace: str) -> SecretKeys:
    qualified = f"{service.namespace}.{service.name}"
    return SecretKeys(
        server=ObjectKey(service.namespace, bounded_name(service.name, "-provider-tls")),
        client=ObjectKey(core_namespace, bounded_name(qualified, "-client-tls")),
        issuer=ObjectKey(core_namespace, bounded_name(qualified, "-issuer")),
    )


def bounded_name(stem: str, suffix: str) -> str:
    """Stem and suffix as the name of an object; a stem that does not fit keeps its head and a digest of the whole."""
    room = _MAX_NAME - len(suffix)
    if len(stem) <= room:
        return stem + suffix
    digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
    return f"{stem[: room - 17].rstrip('.-')}-{digest}{suffix}"


# --- whose it is -----------------------------------------------------------------------------------------------------


def service_of(metadata: ObjectMeta) -> ServiceKey | None:
    """The Service that a Secret of ours belongs to; None for a Secret of somebody else."""
    namespace, _, name = metadata.annotations.get(SERVICE_ANNOTATION, "").partition("/")
    marked = metadata.labels.get(PART_LABEL) in (SERVER, CLIENT, ISSUER)
    return ServiceKey(namespace, name) if marked and namespace and name else None


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a Secret of ours is for, and which of the operators in a cluster made it."""

    service: ServiceKey
    core_namespace: str


def ours(core_namespace: str) -> str:
    """The label selector of all Secrets that the operator in this namespace made."""
    return f"{PART_LABEL},{ISSUED_BY_LABEL}={core_namespace}"


def ownership_problem(metadata: ObjectMeta, part: str, owner: Owner) -> Problem | None:
    """Why this Secret is not to be touched."""
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
        TRUST: authority.join(issuer.trust),
    }
    if issuer.next is not None:
        data |= {NEXT_CERTIFICATE: issuer.next.certificate, NEXT_KEY: issuer.next.key.reveal()}
    if issuer.previous:
        data[PREVIOUS] = authority.join(issuer.previous)
    return data


def leaf_data(leaf: Leaf) -> dict[str, bytes]:
    return {
        CERTIFICATE: leaf.credential.certificate,
        KEY: leaf.credential.key.reveal(),
        TRUST: authority.join(leaf.trust),
    }


def issuer_of(data: Mapping[str, bytes]) -> Authorities | None:
    """What the content says; None if it does not hold together, and has to be made anew."""
    try:
        return Authorities(
            _credential(data, CERTIFICATE, KEY),
            _credential(data, NEXT_CERTIFICATE, NEXT_KEY) if NEXT_CERTIFICATE in data else None,
            authority.split(data[PREVIOUS]) if PREVIOUS in data else (),
        )
    except (KeyError, ValueError):
        return None


def leaf_of(data: Mapping[str, bytes], written_at: str) -> Leaf | None:
    try:
        moment = parse_rfc3339(written_at)
        if moment.tzinfo is None:
            return None
        return Leaf(_credential(data, CERTIFICATE, KEY), authority.split(data[TRUST]), moment)
    except (KeyError, ValueError):
        return None


def _credential(data: Mapping[str, bytes], certificate: str, key: str) -> Credential:
    return Credential(authority.join(authority.split(data[certificate])), SecretBytes(data[key]))


# --- documents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """What a Secret carries besides its content."""

    part: str
    owner: Owner
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


def new_document(key: ObjectKey, mark: Mark, data: Mapping[str, bytes]) -> JsonObject:
    return {"metadata": mark.metadata(key), "type": "kubernetes.io/tls", "data": _encoded(data)}


def patch_of(existing: SecretObject, mark: Mark, data: Mapping[str, bytes]) -> JsonObject:
    """The merge patch from what was read to what is wanted; it fits that very version only, and keeps foreign marks."""
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
