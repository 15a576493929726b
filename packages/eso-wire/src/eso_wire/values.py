"""What the operator and its providers say to each other, as values: the domain side of provider.proto.

Both ends work with these; `codec.py` turns them into protobuf and back. Secret material is `SecretBytes` throughout, so
none of these values can print one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from eso_api.values import SecretBytes
from eso_wire.errors import ProviderError, Subject
from eso_wire.versions import ProtocolVersion

# --- what a provider can do ------------------------------------------------------------------------------------------


class Operation(StrEnum):
    """One thing a provider can do with one kind. The names are those of the wire without their prefix."""

    GET = "GET"
    GET_MAP = "GET_MAP"
    FIND_BY_NAME = "FIND_BY_NAME"
    FIND_BY_TAGS = "FIND_BY_TAGS"
    FIND_BY_PATH = "FIND_BY_PATH"
    EXISTS = "EXISTS"
    PUSH = "PUSH"
    PUSH_WHOLE_SECRET = "PUSH_WHOLE_SECRET"  # noqa: S105 - an operation, not a credential
    DELETE = "DELETE"
    SUBSCRIBE = "SUBSCRIBE"
    GENERATE = "GENERATE"
    CLEANUP = "CLEANUP"
    METADATA_FETCH = "METADATA_FETCH"
    PUSH_IF_ABSENT = "PUSH_IF_ABSENT"
    NOT_FOUND_SEMANTICS = "NOT_FOUND_SEMANTICS"


class KindRole(StrEnum):
    STORE = "STORE"
    GENERATOR = "GENERATOR"


class ConfigDelivery(StrEnum):
    """How a provider gets its configuration: it reads the object itself, or the operator sends it with credentials."""

    BY_REFERENCE = "BY_REFERENCE"
    INLINE = "INLINE"


class CredentialKind(StrEnum):
    """What a reference inside a configuration points at."""

    SECRET_KEY = "SECRET_KEY"  # noqa: S105 - a kind of reference, not a credential
    SERVICE_ACCOUNT = "SERVICE_ACCOUNT"
    CA_PROVIDER = "CA_PROVIDER"
    WHOLE_SECRET = "WHOLE_SECRET"  # noqa: S105 - a kind of reference, not a credential


class KindId(NamedTuple):
    """Group, version and kind of a configuration."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}"


@dataclass(frozen=True, slots=True)
class CredentialPath:
    """Where a configuration refers to a credential: a JSON pointer in which `*` stands for every member or entry."""

    pattern: str
    kind: CredentialKind
    audiences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KindInfo:
    """One kind of configuration a provider serves."""

    kind: KindId
    role: KindRole
    operations: frozenset[Operation]
    deliveries: frozenset[ConfigDelivery] = frozenset({ConfigDelivery.INLINE})
    maintenance: str = "maintained"
    v1_provider_key: str = ""
    credentials: tuple[CredentialPath, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a provider wants to be asked at once; 0 means it does not say."""

    max_batch_items: int = 0
    max_message_bytes: int = 0
    max_in_flight: int = 0
    max_deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Hello:
    """What the operator says first."""

    core_version: str
    supported: tuple[ProtocolVersion, ...]
    features: tuple[str, ...] = ()
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a provider says about itself. `selected` is None when no protocol version is common."""

    selected: ProtocolVersion | None
    supported: tuple[ProtocolVersion, ...]
    provider_name: str
    provider_version: str
    instance_id: str
    kinds: tuple[KindInfo, ...]
    features: tuple[str, ...] = ()
    limits: Limits = Limits()


# --- what comes with every call --------------------------------------------------------------------------------------

ObjectRef = Subject
"""An object by name, with its uid and generation."""


@dataclass(frozen=True, slots=True)
class Token:
    """A service account's token."""

    token: SecretBytes
    expires_at: datetime | None = None
    audiences: tuple[str, ...] = ()


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
    """The envelope of every call. `auth_namespace` is the only namespace credentials may come from."""

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


# --- reading ---------------------------------------------------------------------------------------------------------


class Shape(StrEnum):
    """One value, or all properties of one remote key."""

    SINGLE = "SINGLE"
    MAP = "MAP"


class MetadataPolicy(StrEnum):
    NONE = "NONE"
    FETCH = "FETCH"


@dataclass(frozen=True, slots=True)
class RemoteRef:
    """Where a value lives in the backend."""

    key: str
    version: str = ""
    property: str = ""
    metadata_policy: MetadataPolicy = MetadataPolicy.NONE


@dataclass(frozen=True, slots=True)
class GetItem:
    """One value to read (or, in a check, to look for). `item_id` is the caller's; results carry it back."""

    item_id: str
    ref: RemoteRef
    shape: Shape = Shape.SINGLE
    if_version_differs: str = ""


@dataclass(frozen=True, slots=True)
class ValueMetadata:
    """What a backend says about a value; never the value. Times in seconds."""

    provider_version: str = ""
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    suggested_refresh: float = 0.0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotModified:
    """The value still has the version the caller named."""


@dataclass(frozen=True, slots=True)
class GetResult:
    """The outcome of one item."""

    item_id: str
    outcome: SecretBytes | SecretMap | NotModified | ProviderError
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindQuery:
    """Many remote keys by name, tags or path."""

    path: str = ""
    name_regexp: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    page_size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One remote key with its value."""

    key: str
    value: SecretBytes
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class FindPage:
    """Part of an answer to a query. A stream that ends without a last page was cut off."""

    found: tuple[Found, ...]
    last: bool = False


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether a remote key is there, and in which version, without its value."""

    item_id: str
    exists: bool = False
    provider_version: str = ""
    error: ProviderError | None = None


# --- writing ---------------------------------------------------------------------------------------------------------


class PushPrecondition(StrEnum):
    NONE = "NONE"
    IF_ABSENT = "IF_ABSENT"
    IF_VERSION = "IF_VERSION"


@dataclass(frozen=True, slots=True)
class PushItem:
    """One value to write. `owner_token` says whose it will be."""

    item_id: str
    remote: RemoteRef
    payload: SecretBytes | SecretMap
    provider_metadata: Mapping[str, Any] | None = None
    precondition: PushPrecondition = PushPrecondition.NONE
    expected_version: str = ""
    owner_token: str = ""


@dataclass(frozen=True, slots=True)
class SourceSecret:
    """What is known of the Secret that is pushed, besides its data."""

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


@dataclass(frozen=True, slots=True)
class DeleteBatch:
    """Values to remove in one call."""

    items: tuple[DeleteItem, ...]
    idempotency_key: str = ""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """What was not there is deleted, with `existed` False."""

    item_id: str
    existed: bool = False
    error: ProviderError | None = None


# --- validation ------------------------------------------------------------------------------------------------------


class ValidationMode(StrEnum):
    """How far a validation goes: STATIC asks no backend (admission), FULL may."""

    FULL = "FULL"
    STATIC = "STATIC"


class ValidationState(StrEnum):
    READY = "READY"
    UNKNOWN = "UNKNOWN"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition the provider wants shown on the store."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a provider thinks of a configuration. `operations` None means: all that the kind has."""

    state: ValidationState
    warnings: tuple[str, ...] = ()
    error: ProviderError | None = None
    operations: frozenset[Operation] | None = None
    conditions: tuple[ConditionReport, ...] = ()
    dependencies: tuple[ObjectRef, ...] = ()


# --- subscriptions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WatchItem:
    """Something to be told about."""

    watch_id: str
    ref: RemoteRef | None = None
    name_regexp: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    known_version: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeOpen:
    """The first message of a subscription, and only the first."""

    context: Context
    items: tuple[WatchItem, ...] = ()
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeUpdate:
    """Watch more, or less: `remove` names watch ids."""

    add: tuple[WatchItem, ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscribeAck:
    """Everything up to this token was acted upon."""

    resume_token: str


SubscribeMessage = SubscribeOpen | SubscribeUpdate | SubscribeAck


class ChangeType(StrEnum):
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    RESYNC = "RESYNC"
    CONDITION = "CONDITION"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """Something changed at the backend; never what it is now."""

    type: ChangeType
    watch_ids: tuple[str, ...] = ()
    provider_version: str = ""
    observed_at: datetime | None = None
    condition: ConditionReport | None = None
    resume_token: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    at: datetime
    resume_token: str = ""


# --- generators ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Make values. Equal idempotency keys give the same state where the backend can do that."""

    idempotency_key: str = ""
    previous_state: SecretBytes | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """Values made, and what is needed to clean up after them; no state, nothing to clean up."""

    data: SecretMap
    state: SecretBytes | None = None
    metadata: ValueMetadata = field(default_factory=ValueMetadata)


@dataclass(frozen=True, slots=True)
class CleanupRequest:
    """Undo one generation. Repeating it is harmless."""

    state: SecretBytes
    idempotency_key: str = ""


class CleanupOutcome(StrEnum):
    CLEANED = "CLEANED"
    ALREADY_GONE = "ALREADY_GONE"
