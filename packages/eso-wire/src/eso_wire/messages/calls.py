"""The envelope of every call: caller, store, configuration and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from eso_api.values import SecretBytes
from eso_wire.messages.names import KindId, ObjectRef
from eso_wire.versions import ProtocolVersion


@dataclass(frozen=True, slots=True)
class Token:
    """A service account token."""

    token: SecretBytes
    expires_at: datetime | None = None
    audiences: tuple[str, ...] = ()
    namespace: str = ""
    """Of the service account. Older operators leave this and the three fields below empty."""
    name: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


SecretMap = Mapping[str, SecretBytes]


@dataclass(frozen=True, slots=True)
class Credential:
    """A resolved reference of the configuration: a Secret key or CA bundle, a token, or a whole Secret."""

    pointer: str
    value: SecretBytes | Token | SecretMap


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of the backend. `spec_json` is None if the provider must read the object itself."""

    ref: ObjectRef
    kind: KindId
    spec_json: SecretBytes | None = None
    credentials: tuple[Credential, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """The envelope of every call. Credentials may come only from `auth_namespace`; if it is empty, from none."""

    request_id: str
    protocol: ProtocolVersion
    caller: ObjectRef
    store: ObjectRef
    config: Config
    auth_namespace: str = ""
    auth_namespace_pinned: bool = False
    max_backend_retries: int = 0
    backend_retry_interval: float = 0.0
    cluster_id: str = ""
