"""ExternalSecrets and their Secrets as values, for tests of pure rules: a test shows only the fields it is about."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from eso_api.externalsecret import EXTERNAL_SECRET, ExternalSecret, ExternalSecretStatus
from eso_api.values import SecretBytes
from eso_operator.controllers.externalsecret.snapshot import Rules, Snapshot
from eso_operator.controllers.refresh import current_version, last_sync
from eso_operator.targets.metadata import (
    CREATED_BY_LABEL,
    HASH_ANNOTATION,
    MANAGED,
    MANAGED_LABEL,
    created_by,
    data_digest,
    field_manager_of,
)
from eso_operator.targets.target import Absent, LiveSecret, Present, TargetState, live_secret
from eso_render.secret import Desired
from kubebase.clock import rfc3339
from kubebase.meta import JsonObject, ObjectMeta
from kubebase.testing.clock import START

NAMESPACE = "default"


def external_secret(name: str = "db", **fields: Any) -> ExternalSecret:
    """Return an ExternalSecret as stored.

    Keyword arguments are fields of the spec, or `metadata`, `status` and `target`.
    """
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        **fields.pop("metadata", {}),
    }
    status = fields.pop("status", None)
    spec = {"secretStoreRef": {"name": "store"}, "data": [entry("password", "db/password")], **fields}
    document = {"apiVersion": EXTERNAL_SECRET.resource().api_version, "kind": "ExternalSecret", "metadata": metadata}
    es = msgspec.convert({**document, "spec": spec}, ExternalSecret)
    return msgspec.structs.replace(es, status=status) if isinstance(status, ExternalSecretStatus) else es


def entry(key: str, remote: str) -> JsonObject:
    return {"secretKey": key, "remoteRef": {"key": remote}}


def synced(es: ExternalSecret, at: datetime = START, **status: Any) -> ExternalSecret:
    """Return the same object after a sync at that time."""
    done = ExternalSecretStatus(refresh_time=rfc3339(at), synced_resource_version=current_version(es), **status)
    return msgspec.structs.replace(es, status=done)


def snapshot(es: ExternalSecret, now: datetime = START, **fields: Any) -> Snapshot:
    """Return a gathered snapshot: the target exists and is intact, the last sync is the one in the status."""
    return Snapshot(**{"es": es, "last": last_sync(es), "now": now, "target": intact(), "rules": Rules(), **fields})


def intact(**metadata: Any) -> TargetState:
    return Present(ObjectMeta(name="db", namespace=NAMESPACE, **metadata), valid=True)


def edited(**metadata: Any) -> TargetState:
    return Present(ObjectMeta(name="db", namespace=NAMESPACE, **metadata), valid=False)


ABSENT = Absent()


# --- Secrets ----------------------------------------------------------------------------------------------------------


def values(data: Mapping[str, str]) -> dict[str, SecretBytes]:
    return {key: SecretBytes(value.encode()) for key, value in data.items()}


def desired(data: Mapping[str, str], **fields: Any) -> Desired:
    return Desired(**{"type": "", "data": values(data), "labels": {}, "annotations": {}, **fields})


def stored(data: Mapping[str, str], **fields: Any) -> LiveSecret:
    """Return a stored Secret; `metadata` is merged, other arguments are its fields."""
    metadata = {
        "name": "db",
        "namespace": NAMESPACE,
        "uid": "uid-secret",
        "resourceVersion": "7",
        **fields.pop("metadata", {}),
    }
    held = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return live_secret({"metadata": metadata, "data": held, "type": "Opaque", **fields})


def written_by(es: ExternalSecret, data: Mapping[str, str], *, operation: str = "Apply", **fields: Any) -> LiveSecret:
    """Return a Secret that this ExternalSecret wrote and that was not changed since."""
    owned = es.spec.target.creation_policy == "Owner"
    labels = {MANAGED_LABEL: MANAGED, **({CREATED_BY_LABEL: created_by(es)} if owned else {})}
    annotations = {HASH_ANNOTATION: data_digest(values(data))}
    metadata: JsonObject = {"labels": labels, "annotations": annotations}
    parts: JsonObject = {
        "f:data": {f"f:{key}": {} for key in data},
        "f:metadata": {
            "f:labels": {f"f:{key}": {} for key in labels},
            "f:annotations": {f"f:{key}": {} for key in annotations},
        },
    }
    if owned:
        reference = {"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "name": es.metadata.name}
        owner = {**reference, "uid": es.metadata.uid, "controller": True, "blockOwnerDeletion": True}
        metadata["ownerReferences"] = [owner]
        parts["f:metadata"]["f:ownerReferences"] = {f'k:{{"uid":"{es.metadata.uid}"}}': {}}
    managed = {"manager": field_manager_of(es.metadata.name), "operation": operation, "fieldsV1": parts}
    extra = fields.pop("metadata", {})
    for part in ("labels", "annotations"):
        extra = {**extra, part: {**metadata[part], **extra.get(part, {})}}
    return stored(data, metadata={**metadata, "managedFields": [managed], **extra}, **fields)
