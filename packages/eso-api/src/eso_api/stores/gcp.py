"""`spec.provider.gcpsm`: Google Cloud Secret Manager. Its credentials are shared with Vault and the GCR generator."""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.marks import CONFIG_MAP_KEY, audiences, lifetime, sibling
from eso_api.references import RequiredSecretKeySelector, SecretKeySelector, SecretSelector, ServiceAccountSelector
from eso_api.shapes import Fragment, shaped


class GcpSecretRef(Fragment, frozen=True, kw_only=True):
    """A service account key."""

    secret_access_key_secret_ref: SecretKeySelector | None = None
    """The key, as JSON."""


class GcpWorkloadIdentity(Fragment, frozen=True, kw_only=True):
    """A Kubernetes service account bound to a Google one."""

    service_account_ref: Annotated[
        ServiceAccountSelector,
        audiences(sibling("1/clusterProjectID", "2/projectID", "3/projectID", suffix=".svc.id.goog")),
        lifetime(900),
    ]
    """The Kubernetes service account."""
    cluster_location: str = ""
    """Location of the cluster; absent asks the metadata server."""
    cluster_name: str = ""
    """Name of the cluster; absent asks the metadata server."""
    cluster_project_id: str = msgspec.field(default="", name="clusterProjectID")
    """Project of the cluster; absent asks the metadata server."""


class AwsSecurityCredentials(Fragment, frozen=True, kw_only=True):
    """AWS keys to exchange for a Google token."""

    region: Annotated[str, shaped(minLength=1, maxLength=50, pattern="^[a-z0-9-]+$")]
    """AWS region."""
    aws_credentials_secret_ref: SecretSelector
    """Secret with the AWS keys."""


class GcpWorkloadIdentityFederation(Fragment, frozen=True, kw_only=True):
    """A token of another identity provider, exchanged for a Google one."""

    audience: str = ""
    """Audience of the exchange; needed with serviceAccountRef and awsSecurityCredentials."""
    cred_config: Annotated[RequiredSecretKeySelector, CONFIG_MAP_KEY] | None = None
    """ConfigMap with an external_account configuration."""
    service_account_ref: ServiceAccountSelector | None = None
    """Kubernetes service account whose token is exchanged."""
    aws_security_credentials: AwsSecurityCredentials | None = None
    """AWS keys that are exchanged."""
    external_token_endpoint: str = ""
    """Where the token of credConfig comes from."""
    gcp_service_account_email: Annotated[str, shaped(minLength=1, pattern=r"^.*@.*\.iam\.gserviceaccount\.com$")] = ""
    """Google service account to impersonate."""


class GcpAuth(Fragment, frozen=True, kw_only=True):
    """Credentials; absent means those of the provider process."""

    secret_ref: GcpSecretRef | None = None
    """A service account key kept in a Secret."""
    workload_identity: GcpWorkloadIdentity | None = None
    """A Kubernetes service account bound to a Google one."""
    workload_identity_federation: GcpWorkloadIdentityFederation | None = None
    """A token of another identity provider."""


class GcpProvider(Fragment, frozen=True, kw_only=True):
    """Google Cloud Secret Manager."""

    auth: GcpAuth | None = None
    """Credentials; absent means those of the provider process."""
    project_id: str = msgspec.field(default="", name="projectID")
    """Project; needed with a service account key."""
    location: str = ""
    """Region, for regional secrets."""
    secret_version_selection_policy: str = "LatestOrFail"  # noqa: S105 - the name of a policy
    """LatestOrFail (default), or LatestOrFetch to fall back to the newest enabled version."""
