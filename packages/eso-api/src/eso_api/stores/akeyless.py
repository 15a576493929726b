"""`spec.provider.akeyless`: items of Akeyless.

The CRDs of v1 stores keep the block open, so that they stay small enough for client-side apply. The provider checks it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from eso_api.marks import audiences, default_key, lifetime
from eso_api.references import CaProvider, SecretKeySelector, ServiceAccountSelector
from eso_api.shapes import Base64, Fragment


class AkeylessSecretRef(Fragment, frozen=True, kw_only=True):
    """An identity whose parts are in Secrets."""

    access_id: SecretKeySelector | None = msgspec.field(default=None, name="accessID")
    """Access id of the auth method."""
    access_type: SecretKeySelector | None = None
    """Kind of the auth method: api_key, access_key, aws_iam, azure_ad or gcp."""
    access_type_param: SecretKeySelector | None = None
    """The access key; or the audience for gcp; or the object id of a managed identity for azure_ad."""


class AkeylessKubernetesAuth(Fragment, frozen=True, kw_only=True):
    """A service account of a cluster, checked by a gateway."""

    access_id: str = msgspec.field(name="accessID")
    """Access id of the auth method."""
    k8s_conf_name: str
    """Name of the Kubernetes auth configuration of the gateway."""
    service_account_ref: Annotated[ServiceAccountSelector, lifetime(600)] | None = None
    """Service account to request a token for."""
    secret_ref: Annotated[SecretKeySelector, default_key("token")] | None = None
    """A token kept in a Secret; the key is token if none is named."""


class AkeylessAuth(Fragment, frozen=True, kw_only=True):
    """How to log in; kubernetesAuth is used if both forms are set."""

    secret_ref: AkeylessSecretRef | None = None
    """An identity whose parts are in Secrets."""
    kubernetes_auth: AkeylessKubernetesAuth | None = None
    """A service account of a cluster."""
    service_account_ref: (
        Annotated[ServiceAccountSelector, audiences("api://AzureADTokenExchange"), lifetime(600)] | None
    ) = None
    """Service account with an Azure workload identity, for azure_ad."""


class AkeylessProvider(Fragment, frozen=True, kw_only=True):
    """Items of Akeyless."""

    auth_secret_ref: AkeylessAuth
    """How to log in."""
    akeyless_gw_api_url: str = msgspec.field(default="", name="akeylessGWApiURL")
    """URL of the API or of a gateway; absent means https://api.akeyless.io."""
    ignore_cache: bool = False
    """Read past the cache of the gateway."""
    ca_bundle: Base64 = ""
    """CA certificates, PEM in base64."""
    ca_provider: CaProvider | None = None
    """CA certificates kept in a Secret or ConfigMap."""
