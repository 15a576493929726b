"""`spec.provider.infisical`: folders of an Infisical project.

The CRDs of v1 stores keep the block open: with its many references they would be too large for client-side apply. The
provider checks it.
"""

from __future__ import annotations

import msgspec

from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Base64, Fragment


class InfisicalUniversalAuth(Fragment, frozen=True, kw_only=True):
    """Client id and client secret of a machine identity."""

    client_id: SecretKeySelector
    """Client id."""
    client_secret: SecretKeySelector
    """Client secret."""


class InfisicalAzureAuth(Fragment, frozen=True, kw_only=True):
    """The managed identity of the provider's machine."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    resource: SecretKeySelector | None = None
    """Resource of the Azure token; absent means https://management.azure.com/."""


class InfisicalGcpIdTokenAuth(Fragment, frozen=True, kw_only=True):
    """The Google service account of the provider's machine."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""


class InfisicalGcpIamAuth(Fragment, frozen=True, kw_only=True):
    """The key of a Google service account."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    service_account_key_file_path: SecretKeySelector
    """Path of the key file in the provider's container."""


class InfisicalJwtAuth(Fragment, frozen=True, kw_only=True):
    """A JWT of any issuer."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    jwt: SecretKeySelector
    """The JWT."""


class InfisicalLdapAuth(Fragment, frozen=True, kw_only=True):
    """A user of a directory."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    ldap_password: SecretKeySelector
    """Password."""
    ldap_username: SecretKeySelector
    """User name."""


class InfisicalOciAuth(Fragment, frozen=True, kw_only=True):
    """The API key of an Oracle Cloud user."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    private_key: SecretKeySelector
    """Private key, in PEM."""
    private_key_passphrase: SecretKeySelector | None = None
    """Passphrase of the private key, if it is encrypted."""
    fingerprint: SecretKeySelector
    """Fingerprint of the key."""
    user_id: SecretKeySelector
    """OCID of the user."""
    tenancy_id: SecretKeySelector
    """OCID of the tenancy."""
    region: SecretKeySelector
    """Region, such as eu-frankfurt-1."""


class InfisicalKubernetesAuth(Fragment, frozen=True, kw_only=True):
    """The service account of the provider's pod."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""
    service_account_token_path: SecretKeySelector | None = None
    """Path of the token file in the provider's container; absent means the token of its pod."""


class InfisicalAwsAuth(Fragment, frozen=True, kw_only=True):
    """The AWS role of the provider's pod or machine."""

    identity_id: SecretKeySelector
    """Id of the machine identity."""


class InfisicalTokenAuth(Fragment, frozen=True, kw_only=True):
    """An access token made in Infisical."""

    access_token: SecretKeySelector
    """The token."""


class InfisicalAuth(Fragment, frozen=True, kw_only=True):
    """How to log in; of several forms, the first of this order is used."""

    universal_auth_credentials: InfisicalUniversalAuth | None = None
    """Client id and client secret of a machine identity."""
    azure_auth_credentials: InfisicalAzureAuth | None = None
    """The managed identity of the provider's machine."""
    gcp_id_token_auth_credentials: InfisicalGcpIdTokenAuth | None = None
    """The Google service account of the provider's machine."""
    gcp_iam_auth_credentials: InfisicalGcpIamAuth | None = None
    """The key of a Google service account."""
    jwt_auth_credentials: InfisicalJwtAuth | None = None
    """A JWT of any issuer."""
    ldap_auth_credentials: InfisicalLdapAuth | None = None
    """A user of a directory."""
    oci_auth_credentials: InfisicalOciAuth | None = None
    """The API key of an Oracle Cloud user."""
    kubernetes_auth_credentials: InfisicalKubernetesAuth | None = None
    """The service account of the provider's pod."""
    aws_auth_credentials: InfisicalAwsAuth | None = None
    """The AWS role of the provider's pod or machine."""
    token_auth_credentials: InfisicalTokenAuth | None = None
    """An access token made in Infisical."""


class InfisicalScope(Fragment, frozen=True, kw_only=True):
    """The part of a project that the store reads and writes."""

    environment_slug: str
    """Slug of the environment."""
    project_slug: str
    """Slug of the project."""
    organization_slug: str = ""
    """Slug of the organization; needed for sub-organizations."""
    secrets_path: str = "/"
    """Folder of keys without a path; absent means /."""
    recursive: bool = False
    """Let dataFrom.find read the folders below secretsPath too."""
    expand_secret_references: bool = True
    """Replace references to other secrets by their values; absent means true."""


class InfisicalProvider(Fragment, frozen=True, kw_only=True):
    """Infisical."""

    auth: InfisicalAuth
    """How to log in."""
    secrets_scope: InfisicalScope
    """The part of a project that the store reads and writes."""
    host_api: str = msgspec.field(default="https://app.infisical.com/api", name="hostAPI")
    """URL of the API; absent means https://app.infisical.com/api."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
