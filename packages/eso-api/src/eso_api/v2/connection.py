"""The connection to a provider process, and the configuration sent with every call."""

from __future__ import annotations

from typing import Annotated, ClassVar

from eso_api.references import SecretSelector
from eso_api.shapes import (
    ApiVersion,
    Fragment,
    JsonMap,
    KindName,
    NamespaceName,
    ObjectName,
    at_most_one,
    exactly_one_of,
    one_of,
    shaped,
)

# Groups in which a reference without apiVersion is looked up.
STORE_CONFIG_API_VERSION = "provider.secretstore.external-secrets.io/v2alpha1"
GENERATOR_CONFIG_API_VERSION = "provider.generator.external-secrets.io/v2alpha1"

Address = Annotated[str, shaped(minLength=1, maxLength=2048, pattern=r"^\S+$")]


class ClassRef(Fragment, frozen=True, kw_only=True):
    """The class that names the address of the provider."""

    name: ObjectName
    """Name of the class."""
    kind: Annotated[str, one_of("ProviderClass", "ClusterProviderClass")] = "ClusterProviderClass"
    """Kind of the class; absent means ClusterProviderClass."""


class ChannelCertificate(Fragment, frozen=True, kw_only=True):
    """Client certificate for the connection to the provider."""

    secret_ref: SecretSelector | None = None
    """Secret with tls.crt, tls.key and ca.crt; absent means a managed certificate."""


class ChannelServiceAccount(Fragment, frozen=True, kw_only=True):
    """Service account whose token is sent with every call."""

    name: ObjectName = ""
    """Name of the service account; absent sends no token."""
    namespace: NamespaceName = ""
    """Namespace of the service account."""
    audiences: list[str] = []
    """Audiences of the token."""


class ChannelAuth(Fragment, frozen=True, kw_only=True):
    """How we authenticate to the provider. Independent of the backend's credentials."""

    client_certificate: ChannelCertificate | None = None
    """Client certificate; absent means a managed one."""
    service_account_ref: ChannelServiceAccount | None = None
    """Service account whose token is sent with every call."""


class ProviderRef(Fragment, frozen=True, kw_only=True):
    """The provider's own object with the configuration of the backend."""

    kind: KindName
    """Kind of the object."""
    name: ObjectName
    """Name of the object."""
    api_version: ApiVersion = ""
    """API version of the object; absent means the provider group of stores or of generators."""
    namespace: NamespaceName = ""
    """Namespace of the object. A namespaced store may only name its own."""


class InlineConfig(Fragment, frozen=True, kw_only=True):
    """The configuration itself, instead of an object that holds it."""

    kind: KindName
    """Kind the configuration has in the provider."""
    spec: JsonMap
    """The configuration."""
    api_version: ApiVersion = ""
    """API version of that kind; absent means the provider group of stores or of generators."""


class ProviderConfig(Fragment, frozen=True, kw_only=True):
    """The connection to a provider process, and the configuration sent with every call.

    Without address and classRef, the provider is found by the kind of its configuration.
    """

    RULES: ClassVar = (at_most_one("address", "classRef"), exactly_one_of("providerRef", "inline"))

    address: Address = ""
    """Where the provider listens, for example grpc://provider-aws.eso.svc:8080."""
    class_ref: ClassRef | None = None
    """The class that names the address of the provider."""
    auth: ChannelAuth | None = None
    """How we authenticate to the provider."""
    provider_ref: ProviderRef | None = None
    """The provider's own object with the configuration of the backend."""
    inline: InlineConfig | None = None
    """The configuration itself."""
