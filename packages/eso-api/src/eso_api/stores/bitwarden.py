"""`spec.provider.bitwardensecretsmanager`: one project of Bitwarden Secrets Manager."""

from __future__ import annotations

import msgspec

from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Fragment


class BitwardenSecretRef(Fragment, frozen=True, kw_only=True):
    """The access token kept in a Secret."""

    credentials: SecretKeySelector
    """Access token of a machine account."""


class BitwardenAuth(Fragment, frozen=True, kw_only=True):
    """The machine account."""

    secret_ref: BitwardenSecretRef
    """The access token kept in a Secret."""


class BitwardenProvider(Fragment, frozen=True, kw_only=True):
    """Bitwarden Secrets Manager."""

    auth: BitwardenAuth
    """The machine account."""
    organization_id: str = msgspec.field(name="organizationID")
    """Id of the organization."""
    project_id: str = msgspec.field(name="projectID")
    """Id of the project."""
    api_url: str = msgspec.field(default="", name="apiURL")
    """URL of Bitwarden's API; absent means https://api.bitwarden.com."""
    identity_url: str = msgspec.field(default="", name="identityURL")
    """URL of Bitwarden's identity service; absent means https://identity.bitwarden.com."""
    bitwarden_server_sdk_url: str = msgspec.field(default="", name="bitwardenServerSDKURL")
    """URL of the companion server; absent means that the provider itself speaks to Bitwarden."""
    ca_bundle: str = ""
    """CA certificates of the companion server, PEM or PEM in base64; absent means those of the system."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
