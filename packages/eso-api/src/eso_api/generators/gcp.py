"""GCRAccessToken: logins for Google's container registries."""

from __future__ import annotations

import msgspec

from eso_api.crd import generator_kind
from eso_api.shapes import Fragment
from eso_api.stores.gcp import GcpAuth
from kubebase.meta import Object


class GCRAccessTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which project, and as whom."""

    auth: GcpAuth
    """Credentials."""
    project_id: str = msgspec.field(name="projectID")
    """Project of the registry."""


class GCRAccessToken(Object, kw_only=True):
    """Logins for Google's container registries."""

    spec: GCRAccessTokenSpec


GCR_ACCESS_TOKEN = generator_kind(GCRAccessToken, "gcraccesstokens")
