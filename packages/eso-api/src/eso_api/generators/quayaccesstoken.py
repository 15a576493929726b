"""QuayAccessToken: logins of a Quay robot account."""

from __future__ import annotations

from eso_api.generators.definition import generator_kind
from eso_api.references import ServiceAccountSelector
from eso_api.shapes import Fragment
from kubebase.meta import Object


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
