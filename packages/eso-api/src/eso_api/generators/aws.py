"""ECRAuthorizationToken and STSSessionToken: logins for AWS container registries, and temporary AWS credentials."""

from __future__ import annotations

from eso_api.crd import generator_kind
from eso_api.shapes import Fragment, Int32
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


class STSRequestParameters(Fragment, frozen=True, kw_only=True):
    """Parameters of the request to AWS."""

    session_duration: Int32 | None = None
    """Seconds that the keys are valid."""
    serial_number: str | None = None
    """Serial number or ARN of an MFA device."""
    token_code: str | None = None
    """Token of the MFA device."""


class STSSessionTokenSpec(Fragment, frozen=True, kw_only=True):
    """The keys to use, and the duration of the session."""

    region: str
    """Region of the service."""
    auth: AwsAuth | None = None
    """Credentials; absent means those of the provider process."""
    role: str = ""
    """Role to assume."""
    request_parameters: STSRequestParameters | None = None
    """Parameters of the request to AWS."""


class STSSessionToken(Object, kw_only=True):
    """Temporary AWS keys."""

    spec: STSSessionTokenSpec


STS_SESSION_TOKEN = generator_kind(STSSessionToken, "stssessiontokens")
