"""The envelope of a call, for tests: a test states only the fields it is about."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from eso_api.values import SecretBytes
from eso_sdk.backend import Backend
from eso_sdk.kinds import served_kind
from eso_wire.values import Config, Context, Credential, ObjectRef, SecretMap, Token
from eso_wire.versions import CURRENT


def call_context(
    backend: type[Backend[Any]],
    spec: Mapping[str, Any] | bytes | None = None,
    credentials: Mapping[str, str | bytes | Token | SecretMap] | None = None,
    *,
    namespace: str = "team",
    cluster_scoped: bool = False,
    **changes: Any,
) -> Context:
    """Build a call to one kind with this configuration; `credentials` by pointer. `changes` go to the `Context`.

    A cluster-scoped store has no namespace; its caller has one.
    """
    kind = served_kind(backend).infos[0].kind
    config_namespace = "" if cluster_scoped else namespace
    ref = ObjectRef(kind.api_version, kind.kind, config_namespace, "config", uid="uid-1", generation=1)
    caller = ObjectRef("external-secrets.io/v1", "ExternalSecret", namespace, "caller", uid="uid-2", generation=1)
    store = ObjectRef(
        "secretstore.external-secrets.io/v2alpha1",
        "ClusterSecretStore" if cluster_scoped else "SecretStore",
        config_namespace,
        "store",
        uid="uid-3",
        generation=1,
    )
    sent = tuple(Credential(pointer, _value(value)) for pointer, value in (credentials or {}).items())
    fields: dict[str, Any] = {
        "request_id": uuid.uuid4().hex,
        "protocol": CURRENT,
        "caller": caller,
        "store": store,
        "config": Config(ref, kind, _spec(spec), sent),
        "auth_namespace": namespace,
    }
    return Context(**(fields | changes))


def _spec(spec: Mapping[str, Any] | bytes | None) -> SecretBytes:
    return SecretBytes(spec if isinstance(spec, bytes) else msgspec.json.encode(spec or {}))


def _value(value: str | bytes | Token | SecretMap) -> SecretBytes | Token | SecretMap:
    match value:
        case str():
            return SecretBytes(value.encode())
        case bytes():
            return SecretBytes(value)
        case _:
            return value
