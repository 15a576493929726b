"""`spec.provider.kubernetes` and `spec.provider.crd`: Secrets, or objects of one kind, of this or another cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from eso_api.marks import lifetime
from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Base64, Fragment, KindName, NamespaceName, NonEmpty, at_most_one, exactly_one, shaped

ANY_NAMESPACE: Final = "*"
MAX_REMOTE_NAMESPACES: Final = 256
RemoteNamespace = Annotated[str, shaped(minLength=1, maxLength=63, pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$")]


class KubernetesServer(Fragment, frozen=True, kw_only=True):
    """The API server."""

    url: str = "kubernetes.default"
    """Its address; absent means this cluster."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""


class ClientCertificate(Fragment, frozen=True, kw_only=True):
    """A client certificate with its key."""

    client_cert: SecretKeySelector
    """The certificate."""
    client_key: SecretKeySelector
    """The key."""


class BearerToken(Fragment, frozen=True, kw_only=True):
    """A bearer token."""

    bearer_token: SecretKeySelector
    """The token."""


class KubernetesAuth(Fragment, frozen=True, kw_only=True):
    """Credentials for the API server."""

    SHAPE: ClassVar = exactly_one()

    cert: ClientCertificate | None = None
    """A client certificate."""
    token: BearerToken | None = None
    """A bearer token."""
    service_account: Annotated[ServiceAccountSelector, lifetime(3600)] | None = None
    """A service account of this cluster."""


class KubernetesConnection(Fragment, frozen=True, kw_only=True):
    """An API server and credentials for it."""

    RULES: ClassVar = (at_most_one("auth", "authRef"),)

    server: KubernetesServer | None = None
    """The API server; absent means this cluster."""
    auth: KubernetesAuth | None = None
    """Credentials for the API server."""
    auth_ref: SecretKeySelector | None = None
    """A kubeconfig, instead of server and auth."""


class KubernetesProvider(KubernetesConnection, frozen=True, kw_only=True):
    """Secrets of this or another cluster."""

    remote_namespace: NamespaceName = "default"
    """Namespace of the remote Secrets; absent means default."""
    allowed_remote_namespaces: Annotated[list[RemoteNamespace], shaped(maxItems=MAX_REMOTE_NAMESPACES)] = []
    """Namespaces besides remoteNamespace that PushSecrets may name in their metadata; "*" stands for all.

    It has an effect in cluster-scoped stores only.
    """


class CrdResource(Fragment, frozen=True, kw_only=True):
    """The kind of the objects."""

    group: str = ""
    """API group; empty for the core group."""
    version: NonEmpty
    """API version, without the group."""
    kind: KindName
    """Kind. Secrets of the core group are read with the provider kubernetes instead."""


class CrdRule(Fragment, frozen=True, kw_only=True):
    """A rule for the objects and properties that may be read. All fields that are set must match."""

    name: str = ""
    """Regular expression (RE2) that must match anywhere in the object's name; add ^ and $ to match the whole name."""
    namespace: str = ""
    """Regular expression that must match anywhere in the object's namespace."""
    properties: list[str] = []
    """Regular expressions, one of which must match in the property; reads without property are then refused."""


class CrdWhitelist(Fragment, frozen=True, kw_only=True):
    """Limits what may be read."""

    rules: list[CrdRule] = []
    """A read is allowed if one of these rules matches it. No rules allow everything."""


class CrdProvider(KubernetesConnection, frozen=True, kw_only=True):
    """Objects of one kind of this or another cluster, read only."""

    resource: CrdResource
    """The kind of the objects."""
    whitelist: CrdWhitelist = msgspec.field(default_factory=CrdWhitelist)
    """Limits what may be read; absent allows every object of the kind."""
