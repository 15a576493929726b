"""ExternalSecrets for benchmarks, and a bare client's writes for one of them."""

from __future__ import annotations

from stage import ES, SECRETS, STORES, Stage, parallel

from kubebase.meta import JsonObject, key_of

OBJECTS, NAMESPACES, REMOTE_KEYS, KEYS = 1000, 50, 20, 3
TEAMS = [f"team-{number}" for number in range(NAMESPACES)]

_DIGEST = "0123456789abcdef" * 3 + "01234567"
_TIME = "2026-01-01T00:00:00Z"


async def create_store(stage: Stage) -> None:
    data = [{"key": f"remote-{number}", "value": f"value-{number}"} for number in range(REMOTE_KEYS)]
    await stage.create([(STORES, {"metadata": {"name": "bench"}, "spec": {"provider": {"fake": {"data": data}}}})])


def external_secret(number: int, *, prefix: str, **spec: object) -> JsonObject:
    data = [
        {"secretKey": f"key-{each}", "remoteRef": {"key": f"remote-{(number * KEYS + each) % REMOTE_KEYS}"}}
        for each in range(KEYS)
    ]
    return {
        "metadata": {"name": f"{prefix}-{number}", "namespace": TEAMS[number % NAMESPACES]},
        "spec": {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "bench"}, "data": data, **spec},
    }


async def write_bare(stage: Stage, obj: JsonObject) -> None:
    """Write the Secret and the status with all fields that the operator writes: the server has the same work."""
    key = key_of(obj)
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": key.name, "uid": obj["metadata"]["uid"]}
    metadata = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            "reconcile.external-secrets.io/managed": "true",
            "reconcile.external-secrets.io/created-by": _DIGEST,
        },
        "annotations": {"reconcile.external-secrets.io/data-hash": _DIGEST},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    data = {f"key-{number}": "dmFsdWU=" for number in range(KEYS)}
    await stage.client.apply(SECRETS, {"metadata": metadata, "type": "Opaque", "data": data}, field_manager="bench")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "SecretSynced",
        "message": "secret synced",
        "lastTransitionTime": _TIME,
    }
    status = {
        "conditions": [condition],
        "refreshTime": _TIME,
        "syncedResourceVersion": f"1-{_DIGEST}",
        "syncedTargetVersion": "1234567",
        "binding": {"name": key.name},
    }
    await stage.client.merge_patch(ES, key, {"status": status}, subresource="status")


async def remove(stage: Stage, objects: list[JsonObject]) -> None:
    await parallel([stage.client.delete(ES, key_of(obj)) for obj in objects])
    await parallel([stage.client.delete(SECRETS, key_of(obj)) for obj in objects])
