"""What every kind of store reference resolves to, before any call to a provider.

    StoreRef -> resolve -> ResolvedTarget -> bind (credentials) -> BoundTarget -> providers.gateway

Values only. The rules that produce them are in `resolve.py` and its stages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from eso_wire.errors import RetryClass
from eso_wire.values import Config, ConfigDelivery, CredentialPath, Handshake, KindId, KindRole, ObjectRef, Operation


class Form(StrEnum):
    """The shape of the object a reference points at."""

    V1 = "v1 store"
    V1_PLUGIN = "v1 plugin store"
    STORE = "v2 store"
    PROVIDER = "provider"
    DIRECT = "direct reference"
    GENERATOR = "v2 generator"
    V1_GENERATOR = "generator"


class EndpointSource(StrEnum):
    """How the address was found."""

    EXPLICIT = "explicit"
    CLASS = "class"
    LABEL = "label"
    NAMING = "naming"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class ServiceKey:
    """The Service behind which a provider runs; managed certificates are issued for it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and which name the server's certificate must carry.

    `target` is what gRPC dials (`dns:///provider-aws.eso.svc:8080`, `ipv4:127.0.0.1:41234`); `label` names the provider
    in metrics and messages (the class name, or the Service), never a raw address. `tenant` is the namespace whose owner
    runs the provider; empty where an administrator vouches for it.
    """

    target: str
    server_name: str
    source: EndpointSource
    label: str
    service: ServiceKey | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class ManagedTls:
    """Certificates issued by the operator for that Service."""

    service: ServiceKey


@dataclass(frozen=True, slots=True)
class SecretTls:
    """The user's own certificates: a Secret with tls.crt, tls.key and ca.crt."""

    namespace: str
    name: str


TlsSource = ManagedTls | SecretTls


@dataclass(frozen=True, slots=True)
class Connection:
    """Where to connect and with which certificates: all that is needed for a handshake."""

    endpoint: Endpoint
    tls: TlsSource

    @property
    def owner(self) -> str:
        """The namespace on whose account it is kept: that of its certificates or its Service; empty for neither."""
        if isinstance(self.tls, SecretTls):
            return self.tls.namespace
        return self.tls.service.namespace

    @property
    def key(self) -> str:
        """Equal for equal connections, however they were found. What one answers says nothing about another."""
        match self.tls:
            case ManagedTls(service=service):
                tls = f"managed {service}"
            case SecretTls(namespace=namespace, name=name):
                tls = f"secret {namespace}/{name}"
            case _:
                assert_never(self.tls)
        return f"{self.endpoint.target} as {self.endpoint.server_name} with {tls}"


@dataclass(frozen=True, slots=True)
class CallToken:
    """A service account whose token goes with every call, besides the client certificate."""

    namespace: str
    name: str
    audiences: tuple[str, ...]


class ReferenceRule(StrEnum):
    """Where the credential references of a configuration may point."""

    OWN_NAMESPACE = "own namespace"
    """Only `auth_namespace`; a reference that names another one is refused."""
    EXPLICIT_OR_AUTH = "explicit, else auth namespace"
    """A reference may name its namespace; without one it means `auth_namespace` (v1 cluster stores)."""
    IGNORE_EXPLICIT = "auth namespace, whatever it says"
    """The namespace of a reference is ignored (v1 generators)."""


@dataclass(frozen=True, slots=True)
class ConfigBinding:
    """Which configuration goes with every call, and where its credentials may come from.

    `spec` is the configuration as JSON text; None when the provider reads the object itself, or (delivery INLINE) when
    the configuration lies in the namespace of each caller and a cluster-scoped store is validated without one.
    """

    ref: ObjectRef
    kind: KindId
    delivery: ConfigDelivery
    spec: bytes | None = field(repr=False)
    credentials: tuple[CredentialPath, ...]
    rule: ReferenceRule
    v1_key: str = ""
    """The key of the v1 block that this is; empty for every other form."""
    by_caller: bool = False
    """Results depend on the namespace of the caller, so nothing is shared between namespaces."""
    metadata_references: tuple[CredentialPath, ...] = ()
    """Where the metadata of pushes refers to objects."""


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Behaviour that does not depend on the backend. Times in seconds; None means the operator's setting."""

    gated: bool
    max_retries: int | None = None
    retry_interval: float | None = None
    refresh_interval: float | None = None
    connect_timeout: float | None = None
    call_timeout: float | None = None
    listens: bool = True
    """Whether changes at the backend may be heard of, where the provider tells."""


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """Everything that decides how a provider is called for one store and one caller; no credentials yet.

    `pinned` says that `auth_namespace` is the same for all callers; it is empty where nothing comes from any.
    """

    form: Form
    role: KindRole
    store: ObjectRef
    caller: ObjectRef
    endpoint: Endpoint
    tls: TlsSource
    call_token: CallToken | None
    config: ConfigBinding
    auth_namespace: str
    pinned: bool
    policy: CallPolicy
    handshake: Handshake
    operations: frozenset[Operation]

    @property
    def connection(self) -> Connection:
        return Connection(self.endpoint, self.tls)

    @property
    def caller_namespace(self) -> str:
        """The namespace of the caller if results depend on it; empty if every namespace sees the same."""
        return self.caller.namespace if self.config.by_caller else ""

    @property
    def tells_changes(self) -> bool:
        """Whether the provider can be asked to tell of changes, and the store lets us."""
        return self.policy.listens and Operation.SUBSCRIBE in self.operations


class Reason(StrEnum):
    """Why a reference does not resolve: one for each way a stage can fail."""

    UNKNOWN_KIND = "UnknownStoreKind"
    NOT_FOUND = "StoreNotFound"
    BEING_DELETED = "StoreBeingDeleted"
    MALFORMED = "StoreMalformed"
    UNMANAGED = "UnmanagedStore"
    NAMESPACE_DENIED = "NamespaceDenied"
    CROSS_NAMESPACE = "CrossNamespaceDenied"
    CONFIG_NAMESPACE_REQUIRED = "ConfigNamespaceRequired"
    CONFIG_NOT_FOUND = "ProviderConfigNotFound"
    INVALID_CONFIG = "InvalidProviderConfig"
    CLASS_NOT_FOUND = "ProviderClassNotFound"
    ADDRESS_INVALID = "AddressInvalid"
    ADDRESS_DENIED = "AddressDenied"
    NOT_INSTALLED = "ProviderNotInstalled"
    AMBIGUOUS = "DiscoveryAmbiguous"
    NOT_READY = "StoreNotReady"
    NOT_CONNECTED = "ProviderNotConnected"
    INCOMPATIBLE = "ProviderIncompatible"
    UNSUPPORTED_KIND = "UnsupportedKind"
    NOT_IMPLEMENTED = "NotImplemented"
    CREDENTIALS_NOT_FOUND = "CredentialsNotFound"
    CREDENTIALS_UNREADABLE = "CredentialsUnreadable"
    CREDENTIALS_DENIED = "CredentialsDenied"
    REFERENT_AUTH = "ReferentAuthUnverified"
    NOT_SEALED = "StateNotSealed"
    CERTIFICATE_REQUIRED = "ClientCertificateRequired"
    FEATURE_DISABLED = "FeatureDisabled"


class ResolutionError(Exception):
    """A reference that does not resolve. The message says what, which object, what to do; `subject` is that object.

    `connection` (reason NOT_CONNECTED) is what to shake hands with before trying again; `unwatched` (UNKNOWN_KIND) is
    the kind of a configuration that the snapshot does not hold, to be watched if the API server has it.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        subject: ObjectRef,
        retry: RetryClass = RetryClass.AFTER_CHANGE,
        connection: Connection | None = None,
        unwatched: KindId | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.subject = subject
        self.retry = retry
        self.connection = connection
        self.unwatched = unwatched


@dataclass(frozen=True, slots=True)
class BoundTarget:
    """A resolved target with its credentials read.

    `identity` is a digest of everything that decides whose eyes a read has: configuration, credentials (by Secret uid
    and resourceVersion, or token subject), auth namespace. Reads are shared only between equal identities.
    `sources` are the objects read, so that a change of one of them can wake the users.
    """

    target: ResolvedTarget
    config: Config
    identity: str
    sources: tuple[ObjectRef, ...] = ()
    token: str = field(default="", repr=False)
