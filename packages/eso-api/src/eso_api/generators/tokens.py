"""Credentials of other services: BeyondTrust, Cloudsmith, Grafana and Quay."""

from __future__ import annotations

from typing import Annotated

from eso_api.common import RetrySettings
from eso_api.crd import generator_kind
from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Base64, Fragment, shaped
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


class CloudsmithAccessTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which organisation, and as whom."""

    org_slug: str
    """The organisation."""
    service_slug: str
    """The service."""
    service_account_ref: ServiceAccountSelector
    """Service account whose token is exchanged."""
    api_url: str = ""
    """URL of the API; absent means https://api.cloudsmith.io."""


class CloudsmithAccessToken(Object, kw_only=True):
    """Tokens for Cloudsmith registries."""

    spec: CloudsmithAccessTokenSpec


CLOUDSMITH_ACCESS_TOKEN = generator_kind(CloudsmithAccessToken, "cloudsmithaccesstokens")


class GrafanaBasic(Fragment, frozen=True, kw_only=True):
    """User name and password."""

    username: str
    """The user."""
    password: SecretKeySelector
    """The password."""


class GrafanaAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; the token is preferred."""

    token: SecretKeySelector | None = None
    """A token."""
    basic: GrafanaBasic | None = None
    """User name and password."""


class GrafanaServiceAccount(Fragment, frozen=True, kw_only=True):
    """The service account that tokens belong to."""

    name: str
    """Its name; it is created when absent."""
    role: str
    """Its role when it is created."""
    seconds_to_live: Annotated[int | None, shaped(format="int64", minimum=1)] = None
    """Lifetime of a token; absent means forever."""


class GrafanaSpec(Fragment, frozen=True, kw_only=True):
    """Which Grafana, as whom, and for which service account."""

    url: str
    """URL of Grafana."""
    auth: GrafanaAuth
    """Credentials."""
    service_account: GrafanaServiceAccount
    """The service account that tokens belong to."""


class Grafana(Object, kw_only=True):
    """Tokens of Grafana service accounts."""

    spec: GrafanaSpec


GRAFANA = generator_kind(Grafana, "grafanas")


class QuayAccessTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which robot, and as whom."""

    robot_account: str
    """Name of the robot account."""
    service_account_ref: ServiceAccountSelector
    """Service account that is federated with the robot."""
    url: str = ""
    """Host of the registry; absent means quay.io."""


class QuayAccessToken(Object, kw_only=True):
    """Logins of a Quay robot account."""

    spec: QuayAccessTokenSpec


QUAY_ACCESS_TOKEN = generator_kind(QuayAccessToken, "quayaccesstokens")
