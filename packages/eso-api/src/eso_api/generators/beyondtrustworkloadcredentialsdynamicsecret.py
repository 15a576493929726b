"""BeyondtrustWorkloadCredentialsDynamicSecret: short-lived credentials of BeyondTrust."""

from __future__ import annotations

from eso_api.generators.definition import generator_kind
from eso_api.policies import RetrySettings
from eso_api.references import CaProvider, SecretKeySelector
from eso_api.shapes import Base64, Fragment
from kubebase.meta import Object


class BeyondtrustApiKey(Fragment, frozen=True, kw_only=True):
    """An API key."""

    token: SecretKeySelector
    """Where it is kept."""


class BeyondtrustAuth(Fragment, frozen=True, kw_only=True):
    """Credentials."""

    apikey: BeyondtrustApiKey
    """An API key."""


class BeyondtrustServer(Fragment, frozen=True, kw_only=True):
    """The backend."""

    api_url: str
    """URL of the API."""
    site_id: str
    """Id of the site."""


class BeyondtrustProvider(Fragment, frozen=True, kw_only=True):
    """Which backend, as whom, and which secret."""

    auth: BeyondtrustAuth
    """Credentials."""
    server: BeyondtrustServer
    """The backend."""
    folder_path: str = ""
    """Folder and name of the dynamic secret."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""


class BeyondtrustWorkloadCredentialsDynamicSecretSpec(Fragment, frozen=True, kw_only=True):
    """Which credentials."""

    provider: BeyondtrustProvider
    """Which backend, as whom, and which secret."""
    retry_settings: RetrySettings | None = None
    """Accepted for compatibility."""
    controller: str = ""
    """Class of the operator that handles this generator."""


class BeyondtrustWorkloadCredentialsDynamicSecret(Object, kw_only=True):
    """Short-lived credentials of BeyondTrust."""

    spec: BeyondtrustWorkloadCredentialsDynamicSecretSpec


BEYONDTRUST_WORKLOAD_CREDENTIALS_DYNAMIC_SECRET = generator_kind(
    BeyondtrustWorkloadCredentialsDynamicSecret, "beyondtrustworkloadcredentialsdynamicsecrets"
)
