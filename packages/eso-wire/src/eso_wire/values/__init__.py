"""What the operator and its providers say to each other, as values: the domain side of provider.proto.

Both ends work with these; `codec` turns them into protobuf and back. Secret material is `SecretBytes` throughout, so
none of these values can print one.
"""

from __future__ import annotations

from eso_wire.values.calls import Config, Context, Credential, ObjectRef, SecretMap, Token
from eso_wire.values.generation import CleanupOutcome, CleanupRequest, Generated, GenerateRequest
from eso_wire.values.kinds import (
    ConfigDelivery,
    CredentialKind,
    CredentialPath,
    Handshake,
    Hello,
    KindId,
    KindInfo,
    KindRole,
    Limits,
    Operation,
)
from eso_wire.values.reading import (
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
from eso_wire.values.subscriptions import (
    ChangeEvent,
    ChangeType,
    Heartbeat,
    SubscribeAck,
    SubscribeMessage,
    SubscribeOpen,
    SubscribeUpdate,
    WatchItem,
)
from eso_wire.values.validation import ConditionReport, Validation, ValidationMode, ValidationState
from eso_wire.values.writing import (
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
