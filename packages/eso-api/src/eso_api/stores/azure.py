"""`spec.provider.azurekv`: Azure Key Vault."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.marks import audiences
from eso_api.references import SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Fragment, one_of

AzureEnvironment = Annotated[
    str, one_of("PublicCloud", "USGovernmentCloud", "ChinaCloud", "GermanCloud", "AzureStackCloud")
]


class AzureSecretRef(Fragment, frozen=True, kw_only=True):
    """A service principal kept in Secrets."""

    client_id: SecretKeySelector | None = None
    """Client id."""
    client_secret: SecretKeySelector | None = None
    """Client secret."""
    client_certificate: SecretKeySelector | None = None
    """Client certificate, instead of the secret."""
    tenant_id: SecretKeySelector | None = None
    """Tenant id."""


class AzureCustomCloud(Fragment, frozen=True, kw_only=True):
    """Endpoints of an Azure Stack."""

    active_directory_endpoint: str
    """Endpoint of the identity service."""
    key_vault_endpoint: str = ""
    """Endpoint of Key Vault."""
    key_vault_dns_suffix: str = msgspec.field(default="", name="keyVaultDNSSuffix")
    """DNS suffix of Key Vault."""
    resource_manager_endpoint: str = ""
    """Endpoint of the resource manager."""


class AzureProvider(Fragment, frozen=True, kw_only=True):
    """Azure Key Vault."""

    vault_url: str
    """URL of the vault."""
    auth_type: Annotated[str, one_of("ServicePrincipal", "ManagedIdentity", "WorkloadIdentity")] = "ServicePrincipal"
    """Kind of credentials; absent means ServicePrincipal."""
    auth_secret_ref: AzureSecretRef | None = None
    """The service principal."""
    service_account_ref: Annotated[ServiceAccountSelector, audiences("api://AzureADTokenExchange")] | None = None
    """Service account for WorkloadIdentity."""
    identity_id: str = ""
    """Managed identity, when there are several."""
    tenant_id: str = ""
    """Tenant."""
    environment_type: AzureEnvironment = "PublicCloud"
    """Azure cloud; absent means PublicCloud."""
    use_azure_sdk: bool = msgspec.field(default=False, name="useAzureSDK")
    """Use the current SDK."""
    custom_cloud_config: AzureCustomCloud | None = None
    """Endpoints of an Azure Stack."""
