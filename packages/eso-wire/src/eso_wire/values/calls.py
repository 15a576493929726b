"""What comes with every call: who asks, through which store, with which configuration and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from eso_api.values import SecretBytes
from eso_wire.errors import Subject
from eso_wire.values.kinds import KindId
from eso_wire.versions import ProtocolVersion

ObjectRef = Subject
"""An object by name, with its uid and generation."""


@dataclass(frozen=True, slots=True)
class Token:
    """A service account's token."""

    token: SecretBytes
    expires_at: datetime | None = None
    audiences: tuple[str, ...] = ()
    namespace: str = ""
    """Of the service account; empty, as the three below, when an older operator sent the token."""
    name: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


SecretMap = Mapping[str, SecretBytes]


@dataclass(frozen=True, slots=True)
class Credential:
    """A reference of the configuration, followed: the value of one Secret key or CA bundle, a token, a whole Secret."""

    pointer: str
    value: SecretBytes | Token | SecretMap


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of the backend. `spec_json` is None when the provider has to read the object itself."""

    ref: ObjectRef
    kind: KindId
    spec_json: SecretBytes | None = None
    credentials: tuple[Credential, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """The envelope of every call. `auth_namespace` is the only namespace credentials may come from; empty: none."""

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
