"""Values to write or delete, and the result of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.messages.calls import Credential, SecretMap
from eso_wire.messages.reading import RemoteRef


class PushPrecondition(StrEnum):
    NONE = "NONE"
    IF_ABSENT = "IF_ABSENT"
    IF_VERSION = "IF_VERSION"


@dataclass(frozen=True, slots=True)
class PushItem:
    """One value to write. `owner_token` is the text of the `managed-by` mark at the backend."""

    item_id: str
    remote: RemoteRef
    payload: SecretBytes | SecretMap
    provider_metadata: Mapping[str, Any] | None = None
    precondition: PushPrecondition = PushPrecondition.NONE
    expected_version: str = ""
    owner_token: str = ""
    resolved: tuple[Credential, ...] = ()
    """Resolved references of `provider_metadata`; the pointers are relative to it."""
    secret_key: str = ""
    """The key of the pushed Secret; empty for a whole Secret."""


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """The pushed Secret without its data."""

    type: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PushBatch:
    """Values to write in one call."""

    items: tuple[PushItem, ...]
    source: SourceSecret = field(default_factory=SourceSecret)
    idempotency_key: str = ""


class PushOutcome(StrEnum):
    CREATED = "CREATED"
    UPDATED = "UPDATED"
    UNCHANGED = "UNCHANGED"
    SKIPPED_EXISTS = "SKIPPED_EXISTS"


@dataclass(frozen=True, slots=True)
class PushResult:
    item_id: str
    outcome: PushOutcome | ProviderError
    provider_version: str = ""


@dataclass(frozen=True, slots=True)
class DeleteItem:
    item_id: str
    remote: RemoteRef
    owner_token: str = ""
    provider_metadata: Mapping[str, Any] | None = None
    """The metadata with which the value was pushed."""


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Values to delete in one call."""

    items: tuple[DeleteItem, ...]
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion. Deleting an absent value succeeds, with `existed` False."""

    item_id: str
    existed: bool = False
    error: ProviderError | None = None
