"""A provider's identity and capabilities: the content of the handshake, and the names of kinds and objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

from eso_wire.errors import Subject
from eso_wire.versions import ProtocolVersion
from eso_wire.wiretypes import Drop, Key, Renamed, UpTo

ObjectRef = Subject
"""An object by name, with its uid and generation."""


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


class Operation(StrEnum):
    """An operation that a provider supports for a kind. The names are those of the wire without the prefix."""

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
    PUSH_GROUPED = "PUSH_GROUPED"


class KindRole(StrEnum):
    STORE = "STORE"
    GENERATOR = "GENERATOR"


class ConfigDelivery(StrEnum):
    """How a provider gets its configuration: it reads the object itself, or the operator sends it with credentials."""

    BY_REFERENCE = "BY_REFERENCE"
    INLINE = "INLINE"


class CredentialKind(StrEnum):
    """The target of a reference inside a configuration."""

    SECRET_KEY = "SECRET_KEY"  # noqa: S105 - a kind of reference, not a credential
    SERVICE_ACCOUNT = "SERVICE_ACCOUNT"
    CA_PROVIDER = "CA_PROVIDER"
    WHOLE_SECRET = "WHOLE_SECRET"  # noqa: S105 - a kind of reference, not a credential
    CONFIG_MAP_KEY = "CONFIG_MAP_KEY"
    OBJECT_KEY = "OBJECT_KEY"


class AudienceSource(StrEnum):
    """The source of a token's audiences."""

    TEXT = "TEXT"
    ANNOTATION = "ANNOTATION"
    SPEC = "SPEC"
    REFERENCE = "REFERENCE"
    STORE = "STORE"


@dataclass(frozen=True, slots=True)
class AudienceRule:
    """One or more audiences of a token. `source` is None if a newer provider names an unknown source."""

    source: AudienceSource | None
    names: tuple[str, ...] = ()
    suffix: str = ""
    otherwise: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecCondition:
    """Holds if the configuration has one of these texts at the JSON pointer; an empty text also matches absence."""

    pointer: Key
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallerDependence:
    """Results depend on the caller's namespace, unless the configuration has one of these texts at the pointer.

    An empty pointer means every configuration; an empty text matches an absent value.
    """

    pointer: Key = ""
    unless: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CredentialPath:
    """The path of a credential reference in a configuration: a JSON pointer; `*` matches every member or entry."""

    pattern: Key
    kind: Annotated[CredentialKind, Drop]
    audiences: tuple[str, ...] = ()
    default_key: str = ""
    """The key for references that name none."""
    audience_rules: tuple[AudienceRule, ...] = ()
    """Sources of the audiences; if set, they replace `audiences`."""
    lifetime_seconds: int = 0
    """Requested lifetime of tokens; 0 leaves it to the operator."""
    lifetime_pointer: Key = ""
    """Relative pointer from the reference to a number of seconds in the configuration."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """A kind of configuration that a provider serves."""

    kind: Annotated[KindId, Renamed("gvk")]
    role: Annotated[KindRole, Drop]
    operations: frozenset[Operation]
    deliveries: frozenset[ConfigDelivery] = frozenset({ConfigDelivery.INLINE})
    maintenance: str = "maintained"
    v1_provider_key: str = ""
    credentials: Annotated[tuple[CredentialPath, ...], UpTo("MAX_PATHS")] = ()
    caller_dependences: tuple[CallerDependence, ...] = ()
    """When results depend on the caller's namespace; they are then not shared between namespaces."""
    metadata_references: Annotated[tuple[CredentialPath, ...], UpTo("MAX_PATHS")] = ()
    """The references in the metadata of a push to objects in the PushSecret's namespace."""
    v1_when: SpecCondition | None = None
    """Which blocks of `v1_provider_key` this kind serves; None for all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The load that a provider accepts; 0 means unspecified."""

    max_batch_items: int = 0
    max_message_bytes: int = 0
    max_in_flight: int = 0
    max_deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Hello:
    """The operator's first message."""

    core_version: str
    supported: tuple[ProtocolVersion, ...]
    features: tuple[str, ...] = ()
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class Handshake:
    """A provider's description of itself. `selected` is None if the two sides have no protocol version in common."""

    selected: ProtocolVersion | None
    supported: tuple[ProtocolVersion, ...]
    provider_name: str
    provider_version: str
    instance_id: str
    kinds: Annotated[tuple[KindInfo, ...], UpTo("MAX_KINDS")]
    features: tuple[str, ...] = ()
    limits: Limits = Limits()
