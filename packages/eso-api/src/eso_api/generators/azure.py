"""ACRAccessToken: logins for Azure's container registry."""

from __future__ import annotations

from typing import Annotated

from eso_api.crd import generator_kind
from eso_api.marks import audiences
from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment
from eso_api.stores.azure import AzureEnvironment
from kubebase.meta import Object


class ACRPrincipalSecretRef(Fragment, frozen=True, kw_only=True):
    """A service principal kept in Secrets."""

    client_id: SecretKeySelector | None = None
    """Client id."""
    client_secret: SecretKeySelector | None = None
    """Client secret."""


class ACRServicePrincipal(Fragment, frozen=True, kw_only=True):
    """A service principal."""

    secret_ref: ACRPrincipalSecretRef
    """Where it is kept."""


class ACRManagedIdentity(Fragment, frozen=True, kw_only=True):
    """A managed identity."""

    identity_id: str = ""
    """Client id or resource id, when there are several."""


class ACRWorkloadIdentity(Fragment, frozen=True, kw_only=True):
    """A service account bound to an Azure identity."""

    service_account_ref: Annotated[ServiceAccountSelector, audiences("api://AzureADTokenExchange")] | None = None
    """The service account; absent means that of the provider process."""


class ACRAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; one of them."""

    service_principal: ACRServicePrincipal | None = None
    """A service principal."""
    managed_identity: ACRManagedIdentity | None = None
    """A managed identity."""
    workload_identity: ACRWorkloadIdentity | None = None
    """A service account bound to an Azure identity."""


class ACRAccessTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which registry, and as whom."""

    registry: str
    """Host of the registry."""
    auth: ACRAuth
    """Credentials."""
    tenant_id: str = ""
    """Tenant."""
    scope: str = ""
    """Scope of an access token; absent makes a refresh token."""
    environment_type: AzureEnvironment = "PublicCloud"
    """Azure cloud; absent means PublicCloud."""


class ACRAccessToken(Object, kw_only=True):
    """Logins for Azure's container registry."""

    spec: ACRAccessTokenSpec


ACR_ACCESS_TOKEN = generator_kind(ACRAccessToken, "acraccesstokens")
