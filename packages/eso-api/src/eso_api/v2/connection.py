"""The connection to a provider process, and the configuration sent with every call.

This module parses addresses as users write them: `host:port`, `grpc://host:port`, `https://host:port`,
`dns:///host:port`, `unix:///path`, `http+unix:///path`. It does not decide whether an address may be dialled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

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


class AddressError(ValueError):
    """The text is not an address of a provider."""


@dataclass(frozen=True, slots=True)
class NetworkAddress:
    """A provider behind TLS on a host."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """A provider on a Unix socket of the same machine; refused unless a feature gate allows it."""

    path: str


_NETWORK: Final = re.compile(
    r"(?:(?:grpc|https)://|dns:///)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?\.?)"
    r":(?P<port>[0-9]{1,5})"
)
_SOCKET: Final = re.compile(r"(?:http\+)?unix://(?P<path>/\S+)")


def parse_address(text: str) -> NetworkAddress | SocketAddress:
    """Parse one address."""
    if match := _SOCKET.fullmatch(text):
        return SocketAddress(match["path"])
    match = _NETWORK.fullmatch(text)
    if match is None:
        raise AddressError("write host:port, grpc://host:port, https://host:port or dns:///host:port")
    port = int(match["port"])
    if not 0 < port < 65536:
        raise AddressError(f"port {port} is not between 1 and 65535")
    return NetworkAddress(match["host"].strip("[]"), port)


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
