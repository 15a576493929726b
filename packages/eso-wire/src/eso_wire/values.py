"""The messages between the operator and its providers as values: the domain side of provider.proto.

Both ends work with these values; `codec` turns them into protobuf and back. Secret material is always `SecretBytes`, so
no value prints a secret. `kinds` has the part that describes providers; commands that read no value load only that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError
from eso_wire.kinds import (
    AudienceRule,
    AudienceSource,
    CallerDependence,
    ConfigDelivery,
    CredentialKind,
    CredentialPath,
    Handshake,
    Hello,
    KindId,
    KindInfo,
    KindRole,
    Limits,
    ObjectRef,
    Operation,
    SpecCondition,
)
from eso_wire.versions import ProtocolVersion
from eso_wire.wiretypes import Key, Known, OneOf, Prose, Renamed, ShortProse, TokenText, UpTo

__all__ = [
    "AudienceRule",
    "AudienceSource",
    "CallerDependence",
    "ChangeEvent",
    "ChangeType",
    "CheckResult",
    "CleanupOutcome",
    "CleanupRequest",
    "ConditionReport",
    "Config",
    "ConfigDelivery",
    "Context",
    "Credential",
    "CredentialKind",
    "CredentialPath",
    "DeleteBatch",
    "DeleteItem",
    "DeleteResult",
    "FindPage",
    "FindQuery",
    "Found",
    "GenerateRequest",
    "Generated",
    "GetItem",
    "GetResult",
    "Handshake",
    "Heartbeat",
    "Hello",
    "KindId",
    "KindInfo",
    "KindRole",
    "Limits",
    "MetadataPolicy",
    "NotModified",
    "ObjectRef",
    "Operation",
    "PushBatch",
    "PushItem",
    "PushOutcome",
    "PushPrecondition",
    "PushResult",
    "RemoteRef",
    "SecretMap",
    "Shape",
    "SourceSecret",
    "SpecCondition",
    "SubscribeAck",
    "SubscribeMessage",
    "SubscribeOpen",
    "SubscribeUpdate",
    "Token",
    "Validation",
    "ValidationMode",
    "ValidationState",
    "ValueMetadata",
    "WatchItem",
]

# --- every call: caller, store, configuration and credentials --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    """A service account token."""

    token: Annotated[SecretBytes, TokenText]
    expires_at: datetime | None = None
    audiences: tuple[str, ...] = ()
    namespace: str = ""
    """Of the service account. Older operators leave this and the three fields below empty."""
    name: str = ""
    uid: str = ""
    annotations: Annotated[Mapping[str, str], UpTo("MAX_ANNOTATIONS")] = field(default_factory=dict)


SecretMap = Mapping[str, SecretBytes]


@dataclass(frozen=True, slots=True)
class Credential:
    """A resolved reference of the configuration: a Secret key or CA bundle, a token, or a whole Secret."""

    pointer: Annotated[Key, Renamed("json_pointer")]
    value: Annotated[
        SecretBytes | Token | SecretMap,
        OneOf(secret_value=SecretBytes, service_account_token=Token, whole_secret=SecretMap),
    ]

    def secrets(self) -> Iterator[SecretBytes]:
        """Yield all values of the credential, which must not appear in any text."""
        match self.value:
            case Token(token=token):
                yield token
            case Mapping() as values:
                yield from values.values()
            case value:
                yield value


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


# --- Validate: a verdict on a configuration --------------------------------------------------------------------------


class ValidationMode(StrEnum):
    """The depth of a validation: STATIC makes no backend call (admission), FULL may."""

    FULL = "FULL"
    STATIC = "STATIC"


class ValidationState(StrEnum):
    READY = "READY"
    UNKNOWN = "UNKNOWN"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition that the provider wants shown on the store."""

    type: ShortProse
    status: ShortProse
    reason: ShortProse = ""
    message: Prose = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """A provider's verdict on a configuration. `operations` None means all operations of the kind."""

    state: ValidationState
    warnings: tuple[str, ...] = ()
    error: ProviderError | None = None
    operations: frozenset[Operation] | None = None
    conditions: tuple[ConditionReport, ...] = ()
    dependencies: tuple[ObjectRef, ...] = ()


# --- Get, Find and Check: values to read, and the result of each -----------------------------------------------------


class Shape(StrEnum):
    """One value, or all properties of one remote key."""

    SINGLE = "SINGLE"
    MAP = "MAP"


class MetadataPolicy(StrEnum):
    NONE = "NONE"
    FETCH = "FETCH"


class RemoteRef(msgspec.Struct, frozen=True, cache_hash=True):
    """The location of a value in the backend.

    A struct of msgspec: the operator hashes each of them many times, which takes a dataclass five times as long.
    """

    key: Key
    version: str = ""
    property: Key = ""
    metadata_policy: Annotated[MetadataPolicy, Known("NONE")] = MetadataPolicy.NONE


@dataclass(frozen=True, slots=True)
class GetItem:
    """One value to read (or, in a check, to look for). The caller chooses `item_id`; the result repeats it."""

    item_id: str
    ref: RemoteRef
    shape: Shape = Shape.SINGLE
    if_version_differs: str = ""


@dataclass(frozen=True, slots=True)
class ValueMetadata:
    """The backend's information about a value, without the value. Times in seconds."""

    provider_version: str = ""
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    suggested_refresh: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The value still has the version that the caller named."""


@dataclass(frozen=True, slots=True)
class GetResult:
    """The result of one item."""

    item_id: str
    outcome: SecretBytes | SecretMap | NotModified | ProviderError
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindQuery:
    """A search for remote keys by name, tags or path."""

    path: str = ""
    name_regexp: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One remote key with its value."""

    key: Key
    value: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindPage:
    """A part of the response to a query. A stream that ends without a last page was cut off."""

    found: tuple[Found, ...]
    last: bool = False
    considered: int = 0
    """How many keys were compared with the query; set in the last page, 0 if the provider does not know."""
    missing: str = ""
    """Names the root of the search, if the backend confirmed that it does not exist; set in the last page."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a remote key exists, and its version, without its value."""

    item_id: str
    exists: bool = False
    provider_version: str = ""
    error: ProviderError | None = None


# --- Push and Delete: values to write or delete, and the result of each ----------------------------------------------


class PushPrecondition(StrEnum):
    NONE = "NONE"
    IF_ABSENT = "IF_ABSENT"
    IF_VERSION = "IF_VERSION"


@dataclass(frozen=True, slots=True)
class PushItem:
    """One value to write. `owner_token` is the text of the `managed-by` mark at the backend."""

    item_id: str
    remote: RemoteRef
    payload: Annotated[SecretBytes | SecretMap, OneOf(value=SecretBytes, whole_secret=SecretMap)]
    provider_metadata: Mapping[str, Any] | None = None
    precondition: PushPrecondition = PushPrecondition.NONE
    expected_version: str = ""
    owner_token: str = ""
    resolved: Annotated[tuple[Credential, ...], UpTo("MAX_CREDENTIALS")] = ()
    """Resolved references of `provider_metadata`; the pointers are relative to it."""
    secret_key: str = ""
    """The key of the pushed Secret; empty for a whole Secret."""


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """The pushed Secret without its data."""

    type: str = ""
    labels: Annotated[Mapping[str, str], UpTo("MAX_MAP_ENTRIES")] = field(default_factory=dict)
    annotations: Annotated[Mapping[str, str], UpTo("MAX_MAP_ENTRIES")] = field(default_factory=dict)


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


# --- Generate and Cleanup: values that a provider creates, and the state to remove them again ------------------------


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Create values. Equal idempotency keys give the same state if the backend supports it."""

    idempotency_key: str = ""
    previous_state: SecretBytes | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """Created values and the state to clean them up; without state there is nothing to clean up."""

    data: SecretMap
    state: SecretBytes | None = None
    metadata: ValueMetadata = field(default_factory=ValueMetadata)

    @property
    def size(self) -> int:
        """Return the bytes of keys, values and state."""
        values = sum(len(key) + len(value) for key, value in self.data.items())
        return values + (0 if self.state is None else len(self.state))


@dataclass(frozen=True, slots=True)
class CleanupRequest:
    """Undo one generation. Idempotent.

    State is missing if the response of Generate was lost; then the idempotency key is that of the lost call.
    """

    state: SecretBytes
    idempotency_key: str = ""


class CleanupOutcome(StrEnum):
    CLEANED = "CLEANED"
    ALREADY_GONE = "ALREADY_GONE"


# --- Subscribe: both directions of the stream; they never contain values ---------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchItem:
    """A remote key or query to watch."""

    watch_id: str
    ref: RemoteRef | None = None
    name_regexp: Key = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    known_version: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeOpen:
    """The first message of a subscription, sent only once."""

    context: Context
    items: tuple[WatchItem, ...] = ()
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeUpdate:
    """Add or remove watches; `remove` contains watch ids."""

    add: Annotated[tuple[WatchItem, ...], UpTo("MAX_WATCHES")] = ()
    remove: Annotated[tuple[str, ...], UpTo("MAX_WATCHES")] = ()


@dataclass(frozen=True, slots=True)
class SubscribeAck:
    """The operator has processed the events up to this token; they need not be sent again."""

    resume_token: str


SubscribeMessage = SubscribeOpen | SubscribeUpdate | SubscribeAck


class ChangeType(StrEnum):
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    RESYNC = "RESYNC"
    CONDITION = "CONDITION"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change at the backend, without the new value."""

    type: ChangeType
    watch_ids: Annotated[tuple[str, ...], UpTo("MAX_WATCHES")] = ()
    provider_version: str = ""
    observed_at: datetime | None = None
    condition: ConditionReport | None = None
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    at: datetime
    resume_token: str = ""
