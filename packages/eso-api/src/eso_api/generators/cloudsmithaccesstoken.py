"""CloudsmithAccessToken: tokens for Cloudsmith registries."""

from __future__ import annotations

from eso_api.generators.definition import generator_kind
from eso_api.references import ServiceAccountSelector
from eso_api.shapes import Fragment
from kubebase.meta import Object


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
