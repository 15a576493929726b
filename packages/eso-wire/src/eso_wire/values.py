"""The messages between the operator and its providers as values: the domain side of provider.proto.

Both ends work with these values; `codec` turns them into protobuf and back. Secret material is always `SecretBytes`, so
no value prints a secret.
Modules that short commands load import only the parts of `messages` that they use.
"""

from __future__ import annotations

from eso_wire.messages.calls import Config, Context, Credential, SecretMap, Token
from eso_wire.messages.generation import CleanupOutcome, CleanupRequest, Generated, GenerateRequest
from eso_wire.messages.kinds import (
    AudienceRule,
    AudienceSource,
    CallerDependence,
    ConfigDelivery,
    CredentialKind,
    CredentialPath,
    Handshake,
    Hello,
    KindInfo,
    KindRole,
    Limits,
    Operation,
    SpecCondition,
)
from eso_wire.messages.names import KindId, ObjectRef
from eso_wire.messages.reading import (
    CheckResult,
    FindPage,
    FindQuery,
    Found,
    GetItem,
    GetResult,
    MetadataPolicy,
    NotModified,
    RemoteRef,
    Shape,
    ValueMetadata,
)
from eso_wire.messages.subscriptions import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from eso_wire.messages.validation import ConditionReport, Validation, ValidationMode, ValidationState
from eso_wire.messages.writing import (
    DeleteBatch,
    DeleteItem,
    DeleteResult,
    PushBatch,
    PushItem,
    PushOutcome,
    PushPrecondition,
    PushResult,
    SourceSecret,
)

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
