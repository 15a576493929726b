"""ECRAuthorizationToken: logins for Amazon's container registry."""

from __future__ import annotations

from eso_api.generators.definition import generator_kind
from eso_api.shapes import Fragment
from eso_api.stores.aws import AwsAuth
from kubebase.meta import Object


class ECRAuthorizationTokenSpec(Fragment, frozen=True, kw_only=True):
    """Which registry, and as whom."""

    region: str
    """Region of the registry."""
    auth: AwsAuth | None = None
    """Credentials; absent means those of the provider process."""
    role: str = ""
    """Role to assume."""
    scope: str = ""
    """public for ECR Public, anything else for a private registry."""


class ECRAuthorizationToken(Object, kw_only=True):
    """Logins for Amazon's container registry."""

    spec: ECRAuthorizationTokenSpec


ECR_AUTHORIZATION_TOKEN = generator_kind(ECRAuthorizationToken, "ecrauthorizationtokens")
