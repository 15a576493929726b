"""The values of a resolution: its inputs, its results, and the error if a reference does not resolve.

    StoreRef -> resolve -> ResolvedStore -> bind (credentials) -> BoundStore -> calls to the provider

The inputs are a view of the cluster, the settings of the operator, and the needs of the caller. The view has cached
objects and the handshakes of providers; it is read-only, and a resolution has no other input, so equal views give equal
results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from eso_api.v2.providerclass import CLUSTER_PROVIDER_CLASS, PROVIDER_CLASS
from eso_wire.errors import RetryClass
from eso_wire.kinds import ConfigDelivery, CredentialPath, Handshake, KindId, KindRole, ObjectRef, Operation
from kubebase.meta import ObjectKey

if TYPE_CHECKING:
    from eso_wire.values import Config


class Form(StrEnum):
    """The form of the object that a reference names."""

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
    """The Service of a provider. Managed certificates are issued for it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a provider, and the server name that its certificate must have.

    gRPC dials `uri` (`dns:///provider-aws.eso.svc:8080`, `ipv4:127.0.0.1:41234`). `label` names the provider in metrics
    and messages: the class or the Service, never an address. `tenant` is the namespace whose owner runs the provider;
    empty if an administrator does or vouches for it.
    """

    uri: str
    server_name: str
    source: EndpointSource
    label: str
    service: ServiceKey | None = None
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class ManagedTls:
    """Certificates that the operator issues for a Service."""

    service: ServiceKey


@dataclass(frozen=True, slots=True)
class SecretTls:
    """Certificates of the user: a Secret with tls.crt, tls.key and ca.crt."""

    namespace: str
    name: str


TlsSource = ManagedTls | SecretTls


@dataclass(frozen=True, slots=True)
class Connection:
    """An endpoint with its certificates: all that a handshake needs."""

    endpoint: Endpoint
    tls: TlsSource

    @property
    def owner(self) -> str:
        """Return the namespace whose share it counts against: that of its Secret with certificates, or its Service."""
        if isinstance(self.tls, SecretTls):
            return self.tls.namespace
        return self.tls.service.namespace

    @property
    def key(self) -> str:
        """Return a key that is equal for connections to the same address and server name with the same certificates."""
        match self.tls:
            case ManagedTls(service=service):
                tls = f"managed {service}"
            case SecretTls(namespace=namespace, name=name):
                tls = f"secret {namespace}/{name}"
            case _:
                assert_never(self.tls)
        return f"{self.endpoint.uri} as {self.endpoint.server_name} with {tls}"


@dataclass(frozen=True, slots=True)
class CallToken:
    """A service account whose token is sent with every call, in addition to the client certificate."""

    namespace: str
    name: str
    audiences: tuple[str, ...]


class ReferenceRule(StrEnum):
    """The namespaces that credential references of a configuration may name."""

    OWN_NAMESPACE = "own namespace"
    """Only `auth_namespace`; a reference to another namespace is rejected."""
    EXPLICIT_OR_AUTH = "explicit, else auth namespace"
    """A reference may name its namespace; without one it means `auth_namespace` (v1 cluster stores)."""
    IGNORE_EXPLICIT = "auth namespace, whatever it says"
    """The namespace of a reference is ignored (v1 generators)."""


@dataclass(frozen=True, slots=True)
class ConfigBinding:
    """The configuration that is sent with every call, and the rule for its credentials.

    `spec` is JSON. It is None if the provider reads the object itself, or (delivery INLINE) if the configuration is in
    the namespace of the caller and a cluster-scoped store is validated without a caller.
    """

    ref: ObjectRef
    kind: KindId
    delivery: ConfigDelivery
    spec: bytes | None = field(repr=False)
    credentials: tuple[CredentialPath, ...]
    rule: ReferenceRule
    v1_key: str = ""
    """The key of the v1 block; empty for other forms."""
    by_caller: bool = False
    """True if results depend on the namespace of the caller; then namespaces share nothing."""
    metadata_references: tuple[CredentialPath, ...] = ()
    """The paths of references in the metadata of pushes."""


@dataclass(frozen=True, slots=True)
class CallPolicy:
    """Call settings of a store. Times in seconds; None means the default of the operator."""

    gated: bool
    max_retries: int | None = None
    retry_interval: float | None = None
    refresh_interval: float | None = None
    connect_timeout: float | None = None
    call_timeout: float | None = None
    watch_allowed: bool = True
    """True if the store permits change streams."""


@dataclass(frozen=True, slots=True)
class ResolvedStore:
    """Everything that is needed to call a provider for one store and one caller, except credentials.

    `pinned` means that `auth_namespace` is the same for all callers. It is empty if no namespace is needed.
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
        """Return the namespace of the caller if results depend on it; else an empty string."""
        return self.caller.namespace if self.config.by_caller else ""

    @property
    def supports_watch(self) -> bool:
        """Return whether the provider can announce changes and the store allows it."""
        return self.policy.watch_allowed and Operation.SUBSCRIBE in self.operations


class Reason(StrEnum):
    """The reasons why a reference does not resolve."""

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
    STARTING = "ProviderStarting"
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
    """A reference does not resolve. The message has the problem, the object and the remedy; `subject` is the object.

    With NOT_CONNECTED, `connection` needs a handshake before a retry. With NOT_READY it is that of a store that is not
    validated yet, and `store_connection` that of a store that failed its validation. With UNKNOWN_KIND, `unwatched` is
    a kind that is not in the snapshot and has to be watched, if the API server serves it. With NOT_INSTALLED,
    `unreached` are the providers that may serve it and did not respond, and `expected` names what a provider that
    `eso up` starts may serve.

    `waits` is greater than 0 if the error is likely to pass without a change by a user, because a provider starts. The
    caller waits for at most that many seconds, and reports no failure meanwhile.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        subject: ObjectRef,
        retry: RetryClass = RetryClass.AFTER_CHANGE,
        connection: Connection | None = None,
        store_connection: Connection | None = None,
        unwatched: KindId | None = None,
        unreached: tuple[Connection, ...] = (),
        expected: str = "",
        waits: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.subject = subject
        self.retry = retry
        self.connection = connection
        self.store_connection = store_connection
        self.unwatched = unwatched
        self.unreached = unreached
        self.expected = expected
        self.waits = waits


@dataclass(frozen=True, slots=True)
class BoundStore:
    """A resolved store with its credentials.

    `identity` is a digest of everything that a read can depend on: the configuration, the credentials (by uid and
    resourceVersion, or token subject) and the auth namespace. Only callers with equal identities share reads. A change
    of one of `sources`, the objects that were read, wakes the users of the store.
    """

    resolved: ResolvedStore
    config: Config
    identity: str
    sources: tuple[ObjectRef, ...] = ()
    token: str = field(default="", repr=False)


Bind = Callable[[ResolvedStore], Awaitable[BoundStore]]
"""Reads the credentials of a resolved store. Raises ResolutionError."""


def same_backend(one: BoundStore, other: BoundStore) -> bool:
    """Return whether a remote key means the same value in both stores, for example in a v1 store and its v2 successor.

    Provider, kind of the configuration, the configuration itself, and the objects with credentials must be the same.
    Stores that differ in one of them may still lead to the same backend; then they count as different.
    """
    return (
        one.resolved.connection.key == other.resolved.connection.key
        and one.resolved.config.kind == other.resolved.config.kind
        and one.resolved.config.delivery is other.resolved.config.delivery
        and one.resolved.caller_namespace == other.resolved.caller_namespace
        and set(one.sources) == set(other.sources)
        and _alike(_configuration(one.resolved), _configuration(other.resolved))
    )


def _configuration(resolved: ResolvedStore) -> Any:
    """Return the configuration without the members that say the same as the kind, or that concern the object alone."""
    config = resolved.config
    if config.spec is None:
        return {"ref": msgspec.to_builtins(config.ref)}
    spec = msgspec.json.decode(config.spec)
    if not isinstance(spec, dict):
        return spec
    by_key = (info for info in resolved.handshake.kinds if config.v1_key and info.v1_provider_key == config.v1_key)
    chosen_by = {info.v1_when.pointer.removeprefix("/") for info in by_key if info.v1_when is not None}
    return {name: value for name, value in spec.items() if name not in {"common", *chosen_by}}


def _alike(one: Any, other: Any) -> bool:
    """Return whether two configurations are equivalent.

    A kind of a provider may name a member differently than the v1 block (`deletion` for `secretsManager` of AWS): the
    members that only one of the two has must hold the same values.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return bool(one == other)
    both = one.keys() & other.keys()
    left = [value for name, value in one.items() if name not in both]
    right = [value for name, value in other.items() if name not in both]
    return all(one[name] == other[name] for name in both) and _equal_bags(left, right)


def _equal_bags(left: list[Any], right: list[Any]) -> bool:
    return sorted(map(_text, left)) == sorted(map(_text, right))


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


# --- inputs ----------------------------------------------------------------------------------------------------------

NAMESPACE = KindId("", "v1", "Namespace")
SERVICE = KindId("", "v1", "Service")
CLASS = KindId(PROVIDER_CLASS.group, PROVIDER_CLASS.versions[0], PROVIDER_CLASS.name)
CLUSTER_CLASS = KindId(CLUSTER_PROVIDER_CLASS.group, CLUSTER_PROVIDER_CLASS.versions[0], CLUSTER_PROVIDER_CLASS.name)


class Scope(StrEnum):
    NAMESPACED = "namespaced"
    CLUSTER = "cluster-scoped"


class ClusterObjects(ABC):
    """The objects of the cluster, each typed, as a plain dict, or as `Malformed`.

    Generators and kinds of providers must be plain dicts, because their specs are sent unchanged. Namespaces and
    Services may be either. Of Services, the labelled ones are enough.
    """

    @abstractmethod
    def get(self, kind: KindId, key: ObjectKey) -> Any | None:
        """Return one object; None if it does not exist."""

    @abstractmethod
    def list(self, kind: KindId, namespace: str = "") -> Iterable[Any]:
        """Return all objects of a kind, or those of one namespace."""

    @abstractmethod
    def scope(self, kind: KindId) -> Scope | None:
        """Return the scope of a kind; None if it is not watched or does not exist."""


class WatchedObjects(ClusterObjects):
    """The watched objects of the cluster; further kinds can be included."""

    @abstractmethod
    def revision(self, kind: KindId) -> int:
        """Return a number that changes with every change of an object of the kind; -1 if it is not watched."""

    @abstractmethod
    async def include(self, kind: KindId) -> bool:
        """Watch a kind. Return whether its objects are available now."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The inputs of one resolution. `handshakes` maps `Connection.key` to a handshake or the reason for none."""

    objects: ClusterObjects
    handshakes: Mapping[str, Handshake | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolverSettings:
    """Rules for which stores this operator handles, which providers it may call, and how it finds them."""

    core_namespace: str
    """Namespace of the operator: a bare host in a cluster-scoped object means a Service of it."""
    controller_class: str = "default"
    provider_namespaces: tuple[str, ...] = ()
    """Namespaces, besides the core namespace, whose labelled Services are providers for all namespaces."""
    namespaced_providers: bool = False
    """True if any other namespace may run providers that only that namespace can use."""
    cluster_domain: str = "cluster.local"
    allowed_addresses: tuple[str, ...] = ()
    """Hosts that may be dialled although they are not Services: `host` or `host:port`; `*` matches any characters."""
    trusted: Mapping[ServiceKey, str] = field(default_factory=dict)
    """Services whose provider listens at another address, for example on loopback: `host:port` to dial."""
    expected: frozenset[ServiceKey] = frozenset()
    """Members of `trusted` whose provider may start later. They are used only once their Service exists."""
    unix_sockets: bool = False
    naming_convention: bool = False
    flood_gate: bool = True
    v2_stores: bool = True
    """False if the gate V2Stores is off: references to v2 stores, generators and providers' own kinds are refused."""

    @property
    def shared_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces with providers for all namespaces; the core namespace first."""
        return tuple(dict.fromkeys((self.core_namespace, *self.provider_namespaces)))

    def may_have_providers(self, namespace: str) -> bool:
        """Return whether Services of a namespace may be providers without a cluster-scoped object that names them."""
        return self.namespaced_providers or namespace in self.shared_namespaces


class Gate(StrEnum):
    """The gates that stop this caller while the store is not ready."""

    FULL = "full"
    """The flood gate of v1 stores and the gating policy of v2 stores; for reads."""
    POLICY = "policy"
    """Only the gating policy of v2 stores applies; for pushes and clean-ups."""
    OFF = "off"
    """No gate applies; for the validation of the store, which opens the gate again."""


@dataclass(frozen=True, slots=True)
class Need:
    """The operations that a caller will use, and its gate."""

    operations: frozenset[Operation] = frozenset()
    gate: Gate = Gate.FULL

    @property
    def removes_only(self) -> bool:
        """Return whether the caller only removes values.

        This is allowed while the store is being deleted, because the deletion may wait for it.
        """
        removals = {Operation.DELETE, Operation.EXISTS, Operation.CLEANUP}
        return bool(self.operations) and self.operations <= removals


VALIDATION = Need(gate=Gate.OFF)


def need_to_read(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.FULL)


def need_to_push(*operations: Operation) -> Need:
    return Need(frozenset(operations), Gate.POLICY)
