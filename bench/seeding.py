"""Copies of synced ExternalSecrets with their Secrets, written directly into the storage of an API server.

An operator needs minutes for 50,000 first syncs. The objects of the other scenarios are copies of objects that an
operator has synced: the same spec, status, data and hash, with names, uids and owners of their own.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from stage import ES, SECRETS, Stage

from eso_operator.targets.metadata import CREATED_BY_LABEL, field_manager_of, owner_digest
from kubebase.clock import SystemClock
from kubebase.meta import JsonObject, key_of
from kuberun.testing.kubeapiserver import KubeApiserver
from kuberun.testing.localserver import LocalServer
from localkube.storage.records import Key
from localkube.storage.store import ObjectStorage

Pair = tuple[JsonObject, JsonObject]
_TRANSACTION = 120
"""Objects in one transaction: etcd accepts 128 writes."""


async def synced_pairs(stage: Stage, number: int) -> list[Pair]:
    """Return ExternalSecrets that are synced, each with its Secret."""
    secrets = {key_of(each): each for each in (await stage.client.list(SECRETS)).items if isinstance(each, dict)}
    listed = (each for each in (await stage.client.list(ES)).items if isinstance(each, dict))
    return [(each, secrets[key_of(each)]) for each in listed if key_of(each) in secrets][:number]


def copies(pairs: Sequence[Pair], names: Iterable[tuple[str, str]], refreshed: Iterable[str]) -> Iterator[Pair]:
    """Yield a copy of a pair for each (namespace, name), refreshed at that time."""
    for number, ((namespace, name), time) in enumerate(zip(names, refreshed, strict=False)):
        es, secret = map(copy.deepcopy, pairs[number % len(pairs)])
        before = key_of(es).name
        for obj in (es, secret):
            obj["metadata"] |= {"name": name, "namespace": namespace, "uid": str(uuid.uuid4())}
        es["status"] |= {"refreshTime": time, "binding": {"name": name}}
        secret["metadata"]["labels"][CREATED_BY_LABEL] = owner_digest(namespace, name)
        secret["metadata"]["ownerReferences"][0] |= {"name": name, "uid": es["metadata"]["uid"]}
        for field in secret["metadata"].get("managedFields", ()):
            if field["manager"] == field_manager_of(before):
                field["manager"] = field_manager_of(name)
        yield es, secret


async def seed(stage: Stage, pairs: Iterator[Pair]) -> None:
    """Store the pairs. An embedded server is stopped for it and started again."""
    server = stage.kube
    if isinstance(server, KubeApiserver):
        await asyncio.to_thread(_into_etcd, server, pairs)
    elif isinstance(server, LocalServer):
        server.stop()
        await _into_localkube(server.kubeconfig.parent / "data", pairs)
        await asyncio.to_thread(server.restart)


def _into_etcd(server: KubeApiserver, pairs: Iterator[Pair]) -> None:
    while some := list(islice(pairs, _TRANSACTION)):
        revision = _transaction(server, [_put("secrets", secret) for _, secret in some])
        for es, _ in some:
            es["status"]["syncedTargetVersion"] = revision
        _transaction(server, [_put("external-secrets.io/externalsecrets", es) for es, _ in some])


def _transaction(server: KubeApiserver, puts: list[JsonObject]) -> str:
    """Write past the API server, as only benchmarks do; return the resourceVersion of what was written."""
    answer = server._etcd_call("/v3/kv/txn", {"success": puts})  # noqa: SLF001 - past the server
    return str(answer["header"]["revision"])


def _put(resource: str, obj: JsonObject) -> JsonObject:
    key, stored = key_of(obj), {**obj, "metadata": {**obj["metadata"]}}
    stored["metadata"].pop("resourceVersion")
    path = f"/registry/{resource}/{key.namespace}/{key.name}"
    return {"requestPut": {"key": _base64(path.encode()), "value": _base64(msgspec.json.encode(stored))}}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def _into_localkube(folder: Path, pairs: Iterator[Pair]) -> None:
    storage = ObjectStorage.open(folder, clock=SystemClock())
    try:
        while some := list(islice(pairs, 1000)):
            for es, secret in some:
                storage.put(Key("secrets", *key_of(secret)), secret)
                es["status"]["syncedTargetVersion"] = secret["metadata"]["resourceVersion"]
                storage.put(Key("externalsecrets.external-secrets.io", *key_of(es)), es)
            await storage.wait_committed()
        await storage.compact(storage.revision)
    finally:
        await storage.close()
