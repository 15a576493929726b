"""ProviderClass and ClusterProviderClass: the address and kinds of one provider process.

The operator usually creates one from a labelled Service.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.common import Conditions, NamespaceCondition
from eso_api.crd import CustomKind, age_column, ready_reason, ready_status, string_column
from eso_api.references import CORE_GROUP, SecretSelector
from eso_api.shapes import Duration, Fragment, Int32, Int64, KindName, Timestamp, one_of, shaped
from eso_api.v2.connection import Address
from eso_api.v2.policy import MANIFEST_NAMESPACE, PROVIDER_NAMESPACE
from kubebase.meta import Object


class ClassTls(Fragment, frozen=True, kw_only=True):
    """How the connection to the provider is secured. Every connection uses mutual TLS."""

    mode: Annotated[str, one_of("Managed", "SecretRef")] = "Managed"
    """Managed (default) uses certificates issued by the operator; SecretRef uses your own."""
    secret_ref: SecretSelector | None = None
    """Secret with tls.crt, tls.key and ca.crt for mode SecretRef."""
    server_name: str = ""
    """Name that the provider's certificate must carry; absent means the host of the address."""


class ServedKind(Fragment, frozen=True, kw_only=True):
    """A kind of configuration that the provider supports."""

    group: Annotated[str, shaped(minLength=1)]
    """Group of the kind."""
    version: Annotated[str, shaped(minLength=1)]
    """Version of the kind."""
    kind: KindName
    """The kind."""


class ClassLimits(Fragment, frozen=True, kw_only=True):
    """Limits of the load on the provider."""

    max_batch_items: Int32 | None = None
    """Entries of one call."""
    max_in_flight: Int32 | None = None
    """Calls at the same time."""
    max_message_bytes: Int64 | None = None
    """Bytes of one message."""
    max_deadline: Duration | None = None
    """Time for one call."""


class ProviderClassSpec(Fragment, frozen=True, kw_only=True):
    """The address of the provider, and the kinds it serves."""

    address: Address
    """Where the provider listens, for example grpc://provider-aws.eso.svc:8080."""
    tls: ClassTls | None = None
    """How the connection is secured."""
    serves: list[ServedKind] = []
    """Kinds of configuration that the provider understands; the provider must confirm them."""
    v1_provider_keys: list[str] = []
    """Blocks of `spec.provider` in v1 stores that the provider serves; the provider must confirm them."""
    allowed_namespaces: list[NamespaceCondition] = []
    """Namespaces that may use the provider; absent means all that can name the class."""
    authentication_scope: Annotated[str, one_of(PROVIDER_NAMESPACE, MANIFEST_NAMESPACE)] = MANIFEST_NAMESPACE
    """The credentials that cluster-scoped configurations use, unless they set their own scope."""
    limits: ClassLimits | None = None
    """Limits of the load on the provider."""


class ClassKind(Fragment, frozen=True, kw_only=True):
    """A kind that the provider reported."""

    group: str
    """Group of the kind."""
    version: str
    """Version of the kind."""
    kind: str
    """The kind."""
    operations: list[str] = []
    """The operations that the provider supports for it."""
    v1_provider_key: str = ""
    """The key below spec.provider of a v1 store that it serves; empty for none."""


class ClassCertificate(Fragment, frozen=True, kw_only=True):
    """The certificate that the provider presented."""

    not_after: Timestamp = None
    """When it expires."""


class ProviderClassStatus(Fragment, frozen=True, kw_only=True):
    """The facts that the provider reported."""

    conditions: Conditions = []
    """Ready says whether the provider answers."""
    protocol: str = ""
    """Protocol version in use."""
    provider_version: str = ""
    """Version of the provider."""
    kinds: list[ClassKind] = []
    """Kinds the provider serves."""
    certificate: ClassCertificate | None = None
    """The certificate that the provider presented."""
    endpoints: int = 0
    """Number of addresses behind the Service."""


class ProviderClass(Object, kw_only=True):
    """One provider process, for the namespace it lives in."""

    spec: ProviderClassSpec
    status: ProviderClassStatus = msgspec.field(default_factory=ProviderClassStatus)


CLASS_COLUMNS = (
    string_column("Address", ".spec.address"),
    string_column("Version", ".status.providerVersion"),
    ready_reason("Status"),
    ready_status("Ready"),
    age_column("Age"),
)

PROVIDER_CLASS = CustomKind(
    ProviderClass,
    group=CORE_GROUP,
    plural="providerclasses",
    versions=("v1alpha1",),
    short_names=("provclass",),
    columns=CLASS_COLUMNS,
)


class ClusterProviderClass(Object, kw_only=True):
    """One provider process, for many namespaces."""

    spec: ProviderClassSpec
    status: ProviderClassStatus = msgspec.field(default_factory=ProviderClassStatus)


CLUSTER_PROVIDER_CLASS = CustomKind(
    ClusterProviderClass,
    group=CORE_GROUP,
    plural="clusterproviderclasses",
    versions=("v1alpha1",),
    short_names=("cprovclass",),
    namespaced=False,
    columns=CLASS_COLUMNS,
)
