"""PushSecrets for tests: a test shows only the fields it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from eso_api.pushsecret import PushData, PushSecret
from eso_api.references import StoreRef
from eso_api.values import SecretBytes
from eso_operator.controllers.pushsecret.record import RemoteKey, SyncedEntry
from eso_operator.controllers.pushsecret.snapshot import PushStore
from eso_wire.values import KindId
from kubebase.meta import JsonObject

NAMESPACE = "team-a"


def entry(secret_key: str, remote_key: str, prop: str = "", **fields: Any) -> JsonObject:
    """Return an entry of `spec.data`; without a secret key it means the whole Secret."""
    remote = {"remoteKey": remote_key, **({"property": prop} if prop else {})}
    return {"match": {**({"secretKey": secret_key} if secret_key else {}), "remoteRef": remote}, **fields}


def bulk(store: str = "store", **fields: Any) -> JsonObject:
    """Return an entry of `spec.dataTo`."""
    ref = fields.pop("storeRef", {"name": store})
    if "regexp" in fields:
        fields["match"] = {"regexp": fields.pop("regexp")}
    return {"storeRef": ref, **fields}


def push_secret(*data: JsonObject, status: JsonObject | None = None, **spec: Any) -> PushSecret:
    """Return a PushSecret; `metadata` is merged, other arguments are fields of the spec."""
    metadata = {"name": "push", "namespace": NAMESPACE, "uid": "uid-1", "generation": 1, **spec.pop("metadata", {})}
    full = {
        "secretStoreRefs": [{"name": "store"}],
        "selector": {"secret": {"name": "source"}},
        "data": list(data),
        **spec,
    }
    return msgspec.convert({"metadata": metadata, "spec": full, "status": status or {}}, PushSecret)


def chosen(
    name: str = "store", kind: str = "SecretStore", group: str = "external-secrets.io", **labels: str
) -> PushStore:
    key = f"{kind}/{name}" if group == "external-secrets.io" else f"{group}/{kind}/{name}"
    return PushStore(StoreRef(kind=kind, name=name), KindId(group, "v1", kind), key, f"uid-{name}", labels)


def values(**data: str) -> dict[str, SecretBytes]:
    return {key: SecretBytes(text.encode()) for key, text in data.items()}


def pushed(
    *entries: tuple[str, str] | str, store: str = "SecretStore/store", version: str = ""
) -> dict[RemoteKey, SyncedEntry]:
    """Return entries that were pushed, each given as remote key and property or as a remote key alone."""
    found = {}
    for each in entries:
        name, prop = each if isinstance(each, tuple) else (each, "")
        data = msgspec.convert(entry("key", name, prop), PushData)
        found[RemoteKey.of(store, data)] = SyncedEntry(data, version)
    return found


def revealed(payload: SecretBytes | Mapping[str, SecretBytes]) -> str | dict[str, str]:
    """Return the plain values for comparison."""
    if isinstance(payload, SecretBytes):
        return payload.reveal().decode()
    return {key: value.reveal().decode() for key, value in payload.items()}
